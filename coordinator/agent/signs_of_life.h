// The source's side of a migration tells the target that it is still at it.
#ifndef COORDINATOR_AGENT_SIGNS_OF_LIFE_H_
#define COORDINATOR_AGENT_SIGNS_OF_LIFE_H_

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "coordinator/agent/peer_link.h"

namespace stasis {

// While this lives and the target takes something by the token: an image of a large job may be made
// meanwhile, of which nothing is to be sent for long. `peer` outlives it. The end waits for the call that is
// under way.
class SignsOfLife {
 public:
  SignsOfLife(PeerLink& peer, std::string token, Duration interval = kSignOfLife);
  ~SignsOfLife();
  SignsOfLife(const SignsOfLife&) = delete;
  SignsOfLife& operator=(const SignsOfLife&) = delete;

 private:
  void Run();

  PeerLink& peer_;
  const std::string token_;
  const Duration interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SIGNS_OF_LIFE_H_

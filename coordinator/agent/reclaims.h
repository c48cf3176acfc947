// What was taken back of other nodes that had not said whether they run it: each is told to let go of it as
// soon as it is reached, however long that takes, also by the next agent. docs/migration.md, "Taken back".
#ifndef COORDINATOR_AGENT_RECLAIMS_H_
#define COORDINATOR_AGENT_RECLAIMS_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/agent/peer_link.h"
#include "coordinator/agent/reclaim_table.h"

namespace stasis {

// Thread-safe.
class Reclaims {
 public:
  using Connect = std::function<Result<std::unique_ptr<PeerLink>>(const std::string& address)>;
  // `node`: this one's name. `longest_wait`: between two attempts. `refused_wait`: the same of what a node
  // refuses for a reason that time does not take away. `database` outlives the object.
  Reclaims(Database& database, Connect connect, std::string node,
           Duration longest_wait = std::chrono::seconds(10), Duration refused_wait = kRefusedWait);
  // Returns when the call that is under way has.
  ~Reclaims();
  Reclaims(const Reclaims&) = delete;
  Reclaims& operator=(const Reclaims&) = delete;

  // On stable storage when it returns; the node is told in the background.
  Status Add(const Reclaim& reclaim);

 private:
  // Somebody has to end the job there; each attempt is on record there, and the first one in the log here.
  static constexpr Duration kRefusedWait = std::chrono::hours(1);
  void Run();
  bool TellAll();
  Status Tell(const Reclaim& reclaim);
  void LogOnce(const Reclaim& reclaim, const Status& told);

  ReclaimTable table_;
  const Connect connect_;
  const std::string node_;
  const Duration longest_wait_, refused_wait_;
  // Of the thread; by token.
  std::map<std::string, std::string> told_;       // what is in the log
  std::map<std::string, MonotonicTime> refused_;  // when it is told again

  std::mutex mutex_;
  std::condition_variable changed_;
  bool added_ = true;  // guarded by mutex_: there may be some that nobody was told of
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_RECLAIMS_H_

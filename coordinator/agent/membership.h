// This agent's place in a cluster: it joins the scheduler, sees when that one is lost, and joins again.
#ifndef COORDINATOR_AGENT_MEMBERSHIP_H_
#define COORDINATOR_AGENT_MEMBERSHIP_H_

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "proto/rpc/endpoint.h"
#include "stasis/v1/scheduler.grpc.pb.h"

namespace stasis {

class Membership {
 public:
  struct Options {
    Endpoint scheduler;
    TlsFiles tls;
    v1::JoinRequest request;
    // Between attempts; doubled from one to the next, and short again once one has succeeded.
    Duration first_wait = std::chrono::milliseconds(200);
    Duration longest_wait = std::chrono::seconds(10);
  };
  // Joins in the background, as long as the object lives. What goes wrong is in the log.
  static Result<std::unique_ptr<Membership>> Begin(Options options);
  // Gives up what it waits for.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

 private:
  explicit Membership(Options options);
  void Loop();
  // Returns when the scheduler has been lost, or refuses.
  Status Belong();
  Status Join(v1::Scheduler::Stub& stub);
  Status Attend(v1::Scheduler::Stub& stub);
  void Tell(const Status& lost);
  bool Wait(Duration time);
  // Null when it is time to end.
  std::unique_ptr<grpc::ClientContext> NewContext();
  void Forget();

  const Options options_;
  std::string told_;  // the last failure in the log
  bool joined_ = false;

  std::mutex mutex_;
  std::condition_variable end_;
  bool ending_ = false;
  grpc::ClientContext* under_way_ = nullptr;
  std::thread thread_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_MEMBERSHIP_H_

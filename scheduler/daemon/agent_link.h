// The agent of one node as the scheduler uses it (proto/stasis/v1/agent.proto).
#ifndef SCHEDULER_DAEMON_AGENT_LINK_H_
#define SCHEDULER_DAEMON_AGENT_LINK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "proto/rpc/endpoint.h"
#include "stasis/v1/agent.pb.h"

namespace stasis::scheduler {

// What starts an operation. `change` is set by who asks.
using AgentRequest = std::variant<v1::RunRequest, v1::PauseRequest, v1::ResumeRequest, v1::CheckpointRequest,
                                  v1::RestoreRequest, v1::MigrateRequest, v1::CancelRequest,
                                  v1::RemoveRequest, v1::CopyImageRequest>;

// Thread-safe. kUnavailable and kTimeout: nothing was heard, and what was asked for may have been done all
// the same; another error is the agent's own. After Stop() all calls that wait return kUnavailable, and later
// ones do so at once.
class AgentLink {
 public:
  virtual ~AgentLink() = default;
  virtual Result<v1::NodeInfo> Info(Duration wait) = 0;
  virtual Result<v1::DevicesResponse> Devices(const std::string& kind) = 0;
  // Of all jobs that run there, over `window`.
  virtual Result<v1::ProgressResponse> Progress(Duration window, Duration wait) = 0;
  // The job as it is, also when it has ended; none where it is not on record.
  virtual Result<std::optional<v1::Job>> Find(const std::string& job) = 0;
  // Those of one job.
  virtual Result<v1::ImagesResponse> Images(const std::string& job) = 0;
  // Tells `event` of everything until the stream breaks; never OK.
  virtual Status Watch(const std::function<void(const v1::WatchEvent&)>& event) = 0;
  virtual Result<v1::Operation> Begin(const AgentRequest& request) = 0;
  // The operation when it has ended. kTimeout after some seconds: it goes on.
  virtual Result<v1::Operation> Await(const std::string& operation) = 0;
  // Asks it to go back to where it began; returns at once. It may be too late, and it may hang all the same.
  virtual Status GiveUp(const std::string& operation) = 0;
  virtual Status SetSchedule(const v1::SetScheduleRequest& request) = 0;
  virtual void Stop() = 0;
};

// Nothing was heard: the same may be asked again.
bool MayBeTriedAgain(const Status& status);

// kInvalidArgument, kPermissionDenied: no agent can be reached like this. Does not wait for the agent.
using ConnectAgent = std::function<Result<std::shared_ptr<AgentLink>>(const std::string& address)>;
Result<std::shared_ptr<AgentLink>> ConnectToAgent(const std::string& address, const TlsFiles& tls);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_AGENT_LINK_H_

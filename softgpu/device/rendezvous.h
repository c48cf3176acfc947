// Rendezvous: brings a checkpoint operation from the process that asks for it to the process that it is
// about, and the answer back, also when the latter has no connection because it is checkpointed. protocol.h
// has the rules. Pure: events come in as calls, what is to be sent goes out as values. Single-threaded.
#ifndef SOFTGPU_DEVICE_RENDEZVOUS_H_
#define SOFTGPU_DEVICE_RENDEZVOUS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "softgpu/device/environment.h"
#include "softgpu/device/protocol.h"
#include "softgpu/device/registry.h"

namespace softgpu {

class Rendezvous {
 public:
  struct Caller {
    ClientId client = 0;
    uint64_t request_id = 0;
    uid_t uid = 0;
  };
  struct Answer {
    ClientId client;
    uint64_t request_id;
    stasis::Result<CheckpointResult> result;
  };
  struct Forward {
    ClientId client;
    CheckpointProcessEvent event;
  };
  struct Output {
    std::vector<Answer> answers;
    std::vector<Forward> forwards;
  };

  // `environment` must outlive this.
  explicit Rendezvous(Environment* environment) : environment_(*environment) {}

  Output Request(const Caller& caller, CheckpointProcessRequest request);
  Output Reply(ClientId client, uint64_t token, const CheckpointResult& result);
  // A process said hello. kNotFound if it has ended already.
  stasis::Result<Output> Connected(pid_t pid, uid_t uid, ClientId client, const std::string& name,
                                   bool resumed);
  // A connection is closed: as a target, and as a caller.
  Output Disconnected(ClientId client);
  Output ProcessExited(pid_t pid);
  // Answers the callers whose time is over.
  Output Tick();
  stasis::MonotonicTime NextTick() const;

  ProcessState StateOf(pid_t pid) const;
  // The checkpointed processes that have no connection.
  std::vector<ProcessInfo> Absent() const;
  bool empty() const { return targets_.empty(); }

 private:
  enum class Phase { kWaitsForProcess, kForwarded, kWaitsForClose };
  struct Operation {
    uint64_t token = 0;
    Caller caller;  // client 0: the caller is gone, the operation still runs
    CheckpointProcessRequest request;
    stasis::MonotonicTime deadline{};
    Phase phase = Phase::kForwarded;
    CheckpointResult result;
  };
  struct Target {
    uid_t uid = 0;
    std::string name;
    ClientId client = 0;  // 0: no connection
    ProcessState state = ProcessState::kRunning;
    bool remembered = false;  // it said itself that it is checkpointed
    std::optional<Operation> operation;
  };
  using Targets = std::map<pid_t, Target>;

  stasis::Status Admit(const Caller& caller, const CheckpointProcessRequest& request);
  stasis::Result<Target*> FindOrWatch(pid_t pid);
  void Start(Target* target, const Caller& caller, CheckpointProcessRequest request, Output* output);
  void ForwardTo(Target* target, Output* output);
  static void Finish(Target* target, stasis::Result<CheckpointResult> result, Output* output);
  static void Lost(Target* target, Output* output);
  Targets::iterator EraseIfUnused(Targets::iterator target);
  Targets::iterator FindClient(ClientId client);

  Environment& environment_;
  Targets targets_;
  uint64_t next_token_ = 1;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_RENDEZVOUS_H_

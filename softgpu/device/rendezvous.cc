#include "softgpu/device/rendezvous.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace softgpu {

using stasis::Errorf;
using stasis::MonotonicTime;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

constexpr uint32_t kDefaultWaitMs = 10 * 60 * 1000;

Status NoSuchProcess(pid_t pid) {
  return Errorf(StatusCode::kNotFound, "process %d is not known to this daemon", pid);
}

}  // namespace

Result<Rendezvous::Target*> Rendezvous::FindOrWatch(pid_t pid) {
  auto found = targets_.find(pid);
  if (found != targets_.end()) return &found->second;
  ASSIGN_OR_RETURN(uid_t uid, environment_.WatchProcess(pid));
  Target& target = targets_[pid];
  target.uid = uid;
  return &target;
}

Rendezvous::Targets::iterator Rendezvous::EraseIfUnused(Targets::iterator target) {
  const Target& t = target->second;
  if (t.client != 0 || t.operation || t.remembered) return std::next(target);
  environment_.UnwatchProcess(target->first);
  return targets_.erase(target);
}

Rendezvous::Targets::iterator Rendezvous::FindClient(ClientId client) {
  return std::find_if(targets_.begin(), targets_.end(),
                      [&](const auto& entry) { return entry.second.client == client; });
}

void Rendezvous::Finish(Target* target, Result<CheckpointResult> result, Output* output) {
  const Caller& caller = target->operation->caller;
  if (caller.client != 0) output->answers.push_back({caller.client, caller.request_id, std::move(result)});
  target->operation.reset();
}

void Rendezvous::ForwardTo(Target* target, Output* output) {
  Operation& operation = *target->operation;
  operation.phase = Phase::kForwarded;
  output->forwards.push_back({target->client, CheckpointProcessEvent{operation.token, operation.request.op,
                                                                     operation.request.timeout_ms,
                                                                     std::move(operation.request.args)}});
}

// Whether the operation can be asked for at all, and by this caller.
Status Rendezvous::Admit(const Caller& caller, const CheckpointProcessRequest& request) {
  if (request.op == CheckpointOp::kRestore) {
    Result<Target*> made = FindOrWatch(request.pid);
    if (!made.ok()) return std::move(made).status();
  }
  auto found = targets_.find(request.pid);
  if (found == targets_.end()) return NoSuchProcess(request.pid);
  const Target& target = found->second;
  if (caller.uid != 0 && caller.uid != target.uid) {
    return Errorf(StatusCode::kPermissionDenied, "process %d belongs to another user", request.pid);
  }
  if (request.op == CheckpointOp::kGetState) {
    return target.client != 0 || target.remembered ? Status() : NoSuchProcess(request.pid);
  }
  if (target.operation) {
    return Errorf(StatusCode::kFailedPrecondition, "another operation on process %d is under way",
                  request.pid);
  }
  if (target.client == 0 && request.op != CheckpointOp::kRestore) {
    return Errorf(StatusCode::kUnavailable, "process %d is checkpointed", request.pid);
  }
  return Status();
}

void Rendezvous::Start(Target* target, const Caller& caller, CheckpointProcessRequest request,
                       Output* output) {
  uint32_t wait_ms = request.wait_ms != 0 ? request.wait_ms : kDefaultWaitMs;
  MonotonicTime deadline = environment_.clock().Now() + std::chrono::milliseconds(wait_ms);
  target->operation =
      Operation{next_token_++, caller, std::move(request), deadline, Phase::kWaitsForProcess, {}};
  if (target->client != 0) ForwardTo(target, output);
}

Rendezvous::Output Rendezvous::Request(const Caller& caller, CheckpointProcessRequest request) {
  Output output;
  pid_t pid = request.pid;
  Status admitted = Admit(caller, request);
  auto found = targets_.find(pid);
  if (!admitted.ok()) {
    output.answers.push_back({caller.client, caller.request_id, std::move(admitted)});
    if (found != targets_.end()) EraseIfUnused(found);
    return output;
  }
  Target& target = found->second;
  bool from_memory = target.operation || target.client == 0;
  if (request.op == CheckpointOp::kGetState && from_memory) {
    output.answers.push_back({caller.client, caller.request_id, CheckpointResult{0, target.state, 0}});
  } else {
    Start(&target, caller, std::move(request), &output);
  }
  return output;
}

Rendezvous::Output Rendezvous::Reply(ClientId client, uint64_t token, const CheckpointResult& result) {
  Output output;
  auto found = FindClient(client);
  if (found == targets_.end()) return output;
  Target& target = found->second;
  // Also the answer to an operation whose caller has given up tells the state.
  target.state = result.state;
  target.remembered = result.state == ProcessState::kCheckpointed;
  if (!target.operation || target.operation->token != token) return output;
  Operation& operation = *target.operation;
  if (operation.phase != Phase::kForwarded) return output;
  // A process that has let go of its state, or has failed to take it back, closes its connection next. Its
  // caller hears of it after that, so that whatever it asks then is not sent to a process on its way out.
  CheckpointOp op = operation.request.op;
  bool closes = target.remembered &&
                (op == CheckpointOp::kRestore || (op == CheckpointOp::kCheckpoint && result.result == 0));
  if (closes) {
    operation.phase = Phase::kWaitsForClose;
    operation.result = result;
  } else {
    Finish(&target, result, &output);
  }
  return output;
}

Result<Rendezvous::Output> Rendezvous::Connected(pid_t pid, uid_t uid, ClientId client,
                                                 const std::string& name, bool resumed) {
  Output output;
  ASSIGN_OR_RETURN(Target * target, FindOrWatch(pid));
  // A second connection of a process must not take over while the first one is being asked.
  if (target->client != 0 && target->operation) return output;
  target->uid = uid;
  target->client = client;
  target->name = name;
  target->state = resumed ? ProcessState::kCheckpointed : ProcessState::kRunning;
  target->remembered = false;
  if (!target->operation) return output;
  if (resumed) {
    ForwardTo(target, &output);
  } else {
    Finish(target, Errorf(StatusCode::kFailedPrecondition, "process %d came back without its state", pid),
           &output);
  }
  return output;
}

// The connection of `target` is closed.
void Rendezvous::Lost(Target* target, Output* output) {
  target->client = 0;
  if (!target->operation) return;
  if (target->operation->phase == Phase::kWaitsForClose) {
    Finish(target, CheckpointResult(target->operation->result), output);
  } else if (target->operation->phase == Phase::kForwarded) {
    Finish(target, Status(StatusCode::kPeerDied, "the process closed its connection before it answered"),
           output);
  }
}

Rendezvous::Output Rendezvous::Disconnected(ClientId client) {
  Output output;
  for (auto at = targets_.begin(); at != targets_.end();) {
    Target& target = at->second;
    if (target.operation && target.operation->caller.client == client) {
      target.operation->caller.client = 0;
      // Nobody waits for the process any more; an operation that it is already at goes on.
      if (target.operation->phase == Phase::kWaitsForProcess) target.operation.reset();
    }
    if (target.client == client) Lost(&target, &output);
    at = EraseIfUnused(at);
  }
  return output;
}

Rendezvous::Output Rendezvous::ProcessExited(pid_t pid) {
  Output output;
  auto found = targets_.find(pid);
  if (found == targets_.end()) return output;
  Target& target = found->second;
  if (target.operation) {
    Finish(&target, Errorf(StatusCode::kPeerDied, "process %d has ended", pid), &output);
  }
  target.client = 0;
  target.remembered = false;
  EraseIfUnused(found);
  return output;
}

Rendezvous::Output Rendezvous::Tick() {
  Output output;
  MonotonicTime now = environment_.clock().Now();
  for (auto at = targets_.begin(); at != targets_.end();) {
    Target& target = at->second;
    if (target.operation && now >= target.operation->deadline) {
      const char* what = target.operation->phase == Phase::kWaitsForProcess ? "did not come back"
                         : target.operation->phase == Phase::kWaitsForClose ? "did not close its connection"
                                                                            : "did not answer";
      Finish(&target, Errorf(StatusCode::kTimeout, "process %d %s in time", at->first, what), &output);
    }
    at = EraseIfUnused(at);
  }
  return output;
}

MonotonicTime Rendezvous::NextTick() const {
  MonotonicTime next = MonotonicTime::max();
  for (const auto& [pid, target] : targets_) {
    if (target.operation) next = std::min(next, target.operation->deadline);
  }
  return next;
}

ProcessState Rendezvous::StateOf(pid_t pid) const {
  auto found = targets_.find(pid);
  return found == targets_.end() ? ProcessState::kRunning : found->second.state;
}

std::vector<ProcessInfo> Rendezvous::Absent() const {
  std::vector<ProcessInfo> absent;
  for (const auto& [pid, target] : targets_) {
    if (target.client != 0 || !target.remembered) continue;
    ProcessInfo info;
    info.pid = pid;
    info.uid = target.uid;
    info.name = target.name;
    info.state = target.state;
    absent.push_back(std::move(info));
  }
  return absent;
}

}  // namespace softgpu

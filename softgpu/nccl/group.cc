#include "softgpu/nccl/group.h"

#include <algorithm>

#include "softgpu/nccl/log.h"

namespace softgpu::nccl {

namespace {

struct PendingOperation {
  CommunicatorPtr communicator;
  Operation operation;
  CUstream stream;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<PendingSetup> setups;
  std::vector<PendingOperation> operations;
  std::vector<std::function<ncclResult_t()>> ends;
};

Group& ThisGroup() {
  thread_local Group group;
  return group;
}

void Discard(const PendingSetup& pending) {
  if (pending.communicator == nullptr) return;
  *pending.handle = nullptr;
  Unregister(pending.communicator);
  pending.communicator->Close(true);
  Forget(pending.communicator);
}

ncclResult_t EndSetups(const std::vector<PendingSetup>& setups, ncclResult_t result) {
  for (const PendingSetup& each : setups) {
    if (each.parent != nullptr && !each.parent->blocking()) each.parent->SetState(ncclSuccess);
    if (each.communicator == nullptr) continue;
    const ncclResult_t began = each.communicator->EndSetup(result);
    if (result == ncclSuccess) result = began;
  }
  return result;
}

ncclResult_t RunInBackground(const std::shared_ptr<SetupRun>& run, std::vector<PendingSetup> setups) {
  for (const PendingSetup& each : setups) {
    if (each.parent != nullptr && !each.parent->blocking()) each.parent->SetState(ncclInProgress);
  }
  auto done = [setups](ncclResult_t result) { EndSetups(setups, result); };
  if (run->RunInBackground(std::move(done))) return ncclInProgress;
  EndSetups(setups, ncclSystemError);
  for (const PendingSetup& each : setups) Discard(each);
  return Fail(ncclSystemError, "no thread for the initialisation");
}

ncclResult_t RunSetups(std::vector<PendingSetup> setups) {
  if (setups.empty()) return ncclSuccess;
  auto run = std::make_shared<SetupRun>();
  bool blocking = true;
  for (const PendingSetup& each : setups) {
    run->Add(each.setup);
    if (each.communicator != nullptr) each.communicator->Await(run, each.setup);
    const Communicator* deciding = each.communicator != nullptr ? each.communicator.get() : each.parent.get();
    blocking &= deciding->blocking();
  }
  if (!blocking) return RunInBackground(run, std::move(setups));
  const ncclResult_t result = EndSetups(setups, run->Run());
  for (const PendingSetup& each : setups) {
    if (each.communicator != nullptr) each.communicator->ForgetSetup();
    if (result != ncclSuccess) Discard(each);
  }
  return result;
}

ncclResult_t LaunchOperations(const std::vector<PendingOperation>& operations) {
  std::vector<std::pair<CommunicatorPtr, Batch>> batches;
  for (const PendingOperation& each : operations) {
    auto batch = std::find_if(batches.begin(), batches.end(),
                              [&](const auto& known) { return known.first == each.communicator; });
    if (batch == batches.end()) batch = batches.insert(batch, {each.communicator, {}});
    batch->second.operations.push_back(each.operation);
    batch->second.streams.push_back(each.stream);
  }
  // Before the first is launched: a kernel of this group that fails at once makes the others unusable.
  for (const auto& [communicator, _] : batches) NCCL_TRY(communicator->Usable());
  for (const auto& [communicator, batch] : batches) NCCL_TRY(communicator->Launch(batch));
  return ncclSuccess;
}

// The group as it was, the thread's being empty again.
ncclResult_t TakeGroup(Group* group) {
  Group& current = ThisGroup();
  if (current.depth == 0) return Fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--current.depth > 0) return ncclSuccess;
  *group = std::exchange(current, Group());
  return ncclSuccess;
}

}  // namespace

ncclResult_t BeginGroup() {
  ThisGroup().depth++;
  return ncclSuccess;
}

ncclResult_t EndGroup() {
  Group group;
  NCCL_TRY(TakeGroup(&group));
  if (group.error != ncclSuccess) {
    for (const PendingSetup& each : group.setups) Discard(each);
    return group.error;
  }
  const ncclResult_t started = RunSetups(std::move(group.setups));
  if (started != ncclSuccess && started != ncclInProgress) return started;
  NCCL_TRY(LaunchOperations(group.operations));
  ncclResult_t result = started;
  for (const auto& end : group.ends) {
    const ncclResult_t ended = end();
    if (result == ncclSuccess) result = ended;
  }
  return result;
}

ncclResult_t DropGroup(uint64_t* bytes) {
  Group group;
  NCCL_TRY(TakeGroup(&group));
  for (const PendingSetup& each : group.setups) Discard(each);
  *bytes = 0;
  for (const PendingOperation& each : group.operations)
    *bytes += each.operation.count * ElementBytes(each.operation.type);
  return group.error;
}

ncclResult_t Submit(PendingSetup setup) {
  Group& group = ThisGroup();
  if (group.depth == 0) return RunSetups({std::move(setup)});
  group.setups.push_back(std::move(setup));
  return ncclSuccess;
}

ncclResult_t Submit(const CommunicatorPtr& communicator, const Operation& operation, CUstream stream) {
  Group& group = ThisGroup();
  if (group.depth == 0) return LaunchOperations({{communicator, operation, stream}});
  group.operations.push_back({communicator, operation, stream});
  return ncclSuccess;
}

ncclResult_t SubmitEnd(std::function<ncclResult_t()> end) {
  Group& group = ThisGroup();
  if (group.depth == 0) return end();
  group.ends.push_back(std::move(end));
  return ncclSuccess;
}

ncclResult_t Note(ncclResult_t result) {
  Group& group = ThisGroup();
  if (group.depth > 0 && group.error == ncclSuccess && result != ncclSuccess && result != ncclInProgress)
    group.error = result;
  return result;
}

}  // namespace softgpu::nccl

// The steps that use the CUDA driver from outside of the task.
#include <algorithm>

#include "ghost/job.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

// The program stands still and its device is idle, so the driver has nothing to wait for.
constexpr uint32_t kLockTimeMs = 30000;

// A process that has asked the driver for its version, say, and never initialised it: one that has loaded a
// framework and works on the processor. The driver does not know it, and there is nothing to carry.
bool HasNoDriver(Gpu& gpu, const HeldMember& held) { return held.devices.empty() && !gpu.UsedBy(held.pid); }

}  // namespace

Result<Gpu*> Job::OpenGpu() {
  if (!gpu_) {
    ASSIGN_OR_RETURN(gpu_, Gpu::Open(config_.driver));
  }
  return gpu_.get();
}

// The driver names devices by UUID when it is told to bring a process back elsewhere, and wants to hear of
// all that it has: in a process of a task, every one of this machine.
Status Job::NotePlacedUuids() {
  for (HeldMember& held : holdings_.members) {
    if (held.strategy != TaskStrategy::kDriverCheckpoint) continue;
    ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
    ASSIGN_OR_RETURN(std::vector<std::string> all, gpu->DeviceUuids());
    held.placed_uuids.clear();
    for (const TaskDevice& device : held.devices) {
      const int place = held.placed.at(device.virtual_ordinal);
      if (static_cast<size_t>(place) >= all.size())
        return Errorf(StatusCode::kNotFound, "there is no device %d; devices here: %zu, from 0 on", place,
                      all.size());
      held.placed_uuids.push_back(all[static_cast<size_t>(place)]);
    }
    for (std::string& uuid : all) {
      if (std::find(held.placed_uuids.begin(), held.placed_uuids.end(), uuid) == held.placed_uuids.end())
        held.placed_uuids.push_back(std::move(uuid));
    }
  }
  return Status();
}

// All processes are locked before one of them is checkpointed: while one is gone, a process that shares
// something with it would not answer the driver any more.
Status Job::Detach() {
  std::vector<const HeldMember*> locked;
  for (HeldMember& held : holdings_.members) {
    if (held.strategy != TaskStrategy::kDriverCheckpoint) continue;
    ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
    // A stopped process would make the driver wait for ever.
    RETURN_IF_ERROR(CheckResponsive(held.pid));
    if (HasNoDriver(*gpu, held)) continue;
    ASSIGN_OR_RETURN(CUprocessState state, gpu->ProcessState(held.pid));
    if (state == CU_PROCESS_STATE_CHECKPOINTED) continue;
    locked.push_back(&held);
    if (state != CU_PROCESS_STATE_RUNNING) continue;
    RETURN_IF_ERROR(gpu->LockProcess(held.pid, kLockTimeMs).WithContext("process " + Named(held.pid)));
  }
  for (const HeldMember* held : locked)
    RETURN_IF_ERROR(gpu_->CheckpointProcess(held->pid).WithContext("process " + Named(held->pid)));
  return Status();
}

Status Job::RestoreDriver(Gpu& gpu, HeldMember& held) {
  ASSIGN_OR_RETURN(std::vector<std::string> here, gpu.DeviceUuids());
  std::vector<std::string> wanted;
  for (const TaskDevice& device : held.devices) {
    const int place = held.placements.at(device.virtual_ordinal);
    if (static_cast<size_t>(place) >= here.size())
      return Errorf(StatusCode::kNotFound, "there is no device %d; devices here: %zu, from 0 on", place,
                    here.size());
    wanted.push_back(here[static_cast<size_t>(place)]);
  }
  // An image of an older kind may know fewer.
  if (held.placed_uuids.size() < wanted.size()) wanted.resize(held.placed_uuids.size());
  const std::vector<DeviceMove> moves = MapDevices(held.placed_uuids, wanted, here);
  if (!moves.empty()) {
    ASSIGN_OR_RETURN(int version, gpu.Version());
    RETURN_IF_ERROR(CheckMovesDevices(version));
  }
  RETURN_IF_ERROR(gpu.RestoreProcess(held.pid, moves));
  if (moves.empty()) return Status();
  for (std::string& uuid : held.placed_uuids) {
    const auto move =
        std::find_if(moves.begin(), moves.end(), [&](const DeviceMove& m) { return m.old_uuid == uuid; });
    if (move != moves.end()) uuid = move->new_uuid;
  }
  return Status();
}

// Up to where the driver's calls of the process still wait.
Status Job::ReattachMember(Gpu& gpu, HeldMember& held, bool* locked) {
  CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
  // After a restore the driver does not know the process before it is told to bring it back.
  if (!restored_) {
    ASSIGN_OR_RETURN(state, gpu.ProcessState(held.pid));
  }
  *locked = state != CU_PROCESS_STATE_RUNNING;
  if (state == CU_PROCESS_STATE_FAILED) {
    op_.answer.remedy = "cancel the task, and restore it from its last image";
    return Status(StatusCode::kDriver, "the driver's own checkpoint has failed beyond repair");
  }
  return state == CU_PROCESS_STATE_CHECKPOINTED ? RestoreDriver(gpu, held) : Status();
}

Status Job::RestoreDrivers(std::vector<const HeldMember*>* locked) {
  for (HeldMember& held : holdings_.members) {
    if (held.strategy != TaskStrategy::kDriverCheckpoint) continue;
    if (HasEnded(held.pid)) {
      if (op_.undoing) continue;
      return Status(StatusCode::kPeerDied, "process " + Named(held.pid) + " of the task has ended");
    }
    ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
    if (HasNoDriver(*gpu, held)) continue;
    bool is_locked = false;
    RETURN_IF_ERROR(ReattachMember(*gpu, held, &is_locked).WithContext("process " + Named(held.pid)));
    if (is_locked) locked->push_back(&held);
  }
  return Status();
}

Status Job::Reattach() {
  std::vector<const HeldMember*> locked;
  Status status = RestoreDrivers(&locked);
  for (const HeldMember* held : locked) {
    // Those that are back already go again: all are detached, or none.
    Status step = status.ok() ? gpu_->UnlockProcess(held->pid) : gpu_->CheckpointProcess(held->pid);
    if (status.ok()) status = std::move(step).WithContext("process " + Named(held->pid));
  }
  return status;
}

Status Job::Store() {
  if (holdings_.bytes() == 0 || residency_ == Residency::kDevice) return Status();
  // A resume that is undone finds the copy that it came from.
  if (!holdings_.in_host() && !holdings_.on_disk()) {
    ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
    if (op_.progress) op_.progress->Begin(RowOf(Step::kStore).what, holdings_.active_bytes());
    CopyContext context{op_.progress, &cancel_};
    if (residency_ == Residency::kHost) {
      Status status = holdings_.CopyToHost(*gpu, context);
      if (status.code() == StatusCode::kResourceExhausted)
        op_.answer.remedy = "pause with --residency disk, or start the pause where more memory may be used";
      RETURN_IF_ERROR(status);
    } else {
      ASSIGN_OR_RETURN(op_.store, OpenStore());
      untidy_ = true;
      RETURN_IF_ERROR(OnDisk(holdings_.CopyToDisk(*gpu, op_.store, config_.name, context)));
    }
  }
  holdings_.DropDevice();
  gpu_.reset();
  return Status();
}

Status Job::LoadMemory() {
  if (holdings_.bytes() == 0 || holdings_.on_device()) return Status();
  if (holdings_.on_disk()) {
    ASSIGN_OR_RETURN(op_.store, OpenStore());
    holdings_.UseStore(op_.store);
  }
  ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
  if (op_.progress) op_.progress->Begin(RowOf(Step::kLoad).what, holdings_.active_bytes());
  Status status = holdings_.CopyToDevice(*gpu, {op_.progress, nullptr});
  if (status.code() == StatusCode::kResourceExhausted) {
    op_.answer.remedy = "free device memory, or name another device with --gpus";
  }
  return status;
}

Status Job::Move() {
  // A copy in host memory or on disk goes to its new device when it is loaded.
  if (holdings_.bytes() == 0 || !holdings_.on_device()) return Status();
  ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
  Status status = holdings_.Move(*gpu, &op_.old_extents);
  if (status.ok()) op_.moved_bytes = holdings_.bytes();
  if (status.code() == StatusCode::kResourceExhausted) op_.answer.remedy = "name a device with room";
  return status;
}

}  // namespace stasis

// The steps that use the CUDA driver from outside of the task.
#include <algorithm>

#include "ghost/job.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

// The program stands still and its device is idle, so the driver has nothing to wait for.
constexpr uint32_t kLockTimeMs = 30000;

}  // namespace

Result<Gpu*> Job::OpenGpu() {
  if (!gpu_) {
    ASSIGN_OR_RETURN(gpu_, Gpu::Open(config_.driver));
  }
  return gpu_.get();
}

// The driver names devices by UUID when it is told to bring a process back elsewhere.
Status Job::NotePlacedUuids() {
  for (HeldMember& held : holdings_.members) {
    if (held.strategy != TaskStrategy::kDriverCheckpoint) continue;
    ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
    held.placed_uuids.clear();
    for (const TaskDevice& device : held.devices) {
      ASSIGN_OR_RETURN(std::string uuid, gpu->DeviceUuid(held.placed.at(device.virtual_ordinal)));
      held.placed_uuids.push_back(std::move(uuid));
    }
  }
  return Status();
}

Status Job::Detach() {
  for (HeldMember& held : holdings_.members) {
    if (held.strategy != TaskStrategy::kDriverCheckpoint) continue;
    ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
    // A stopped process would make the driver wait for ever.
    RETURN_IF_ERROR(CheckResponsive(held.pid));
    ASSIGN_OR_RETURN(CUprocessState state, gpu->ProcessState(held.pid));
    if (state == CU_PROCESS_STATE_RUNNING) {
      RETURN_IF_ERROR(gpu->LockProcess(held.pid, kLockTimeMs).WithContext("process " + Named(held.pid)));
    }
    if (state == CU_PROCESS_STATE_CHECKPOINTED) continue;
    RETURN_IF_ERROR(gpu->CheckpointProcess(held.pid).WithContext("process " + Named(held.pid)));
  }
  return Status();
}

Status Job::ReattachMember(Gpu& gpu, HeldMember& held) {
  CUprocessState state = CU_PROCESS_STATE_CHECKPOINTED;
  // After a restore the driver does not know the process before it is told to bring it back.
  if (!restored_) {
    ASSIGN_OR_RETURN(state, gpu.ProcessState(held.pid));
  }
  if (state == CU_PROCESS_STATE_RUNNING) return Status();
  if (state == CU_PROCESS_STATE_CHECKPOINTED) {
    std::vector<Gpu::UuidPair> moves;
    bool moved = false;
    for (size_t i = 0; i < held.devices.size() && i < held.placed_uuids.size(); ++i) {
      ASSIGN_OR_RETURN(std::string now, gpu.DeviceUuid(held.placements[held.devices[i].virtual_ordinal]));
      moved = moved || now != held.placed_uuids[i];
      moves.push_back({held.placed_uuids[i], std::move(now)});
    }
    if (!moved) moves.clear();
    RETURN_IF_ERROR(gpu.RestoreProcess(held.pid, moves));
    for (size_t i = 0; i < moves.size(); ++i) held.placed_uuids[i] = moves[i].new_uuid;
  }
  return gpu.UnlockProcess(held.pid);
}

Status Job::Reattach() {
  for (HeldMember& held : holdings_.members) {
    if (held.strategy != TaskStrategy::kDriverCheckpoint) continue;
    if (HasEnded(held.pid)) {
      if (op_.undoing) continue;
      return Status(StatusCode::kPeerDied, "process " + Named(held.pid) + " of the task has ended");
    }
    ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
    RETURN_IF_ERROR(ReattachMember(*gpu, held).WithContext("process " + Named(held.pid)));
  }
  return Status();
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
  if (status.code() == StatusCode::kResourceExhausted) op_.answer.remedy = "name a device with room";
  return status;
}

}  // namespace stasis

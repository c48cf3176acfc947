#include "base/task_protocol.h"

namespace stasis {
namespace {

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxMessageText = 1 << 16;

bool Between(uint32_t value, StatusCode low, StatusCode high) {
  return value >= static_cast<uint32_t>(low) && value <= static_cast<uint32_t>(high);
}

Status Finish(const PayloadReader& in, const char* what) { return in.Finish().WithContext(what); }

void WriteDevice(PayloadWriter& out, const TaskDevice& device) {
  out.I32(device.virtual_ordinal);
  out.I32(device.physical_ordinal);
  out.String(device.uuid);
  out.String(device.name);
  out.U64(device.total_memory);
  out.U32(device.compute_capability);
  out.U8(device.used);
}

TaskDevice ReadDevice(PayloadReader& in) {
  TaskDevice device;
  device.virtual_ordinal = in.I32();
  device.physical_ordinal = in.I32();
  device.uuid = in.String(16);
  device.name = in.String(kMaxText);
  device.total_memory = in.U64();
  device.compute_capability = in.U32();
  device.used = in.U8() != 0;
  return device;
}

}  // namespace

const char* TaskStateName(TaskState state) {
  switch (state) {
    case TaskState::kRunning:
      return "running";
    case TaskState::kQuiescing:
      return "quiescing";
    case TaskState::kDrained:
      return "drained";
    case TaskState::kQuiesced:
      return "quiesced";
    case TaskState::kReleased:
      return "released";
    case TaskState::kDeaf:
      return "deaf";
    case TaskState::kAttaching:
      return "attaching";
  }
  return "unknown";
}

const char* TaskStrategyName(TaskStrategy strategy) {
  return strategy == TaskStrategy::kReconstruct ? "reconstruct" : "driver-checkpoint";
}

std::vector<std::byte> Encode(const TaskHello& hello) {
  PayloadWriter out;
  out.U32(kTaskProtocolVersion);
  out.I32(hello.pid);
  out.U8(static_cast<uint8_t>(hello.state));
  out.U8(static_cast<uint8_t>(hello.strategy));
  out.String(hello.driver_path);
  out.I32(hello.driver_version);
  out.U32(hello.generation);
  out.String(hello.failed);
  out.U32(static_cast<uint32_t>(hello.taints.size()));
  for (const TaskTaint& taint : hello.taints) {
    out.String(taint.call);
    out.U8(taint.both);
  }
  out.U32(static_cast<uint32_t>(hello.devices.size()));
  for (const TaskDevice& device : hello.devices) WriteDevice(out, device);
  return out.Take();
}

Result<TaskHello> DecodeTaskHello(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  const uint32_t version = in.U32();
  if (in.ok() && version != kTaskProtocolVersion)
    return Errorf(StatusCode::kUnsupported, "the task speaks protocol version %u, this program version %u",
                  version, kTaskProtocolVersion);
  TaskHello hello;
  hello.pid = in.I32();
  const uint8_t state = in.U8(), strategy = in.U8();
  hello.driver_path = in.String(kMaxText);
  hello.driver_version = in.I32();
  hello.generation = in.U32();
  hello.failed = in.String(kMaxText);
  for (uint32_t n = in.Count(5); n > 0; --n) {
    TaskTaint taint;
    taint.call = in.String(kMaxText);
    taint.both = in.U8() != 0;
    hello.taints.push_back(std::move(taint));
  }
  for (uint32_t n = in.Count(25); n > 0; --n) hello.devices.push_back(ReadDevice(in));
  RETURN_IF_ERROR(Finish(in, "hello of a task"));
  if (state > static_cast<uint8_t>(TaskState::kAttaching) || strategy > 1)
    return Errorf(StatusCode::kCorrupt, "hello of a task: state %u, strategy %u", state, strategy);
  hello.state = static_cast<TaskState>(state);
  hello.strategy = static_cast<TaskStrategy>(strategy);
  return hello;
}

std::vector<std::byte> Encode(const TaskStatus& status) {
  PayloadWriter out;
  out.U8(static_cast<uint8_t>(status.state));
  out.U32(status.threads);
  for (uint64_t value : {status.records, status.allocations, status.allocated_bytes, status.extents,
                         status.extent_bytes, status.host_bytes, status.active_bytes, status.low_bytes,
                         status.high_bytes, status.iterations, status.ignored_notes})
    out.U64(value);
  return out.Take();
}

Result<TaskStatus> DecodeTaskStatus(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  TaskStatus status;
  const uint8_t state = in.U8();
  status.threads = in.U32();
  for (uint64_t* value : {&status.records, &status.allocations, &status.allocated_bytes, &status.extents,
                          &status.extent_bytes, &status.host_bytes, &status.active_bytes, &status.low_bytes,
                          &status.high_bytes, &status.iterations, &status.ignored_notes})
    *value = in.U64();
  RETURN_IF_ERROR(Finish(in, "status of a task"));
  if (state > static_cast<uint8_t>(TaskState::kAttaching))
    return Errorf(StatusCode::kCorrupt, "status of a task: state %u", state);
  status.state = static_cast<TaskState>(state);
  return status;
}

std::vector<std::byte> Encode(const TaskError& error) {
  PayloadWriter out;
  out.U32(static_cast<uint32_t>(error.status.code()));
  out.String(error.status.message().substr(0, kMaxMessageText));
  out.U32(static_cast<uint32_t>(error.blockers.size()));
  for (const TaskBlocker& blocker : error.blockers) {
    out.I32(blocker.tid);
    out.String(blocker.call);
  }
  return out.Take();
}

Result<TaskError> DecodeTaskError(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  const uint32_t code = in.U32();
  std::string message = in.String(kMaxMessageText);
  TaskError error;
  for (uint32_t n = in.Count(8); n > 0; --n) {
    TaskBlocker blocker;
    blocker.tid = in.I32();
    blocker.call = in.String(kMaxText);
    error.blockers.push_back(std::move(blocker));
  }
  RETURN_IF_ERROR(Finish(in, "error of a task"));
  if (!Between(code, StatusCode::kInvalidArgument, StatusCode::kInternal))
    return Errorf(StatusCode::kCorrupt, "error of a task: code %u", code);
  error.status = Status(static_cast<StatusCode>(code), std::move(message));
  return error;
}

std::vector<std::byte> Encode(const std::vector<TaskExtent>& extents) {
  PayloadWriter out;
  out.U32(static_cast<uint32_t>(extents.size()));
  for (const TaskExtent& extent : extents) {
    out.U64(extent.id);
    out.I32(extent.device);
    out.U64(extent.address);
    out.U64(extent.size);
    out.U32(extent.traits);
    out.U64(extent.share);
  }
  return out.Take();
}

Result<std::vector<TaskExtent>> DecodeTaskExtents(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  std::vector<TaskExtent> extents(in.Count(40));
  for (TaskExtent& extent : extents) {
    extent.id = in.U64();
    extent.device = in.I32();
    extent.address = in.U64();
    extent.size = in.U64();
    extent.traits = in.U32();
    extent.share = in.U64();
    const bool sane = extent.size != 0 && extent.address + extent.size >= extent.address &&
                      extent.device >= 0 && (extent.traits & ~kAllTraits) == 0;
    if (in.ok() && !sane)
      return Errorf(StatusCode::kCorrupt, "device memory of a task: %llu bytes at 0x%llx of device %d",
                    static_cast<unsigned long long>(extent.size),
                    static_cast<unsigned long long>(extent.address), extent.device);
  }
  RETURN_IF_ERROR(Finish(in, "device memory of a task"));
  return extents;
}

std::vector<std::byte> Encode(const std::vector<TaskRange>& ranges) {
  PayloadWriter out;
  out.U32(static_cast<uint32_t>(ranges.size()));
  for (const TaskRange& range : ranges) {
    out.U64(range.address);
    out.U64(range.size);
  }
  return out.Take();
}

Result<std::vector<TaskRange>> DecodeTaskRanges(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  std::vector<TaskRange> ranges(in.Count(16));
  uint64_t end = 0;
  for (TaskRange& range : ranges) {
    range.address = in.U64();
    range.size = in.U64();
    const bool sane = range.size != 0 && range.address + range.size > range.address && range.address >= end;
    if (in.ok() && !sane)
      return Errorf(StatusCode::kCorrupt, "active memory of a task: %llu bytes at 0x%llx",
                    static_cast<unsigned long long>(range.size),
                    static_cast<unsigned long long>(range.address));
    end = range.address + range.size;
  }
  RETURN_IF_ERROR(Finish(in, "active memory of a task"));
  return ranges;
}

std::vector<std::byte> Encode(const TaskProgress& progress) {
  PayloadWriter out;
  out.U64(progress.iterations);
  out.U64(progress.launches);
  return out.Take();
}

std::vector<std::byte> Encode(const TaskClose& close) {
  PayloadWriter out;
  out.U32(close.deadline_ms);
  out.U32(close.wait_low_ms);
  return out.Take();
}

Result<TaskProgress> DecodeTaskProgress(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  TaskProgress progress;
  progress.iterations = in.U64();
  progress.launches = in.U64();
  RETURN_IF_ERROR(Finish(in, "progress"));
  return progress;
}

Result<TaskClose> DecodeTaskClose(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  TaskClose close;
  close.deadline_ms = in.U32();
  close.wait_low_ms = in.U32();
  RETURN_IF_ERROR(Finish(in, "request to stand still"));
  return close;
}

std::vector<std::byte> Encode(const TaskQuiesced& quiesced) {
  PayloadWriter out;
  out.U64(quiesced.active_bytes);
  out.U64(quiesced.low_bytes);
  out.U64(quiesced.high_bytes);
  out.U32(quiesced.waited_ms);
  out.U8(quiesced.at_low);
  return out.Take();
}

Result<TaskQuiesced> DecodeTaskQuiesced(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  TaskQuiesced quiesced;
  quiesced.active_bytes = in.U64();
  quiesced.low_bytes = in.U64();
  quiesced.high_bytes = in.U64();
  quiesced.waited_ms = in.U32();
  quiesced.at_low = in.U8() != 0;
  RETURN_IF_ERROR(Finish(in, "answer of a task that stands still"));
  return quiesced;
}

std::vector<std::byte> Encode(const TaskResume& resume) {
  PayloadWriter out;
  out.U32(static_cast<uint32_t>(resume.held.size()));
  for (const TaskResume::Held& held : resume.held) {
    out.I32(held.virtual_ordinal);
    out.U64(held.bytes);
  }
  return out.Take();
}

Result<TaskResume> DecodeTaskResume(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  TaskResume resume;
  for (uint32_t n = in.Count(12); n > 0; --n) {
    TaskResume::Held held;
    held.virtual_ordinal = in.I32();
    held.bytes = in.U64();
    resume.held.push_back(held);
  }
  RETURN_IF_ERROR(Finish(in, "request to go on"));
  return resume;
}

std::vector<std::byte> Encode(const TaskAttach& attach) {
  PayloadWriter out;
  out.U8(attach.restored);
  out.String(attach.driver_path);
  out.U32(static_cast<uint32_t>(attach.placements.size()));
  for (const TaskAttach::Placement& placement : attach.placements) {
    out.I32(placement.virtual_ordinal);
    out.I32(placement.physical_ordinal);
  }
  return out.Take();
}

Result<TaskAttach> DecodeTaskAttach(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  TaskAttach attach;
  attach.restored = in.U8() != 0;
  attach.driver_path = in.String(kMaxText);
  for (uint32_t n = in.Count(8); n > 0; --n) {
    TaskAttach::Placement placement;
    placement.virtual_ordinal = in.I32();
    placement.physical_ordinal = in.I32();
    attach.placements.push_back(placement);
  }
  RETURN_IF_ERROR(Finish(in, "attach request"));
  return attach;
}

}  // namespace stasis

#include "intercept/task_server.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/payload.h"
#include "base/raw_log.h"
#include "intercept/capture_streams.h"
#include "intercept/captures.h"
#include "intercept/device_files.h"
#include "intercept/gate.h"
#include "intercept/libraries/library.h"
#include "intercept/libraries/library_gate.h"
#include "intercept/low_point.h"
#include "intercept/nvml.h"
#include "intercept/own_descriptors.h"
#include "intercept/process.h"
#include "intercept/taint.h"
#include "intercept/thread_ends.h"
#include "intercept/visible_devices.h"
#include "replay/pause.h"
#include "vmm/active_memory.h"
#include "vmm/device_map.h"
#include "vmm/environment.h"
#include "vmm/held_memory.h"
#include "vmm/pause.h"
#include "vmm/real_driver.h"

namespace stasis {
namespace {

// For threads of the libraries to end their last calls, where no other deadline is given.
constexpr std::chrono::seconds kLibraryTime(10);

// An undo goes on past errors; they are in the log for whoever asks why the task cannot go on.
void LogIfError(const char* what, const Status& status) {
  if (!status.ok())
    RawLog(LogLevel::kError, "%s: %.*s", what, static_cast<int>(status.message().size()),
           status.message().data());
}

Result<uint32_t> DecodeU32(const Message& request) {
  PayloadReader reader(request.payload);
  const uint32_t value = reader.U32();
  RETURN_IF_ERROR(reader.Finish());
  return value;
}

Result<TaskStrategy> DecodeStrategy(const Message& request) {
  PayloadReader reader(request.payload);
  const uint8_t value = reader.U8();
  RETURN_IF_ERROR(reader.Finish());
  if (value > static_cast<uint8_t>(TaskStrategy::kDriverCheckpoint))
    return Errorf(StatusCode::kCorrupt, "no strategy %u", value);
  return static_cast<TaskStrategy>(value);
}

Message MakeError(uint64_t request_id, Status status, std::vector<TaskBlocker> blockers) {
  Message message;
  message.type = static_cast<uint32_t>(TaskMessage::kError);
  message.request_id = request_id;
  message.payload = Encode(TaskError{std::move(status), std::move(blockers)});
  return message;
}

int DriverVersion() {
  int version = 0;
  return DriverIsOpen() && Driver().cuDriverGetVersion(&version) == CUDA_SUCCESS ? version : 0;
}

void HoldMemory(const TaskResume& resume, Fd ask, Fd given) {
  std::map<int, uint64_t> bytes;
  for (const TaskResume::Held& held : resume.held) bytes[held.virtual_ordinal] += held.bytes;
  ask = MoveToOwnFds(std::move(ask));
  given = MoveToOwnFds(std::move(given));
  NoteOwnFd(OwnFd::kAsk, ask.get());
  NoteOwnFd(OwnFd::kGiven, given.get());
  vmm::HeldMemory::Get().Hold(std::move(bytes), std::move(ask), std::move(given));
}

void ForgetHeldMemory(bool ghost_gone = false) {
  NoteOwnFd(OwnFd::kAsk, -1);
  NoteOwnFd(OwnFd::kGiven, -1);
  if (ghost_gone) vmm::HeldMemory::Get().Abandon();
  vmm::HeldMemory::Get().Forget();
}

void EndDriver() {
  const ThreadEndHold hold;
  CloseDriver();
}

void OpenGates() {
  vmm::ActiveMemory::Get().Thaw();
  OpenGate();
  libraries::OpenLibraryGate();
}

}  // namespace

Message TaskServer::Answer(Message request) {
  const uint64_t request_id = request.request_id;
  Reply reply = Dispatch(request);
  if (!reply.status.ok()) return MakeError(request_id, std::move(reply.status), std::move(reply.blockers));
  Message message;
  message.type = static_cast<uint32_t>(TaskMessage::kOk);
  message.request_id = request_id;
  message.payload = std::move(reply.payload);
  message.fds = std::move(reply.fds);
  return message;
}

TaskServer::Reply TaskServer::Dispatch(Message& request) {
  switch (static_cast<TaskMessage>(request.type)) {
    case TaskMessage::kHello:
      return Hello(request);
    case TaskMessage::kStatus:
      return ReportStatus();
    case TaskMessage::kProgress:
      return ReportProgress();
    case TaskMessage::kClose:
      return Close(request);
    case TaskMessage::kCut:
      return Cut(request);
    case TaskMessage::kDrain:
      return Drain(request);
    case TaskMessage::kHold:
      return Hold();
    case TaskMessage::kGiveUp:
      return GiveUp();
    case TaskMessage::kComms:
      return Comms();
    case TaskMessage::kRejoin:
      return Rejoin(request);
    case TaskMessage::kHandover:
      return Handover(request);
    case TaskMessage::kRelease:
      return ReleaseDriver(request);
    case TaskMessage::kPrepareDump:
      return PrepareDump();
    case TaskMessage::kAttach:
      return Attach(request);
    case TaskMessage::kImport:
      return Import(request);
    case TaskMessage::kRebuild:
      return Rebuild();
    case TaskMessage::kResume:
      return Resume(request);
    case TaskMessage::kActive:
      return Active(request);
    case TaskMessage::kSnapshotDone:
      return SnapshotDone();
    case TaskMessage::kOk:
    case TaskMessage::kError:
      break;
  }
  return {Errorf(StatusCode::kInvalidArgument, "no request %u", request.type), {}, {}, {}};
}

// The library gate is shut, and the program has not been let go on since for the sake of a capture.
Status TaskServer::ExpectShut() const {
  RETURN_IF_ERROR(Expect(TaskState::kQuiescing));
  if (libraries::LibraryGateIsClosed()) return {};
  return Status(StatusCode::kFailedPrecondition, "the gate is open");
}

Status TaskServer::Expect(TaskState state) const {
  if (state_ == state) return {};
  return Errorf(StatusCode::kFailedPrecondition, "the process is %s, not %s", TaskStateName(state_),
                TaskStateName(state));
}

void TaskServer::GhostGone() {
  ForgetHeldMemory(/*ghost_gone=*/true);
  switch (state_) {
    case TaskState::kQuiescing:
      return Run();
    case TaskState::kDrained:
      return hold_ ? void() : Run();
    case TaskState::kQuiesced:
      return hold_ || libraries::LibrariesNeedRejoin() ? void() : RebuildAndRun();
    case TaskState::kAttaching:
      return BackToReleased();
    case TaskState::kRunning:
    case TaskState::kReleased:
    case TaskState::kDeaf:
      return;
  }
}

void TaskServer::Wake() { state_ = TaskState::kReleased; }

void TaskServer::Run() {
  state_ = TaskState::kRunning;
  hold_ = false;
  extents_mark_.reset();
  active_ = {};
  vmm::SetSharing(vmm::Sharing::kAll);
  OpenGates();
}

void TaskServer::RebuildAndRun() {
  Status status;
  {
    const libraries::LibraryWork work;
    status = libraries::RebuildLibraries();
  }
  if (!status.ok()) {
    LogIfError("make the libraries' objects again", status);
    Taint(std::string(status.message()).c_str(), true);
  }
  Run();
}

TaskServer::Reply TaskServer::Hello(const Message& request) {
  Result<uint32_t> version = DecodeU32(request);
  if (!version.ok()) return {std::move(version).status(), {}, {}, {}};
  if (*version != kTaskProtocolVersion)
    return {Errorf(StatusCode::kUnsupported, "the ghost speaks protocol %u, this process %u", *version,
                   kTaskProtocolVersion),
            {},
            {},
            {}};
  TaskHello hello;
  hello.pid = getpid();
  hello.state = state_;
  hello.strategy = ChosenStrategy();
  hello.driver_path = DriverPath();
  hello.driver_version = DriverVersion();
  hello.generation = replay::Generation();
  if (state_ == TaskState::kDrained || state_ == TaskState::kQuiesced) hello.failed = replay::BrokenContext();
  hello.taints = Taints();
  hello.devices = VisibleDevices();
  return {{}, Encode(hello), {}, {}};
}

TaskServer::Reply TaskServer::ReportStatus() {
  TaskStatus status;
  status.state = state_;
  status.threads = GateThreadCount();
  replay::FillStatus(&status);
  vmm::FillStatus(&status);
  return {{}, Encode(status), {}, {}};
}

// Takes no lock that a call of the program holds for longer than it takes to note something.
TaskServer::Reply TaskServer::ReportProgress() {
  return {{}, Encode(TaskProgress{vmm::ActiveMemory::Get().Iterations(), LaunchCount()}), {}, {}};
}

TaskServer::Reply TaskServer::Close(const Message& request) {
  Result<TaskClose> close = DecodeTaskClose(request.payload);
  if (!close.ok()) return {std::move(close).status(), {}, {}, {}};
  if (state_ != TaskState::kQuiescing) {
    if (Status status = Expect(TaskState::kRunning); !status.ok()) return {std::move(status), {}, {}, {}};
    state_ = TaskState::kQuiescing;
    if (Status status = StopAtLowPoint(*close); !status.ok()) {
      Run();
      return {std::move(status), {}, {}, {}};
    }
  }
  Reply reply;
  CutReport report;
  reply.status =
      ShutLibraries(Deadline::After(std::chrono::milliseconds(close->deadline_ms)), &report, &reply.blockers);
  reply.payload = Encode(report);
  return reply;
}

Status TaskServer::StopAtLowPoint(const TaskClose& close) {
  stopped_ = {};
  if (close.wait_low_ms != 0) {
    const MonotonicTime start = Clock::Real().Now();
    ASSIGN_OR_RETURN(
        stopped_.at_low,
        WaitForLowPoint(connection_, Deadline::After(std::chrono::milliseconds(close.wait_low_ms))));
    stopped_.waited_ms = static_cast<uint32_t>((Clock::Real().Now() - start) / std::chrono::milliseconds(1));
  }
  const auto learned = vmm::ActiveMemory::Get().Learn().value_or(vmm::MemoryCycle::Learned());
  stopped_.low_bytes = learned.low;
  stopped_.high_bytes = learned.high;
  return {};
}

Status TaskServer::ShutLibraries(const Deadline& deadline, CutReport* report,
                                 std::vector<TaskBlocker>* blockers) {
  // One that has begun as the gate was shut at the low point; only the program can end it.
  if (CapturesInProgress() != 0) {
    stopped_.at_low = false;
    OpenGates();
  }
  if (!WaitForCaptures(deadline)) {
    *blockers = CaptureBlockers();
    return Status(StatusCode::kTimeout, "the program is capturing a stream and does not end it");
  }
  RETURN_IF_ERROR(libraries::ShutLibraryGate());
  ASSIGN_OR_RETURN(*report, libraries::AdvanceLibraries({}, Duration::zero(), deadline));
  return {};
}

TaskServer::Reply TaskServer::Cut(const Message& request) {
  Result<TaskCut> cut = DecodeTaskCut(request.payload);
  if (!cut.ok()) return {std::move(cut).status(), {}, {}, {}};
  if (Status status = ExpectShut(); !status.ok()) return {std::move(status), {}, {}, {}};
  Result<CutReport> report =
      libraries::AdvanceLibraries(cut->targets, std::chrono::milliseconds(cut->quiet_ms),
                                  Deadline::After(std::chrono::milliseconds(cut->deadline_ms)));
  if (!report.ok()) return {std::move(report).status(), {}, {}, {}};
  return {{}, Encode(*report), {}, {}};
}

TaskServer::Reply TaskServer::Drain(const Message& request) {
  Result<uint32_t> deadline_ms = DecodeU32(request);
  if (!deadline_ms.ok()) return {std::move(deadline_ms).status(), {}, {}, {}};
  Reply reply;
  reply.status = ExpectShut();
  if (!reply.status.ok()) return reply;
  reply.status = StandStill(Deadline::After(std::chrono::milliseconds(*deadline_ms)), &reply.blockers);
  if (!reply.status.ok()) return reply;
  state_ = TaskState::kDrained;
  reply.payload = Encode(libraries::ReportCut());
  return reply;
}

Status TaskServer::StandStill(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  RETURN_IF_ERROR(libraries::AwaitLibraryCalls(deadline, blockers));
  RETURN_IF_ERROR(CloseGate(deadline, blockers));
  // It has begun before the gate was closed; only the program can end it.
  if (CapturesInProgress() != 0) {
    stopped_.at_low = false;
    OpenGates();
    return Status(StatusCode::kUnavailable, "the program has begun to capture a stream");
  }
  RETURN_IF_ERROR(replay::Drain(deadline, blockers));
  return libraries::CheckLibraries();
}

TaskServer::Reply TaskServer::Hold() {
  Reply reply;
  reply.status = Expect(TaskState::kDrained);
  if (reply.status.ok()) hold_ = true;
  return reply;
}

TaskServer::Reply TaskServer::GiveUp() {
  Reply reply;
  reply.status = Expect(TaskState::kDrained);
  if (!reply.status.ok()) return reply;
  state_ = TaskState::kQuiesced;
  reply.status = GiveUpLibraries(&reply.blockers);
  if (!reply.status.ok()) return reply;
  SettleMemory();
  stopped_.active_bytes = 0;
  if (Result<std::vector<TaskRange>> ranges = vmm::ActiveRanges(); ranges.ok())
    for (const TaskRange& range : *ranges) stopped_.active_bytes += range.size;
  reply.payload = Encode(stopped_);
  return reply;
}

// Threads of the libraries may be inside of the driver when the last of the objects has gone.
Status TaskServer::GiveUpLibraries(std::vector<TaskBlocker>* blockers) {
  {
    const libraries::LibraryWork work;
    RETURN_IF_ERROR(libraries::GiveUpLibraries());
  }
  RETURN_IF_ERROR(CloseGate(Deadline::After(kLibraryTime), blockers));
  libraries_gone_ = true;
  return {};
}

// In a process that was attached, what its libraries have made since is not in the memory that the ghost
// holds.
void TaskServer::SettleMemory() {
  if (extents_mark_) return vmm::DropFreeSince(*extents_mark_);
  vmm::Settle();
  extents_mark_ = vmm::MarkExtents();
  vmm::ActiveMemory::Get().Freeze();
}

TaskServer::Reply TaskServer::Comms() {
  if (Status status = Expect(TaskState::kQuiesced); !status.ok()) return {std::move(status), {}, {}, {}};
  const libraries::LibraryWork work;
  Result<std::vector<CommReport>> comms = libraries::ReportComms();
  if (!comms.ok()) return {std::move(comms).status(), {}, {}, {}};
  return {{}, Encode(*comms), {}, {}};
}

TaskServer::Reply TaskServer::Rejoin(const Message& request) {
  Result<CommRejoin> rejoin = DecodeCommRejoin(request.payload);
  if (!rejoin.ok()) return {std::move(rejoin).status(), {}, {}, {}};
  Reply reply;
  reply.status = Expect(TaskState::kQuiesced);
  if (!reply.status.ok()) return reply;
  libraries_gone_ = false;
  {
    const libraries::LibraryWork work;
    reply.status = libraries::RejoinLibraries(*rejoin).WithContext("make the libraries' objects again");
  }
  if (reply.status.ok()) {
    state_ = TaskState::kDrained;
    return reply;
  }
  std::vector<TaskBlocker> blockers;
  Status again = GiveUpLibraries(&blockers);
  if (again.ok()) SettleMemory();
  LogIfError("give the libraries' objects up again", again);
  return reply;
}

TaskServer::Reply TaskServer::Handover(const Message& request) {
  Result<uint32_t> first = DecodeU32(request);
  if (!first.ok()) return {std::move(first).status(), {}, {}, {}};
  if (Status status = Expect(TaskState::kQuiesced); !status.ok()) return {std::move(status), {}, {}, {}};
  vmm::SetSharing(vmm::Sharing::kLater);
  const std::vector<TaskExtent> all = vmm::Extents();
  Reply reply;
  std::vector<TaskExtent> batch;
  for (size_t i = *first; i < all.size() && batch.size() < kTaskBatch; ++i) {
    Result<Fd> fd = vmm::ExportExtent(all[i]);
    if (!fd.ok()) return {std::move(fd).status().WithContext("export device memory"), {}, {}, {}};
    batch.push_back(all[i]);
    reply.fds.push_back(std::move(*fd));
  }
  reply.payload = Encode(batch);
  return reply;
}

TaskServer::Reply TaskServer::Active(const Message& request) {
  Result<uint32_t> first = DecodeU32(request);
  if (!first.ok()) return {std::move(first).status(), {}, {}, {}};
  if (Status status = Expect(TaskState::kQuiesced); !status.ok()) return {std::move(status), {}, {}, {}};
  if (*first == 0) {
    Result<std::vector<TaskRange>> ranges = vmm::ActiveRanges();
    if (!ranges.ok()) return {std::move(ranges).status(), {}, {}, {}};
    active_ = *std::move(ranges);
  }
  const auto begin = active_.begin() + std::min<ptrdiff_t>(*first, std::ssize(active_));
  const auto end = begin + std::min<ptrdiff_t>(kTaskRangeBatch, active_.end() - begin);
  return {{}, Encode(std::vector<TaskRange>(begin, end)), {}, {}};
}

TaskServer::Reply TaskServer::ReleaseDriver(const Message& request) {
  Result<TaskStrategy> strategy = DecodeStrategy(request);
  if (!strategy.ok()) return {std::move(strategy).status(), {}, {}, {}};
  if (Status status = Expect(TaskState::kQuiesced); !status.ok()) return {std::move(status), {}, {}, {}};
  return {LetGo(*strategy), {}, {}, {}};
}

// Up to vmm::Release() nothing has changed and the program could go on; from there on the way back is that of
// every other pause: attach, import, rebuild.
Status TaskServer::LetGo(TaskStrategy strategy) {
  if (!libraries_gone_)
    return Status(StatusCode::kFailedPrecondition, "the libraries' objects have not been given up");
  const bool reconstruct = strategy == TaskStrategy::kReconstruct;
  RETURN_IF_ERROR(CheckTaints(strategy));
  RETURN_IF_ERROR(CheckVisibleDevices(strategy));
  RETURN_IF_ERROR(vmm::CheckReleasable(strategy));
  if (reconstruct) {
    RETURN_IF_ERROR(replay::CheckRebuildable());
    RETURN_IF_ERROR(replay::Save().WithContext("save the driver's state"));
  }
  strategy_ = strategy;
  state_ = TaskState::kReleased;
  Status first = vmm::Release(strategy).WithContext("release device memory");
  if (!reconstruct) return first;
  Status torn_down = replay::Teardown().WithContext("tear down the driver's objects");
  EndDriver();
  LogIfError("hold the addresses of device memory", vmm::HoldReleased());
  return first.ok() ? torn_down : first;
}

TaskServer::Reply TaskServer::PrepareDump() {
  Reply reply;
  reply.status = Expect(TaskState::kReleased);
  if (!reply.status.ok()) return reply;
  ForgetHeldMemory();
  // A driver that carries NVML has closed its files, and its functions are not to be called before it is
  // back.
  if (HoldsDeviceFiles()) LetGoOfNvml();
  state_ = TaskState::kDeaf;
  return reply;
}

TaskServer::Reply TaskServer::Attach(const Message& request) {
  Result<TaskAttach> attach = DecodeTaskAttach(request.payload);
  if (!attach.ok()) return {std::move(attach).status(), {}, {}, {}};
  if (Status status = Expect(TaskState::kReleased); !status.ok()) return {std::move(status), {}, {}, {}};
  state_ = TaskState::kAttaching;
  Reply reply;
  reply.status = Reattach(*attach);
  if (!reply.status.ok()) {
    BackToReleased();
    return reply;
  }
  // What the ghost keeps of its device memory for a snapshot, only the next ghost can tell.
  hold_ = true;
  return reply;
}

Status TaskServer::Reattach(const TaskAttach& attach) {
  if (attach.restored) RegisterGateBarrier();
  TakeUpNvml();
  if (!attach.placements.empty()) RETURN_IF_ERROR(PlaceDevices(attach.placements));
  KeepDeviceIdentities();
  if (strategy_ == TaskStrategy::kDriverCheckpoint) return {};
  const AllDevicesVisible visible;
  RETURN_IF_ERROR(OpenDriver(attach.driver_path));
  return replay::RebuildContexts().WithContext("make the contexts");
}

void TaskServer::BackToReleased() {
  LogIfError("release device memory again", vmm::Release(strategy_));
  if (strategy_ == TaskStrategy::kReconstruct) {
    LogIfError("tear down the driver's objects again", replay::Teardown());
    EndDriver();
    LogIfError("hold the addresses of device memory", vmm::HoldReleased());
  }
  state_ = TaskState::kReleased;
}

TaskServer::Reply TaskServer::Import(Message& request) {
  if (Status status = Expect(TaskState::kAttaching); !status.ok()) return {std::move(status), {}, {}, {}};
  Reply reply;
  Result<std::vector<TaskExtent>> extents = DecodeTaskExtents(request.payload);
  if (!extents.ok()) {
    reply.status = std::move(extents).status();
  } else if (extents->size() != request.fds.size()) {
    reply.status = Errorf(StatusCode::kInvalidArgument, "%zu extents with %zu descriptors", extents->size(),
                          request.fds.size());
  }
  for (size_t i = 0; reply.status.ok() && i < extents->size(); ++i) {
    reply.status = vmm::ImportExtent((*extents)[i], std::move(request.fds[i]));
    // Free memory that was handed over, and given back in an attach that came to nothing.
    const bool given_back = extents_mark_ && (*extents)[i].id < *extents_mark_;
    if (reply.status.code() == StatusCode::kNotFound && given_back) reply.status = {};
  }
  if (!reply.status.ok()) BackToReleased();
  return reply;
}

TaskServer::Reply TaskServer::Rebuild() {
  Reply reply;
  reply.status = Expect(TaskState::kAttaching);
  if (!reply.status.ok()) return reply;
  reply.status = vmm::Reattach(strategy_).WithContext("attach memory");
  if (reply.status.ok() && strategy_ == TaskStrategy::kReconstruct)
    reply.status = replay::RebuildObjects().WithContext("rebuild the driver's objects");
  if (reply.status.ok()) {
    state_ = TaskState::kQuiesced;
  } else {
    BackToReleased();
  }
  return reply;
}

TaskServer::Reply TaskServer::Resume(Message& request) {
  Result<TaskResume> resume = DecodeTaskResume(request.payload);
  if (!resume.ok()) return {std::move(resume).status(), {}, {}, {}};
  const bool standing = state_ == TaskState::kDrained || state_ == TaskState::kQuiescing;
  if (!standing) return {Expect(TaskState::kDrained), {}, {}, {}};
  if (request.fds.size() != (resume->held.empty() ? 0 : 2))
    return {Errorf(StatusCode::kInvalidArgument, "held memory with %zu descriptors", request.fds.size()),
            {},
            {},
            {}};
  if (!resume->held.empty()) HoldMemory(*resume, std::move(request.fds[0]), std::move(request.fds[1]));
  Run();
  return {};
}

TaskServer::Reply TaskServer::SnapshotDone() {
  Reply reply;
  reply.status = Expect(TaskState::kRunning);
  if (reply.status.ok()) ForgetHeldMemory();
  return reply;
}

}  // namespace stasis

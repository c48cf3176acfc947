// The steps that speak to the processes of the task.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "base/files.h"
#include "base/placement_line.h"
#include "base/unix_socket.h"
#include "ghost/gpu.h"
#include "ghost/job.h"
#include "ghost/manifest.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

// Answers that need no waiting for the program.
constexpr std::chrono::seconds kPromptTime(30);
// Rebuilding makes contexts, loads modules, maps memory.
constexpr std::chrono::seconds kRebuildTime(300);
constexpr size_t kMaxRanges = 1 << 24;

template <typename Writer>
std::vector<std::byte> Payload(const Writer& write) {
  PayloadWriter out;
  write(out);
  return out.Take();
}

// Whether the control thread of a process sleeps until its ghost wakes it; `unknown`: what is said where
// there is none, or the kernel does not show system calls.
bool IsWaitingForWake(pid_t pid, bool unknown) {
  constexpr char kSigtimedwait[] = "128 ";  // rt_sigtimedwait on x86-64
  for (pid_t tid : ThreadsOf(pid)) {
    Result<ProcStat> stat = ReadThreadStat(pid, tid);
    if (!stat.ok() || stat->name != kTaskThreadName) continue;
    Result<std::string> call =
        ReadFile("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/syscall", 4096);
    return call.ok() ? call->starts_with(kSigtimedwait) : unknown;
  }
  return unknown;
}

// A line for each device: those that `first` sees, in its order, then those that only others see. `here`:
// UUIDs of this machine's devices; empty where they are not known.
std::string PlacesText(const HeldMember& first, const std::vector<HeldMember>& members,
                       const std::vector<std::string>& here) {
  std::string text;
  std::set<std::string> known;
  auto add = [&](const HeldMember& member) {
    for (const TaskDevice& device : member.devices) {
      if (!known.insert(device.uuid).second) continue;
      const int place = member.placements.at(device.virtual_ordinal);
      const bool known_here = static_cast<size_t>(place) < here.size();
      text += PlacementLine(device.uuid, place, known_here ? here[static_cast<size_t>(place)] : "");
    }
  };
  add(first);
  for (const HeldMember& member : members) add(member);
  return text;
}

bool MapsDriver(const std::vector<ProcMap>& maps) {
  return std::any_of(maps.begin(), maps.end(),
                     [](const ProcMap& map) { return map.path.find("/libcuda.so.") != std::string::npos; });
}

// The control thread closes its sockets after its answer; there is no event for having done so.
Status AwaitDeaf(pid_t pid) {
  Deadline deadline = Deadline::After(kPromptTime);
  // CRIU finds what is still open.
  while (!IsWaitingForWake(pid, /*unknown=*/true)) {
    if (deadline.Expired())
      return Status(StatusCode::kTimeout, "process " + Named(pid) + " does not close its sockets");
    (void)poll(nullptr, 0, 1);
  }
  return Status();
}

}  // namespace

Status Job::Stranded() {
  stranded_ = true;
  op_.answer.remedy = "`stasis cancel " + config_.name + "` ends it; `stasis restore " + config_.name +
                      "` then brings it back from its last image";
  return Status(
      StatusCode::kFailedPrecondition,
      "task " + config_.name + " is held by a ghost that is gone, and so is what it held of the task");
}

// Nobody can tell from its record: that is written after what it tells of, and may be out of date.
Status Job::CheckNotStranded() {
  stranded_ = false;
  if (IsFrozenTree(process_.init_pid, config_.name)) return Stranded();
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  for (pid_t pid : tree) {
    if (IsWaitingForWake(pid, /*unknown=*/false)) return Stranded();
  }
  return Status();
}

bool Job::IsMember(pid_t pid) const {
  return std::any_of(holdings_.members.begin(), holdings_.members.end(),
                     [pid](const HeldMember& held) { return held.pid == pid; });
}

TaskStrategy Job::StrategyOf(const Member& member) const {
  if (config_.strategy == TaskStrategyName(TaskStrategy::kReconstruct)) return TaskStrategy::kReconstruct;
  if (config_.strategy == TaskStrategyName(TaskStrategy::kDriverCheckpoint))
    return TaskStrategy::kDriverCheckpoint;
  return member.hello().strategy;
}

Status Job::CheckCarriable(const Member& member, TaskStrategy strategy, TaskState expected) {
  const TaskHello& hello = member.hello();
  std::string who = "process " + Named(member.pid());
  if (!hello.failed.empty()) {
    op_.answer.remedy = "the program has to end; restore it from its last image";
    return Status(StatusCode::kFailedPrecondition, who + " has already failed with " + hello.failed);
  }
  for (const TaskTaint& taint : hello.taints) {
    if (!taint.both && strategy == TaskStrategy::kDriverCheckpoint) continue;
    op_.answer.remedy = "the program cannot be paused after this call; see docs/checkpoint.md";
    return Status(StatusCode::kUnsupported,
                  who + " has called " + taint.call + ", which cannot be carried over a pause");
  }
  if (hello.state == expected) return Status();
  return Status(StatusCode::kFailedPrecondition,
                who + " is " + TaskStateName(hello.state) + ", not " + TaskStateName(expected));
}

// What RecordPlaces() has written: UUIDs, as the processes see them, and where these devices are.
std::map<std::string, int> Job::RecordedPlaces() const {
  std::map<std::string, int> places;
  Result<std::string> text = ReadFile(PlacesFile());
  std::istringstream lines(text.ok() ? *text : std::string());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string uuid;
    if (int physical = 0; fields >> uuid >> physical) places.emplace(uuid, physical);
  }
  return places;
}

// A process whose driver has moved it keeps the numbers it had at start; where it went is on record here.
Placements Job::PlacesOf(const HeldMember& held) const {
  Placements places;
  std::map<std::string, int> recorded;
  if (held.strategy == TaskStrategy::kDriverCheckpoint) recorded = RecordedPlaces();
  for (const TaskDevice& device : held.devices) {
    auto moved = recorded.find(HexOf({device.uuid})[0]);
    places[device.virtual_ordinal] = moved == recorded.end() ? device.physical_ordinal : moved->second;
  }
  return places;
}

void Job::NoteDriver(const Member& member, HeldMember* held) const {
  held->strategy = StrategyOf(member);
  held->driver_version = member.hello().driver_version;
  held->devices = member.hello().devices;
  held->placed = PlacesOf(*held);
  held->placements = held->placed;
}

Status Job::ConnectMembers() {
  if (!members_.empty()) return Status();
  holdings_.Clear();
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  for (pid_t pid : tree) {
    Status status = CheckResponsive(pid);
    // One that has ended meanwhile, or that its parent does not wait for, has nothing to say.
    if (status.code() != StatusCode::kNotFound) RETURN_IF_ERROR(status);
  }
  Deadline deadline = Deadline::After(kPromptTime);
  for (const MemberSocket& socket : FindMembers(paths_.Ctl(), tree)) {
    Result<std::unique_ptr<Member>> member = Member::Connect(socket.path, socket.pid, deadline);
    // A socket file whose process has ended, or become another program, by now.
    if (!member.ok() && (member.status().code() == StatusCode::kUnavailable || HasEnded(socket.pid)))
      continue;
    RETURN_IF_ERROR(member.status());
    // One that stands still, and with all that it had, was told to wait for a ghost that follows.
    if ((*member)->hello().state != TaskState::kRunning) return Stranded();
    RETURN_IF_ERROR(CheckCarriable(**member, StrategyOf(**member), TaskState::kRunning));
    HeldMember held;
    held.nspid = (*member)->nspid();
    held.pid = socket.pid;
    NoteDriver(**member, &held);
    holdings_.members.push_back(std::move(held));
    members_.push_back(*std::move(member));
  }
  op_.members = members_.size();
  return CheckNobodyPassesUs(tree);
}

// Who has opened the driver's file by its path, in a namespace of its own or without our environment does not
// listen to us, and would keep its memory on the device of a task that is said to be paused. A child of fork
// has the file mapped as well, and cannot use it: the driver knows who does.
Status Job::CheckNobodyPassesUs(const std::vector<pid_t>& tree) {
  for (pid_t pid : tree) {
    Result<std::vector<ProcMap>> maps = MapsOf(pid);
    if (IsMember(pid) || !maps.ok() || !MapsDriver(*maps)) continue;
    Result<Gpu*> gpu = OpenGpu();
    if (!gpu.ok() || !(*gpu)->ProcessState(pid).ok()) continue;
    std::vector<MemberSocket> sockets = FindMembers(paths_.Ctl(), tree);
    auto listens = [pid](const MemberSocket& socket) { return socket.pid == pid; };
    if (std::any_of(sockets.begin(), sockets.end(), listens)) continue;  // it has just begun
    op_.answer.remedy =
        "let the program open libcuda.so.1 by that name, with the environment that it was given";
    return Status(StatusCode::kUnsupported,
                  "process " + Named(pid) + " uses the CUDA driver and does not do it through stasis");
  }
  return Status();
}

Status Job::HandOverMember(Member& member, HeldMember* held) {
  held->extents.clear();
  for (;;) {
    uint32_t index = static_cast<uint32_t>(held->extents.size());
    ASSIGN_OR_RETURN(Message answer,
                     member.Call(TaskMessage::kHandover, Payload([&](PayloadWriter& out) { out.U32(index); }),
                                 {}, Deadline::After(kPromptTime)));
    ASSIGN_OR_RETURN(std::vector<TaskExtent> extents, DecodeTaskExtents(answer.payload));
    if (extents.size() != answer.fds.size())
      return Status(StatusCode::kCorrupt, "memory without descriptors");
    if (extents.empty()) return OrderExtents(&held->extents);
    for (size_t i = 0; i < extents.size(); ++i) {
      auto place = held->placed.find(extents[i].device);
      if (place == held->placed.end()) return Status(StatusCode::kCorrupt, "memory on an unknown device");
      held->extents.push_back({extents[i], place->second, std::move(answer.fds[i]), false});
    }
  }
}

Status Job::AskActive(Member& member, HeldMember* held) {
  std::vector<TaskRange> ranges;
  for (;;) {
    uint32_t index = static_cast<uint32_t>(ranges.size());
    ASSIGN_OR_RETURN(Message answer,
                     member.Call(TaskMessage::kActive, Payload([&](PayloadWriter& out) { out.U32(index); }),
                                 {}, Deadline::After(kPromptTime)));
    ASSIGN_OR_RETURN(std::vector<TaskRange> more, DecodeTaskRanges(answer.payload));
    if (more.empty()) break;
    ranges.insert(ranges.end(), more.begin(), more.end());
    if (ranges.size() > kMaxRanges) return Status(StatusCode::kCorrupt, "too many ranges of active memory");
  }
  ASSIGN_OR_RETURN(held->ranges, ActiveRanges(held->extents, std::move(ranges)));
  return Status();
}

// What a process said of itself while it ran may be out of date: it may have made its first call, one that
// forbids a pause, or one that failed, before it stood still.
Status Job::GreetAgain(Member& member, HeldMember* held) {
  RETURN_IF_ERROR(member.Greet(Deadline::After(kPromptTime)));
  bool first_call = held->devices.empty();
  if (first_call) NoteDriver(member, held);
  return CheckCarriable(member, held->strategy, TaskState::kDrained);
}

// A process that has begun to use devices since all others stood still runs on, and may have got memory of
// theirs until they were asked to hand it over; from then on they give none.
Status Job::CheckNoNewcomer() const {
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  for (const MemberSocket& socket : FindMembers(paths_.Ctl(), tree)) {
    bool known = std::any_of(holdings_.members.begin(), holdings_.members.end(),
                             [&](const HeldMember& held) { return held.nspid == socket.nspid; });
    // A file that a dead process has left, whose number another one has now.
    if (known || !ConnectUnix(socket.path, Deadline::After(kPromptTime)).ok()) continue;
    return Status(StatusCode::kUnavailable,
                  "process " + Named(socket.pid) + " has begun to use devices in the meantime");
  }
  return Status();
}

Status Job::HandOver() {
  for (size_t i = 0; i < members_.size(); ++i) {
    Status status = HandOverMember(*members_[i], &holdings_.members[i]);
    if (status.ok()) status = AskActive(*members_[i], &holdings_.members[i]);
    RETURN_IF_ERROR(status.WithContext("process " + Named(members_[i]->pid())));
  }
  RETURN_IF_ERROR(CheckNoNewcomer());
  RETURN_IF_ERROR(FindShared(&holdings_.members));
  return NotePlacedUuids();
}

Result<TaskState> Job::StateOf(Member& member) {
  ASSIGN_OR_RETURN(Message answer, member.Call(TaskMessage::kStatus, {}, {}, Deadline::After(kPromptTime)));
  ASSIGN_OR_RETURN(TaskStatus status, DecodeTaskStatus(answer.payload));
  return status.state;
}

Status Job::Release(bool only_quiesced) {
  Status first;
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = *members_[i];
    // On the way back the others are held without one that has ended.
    if (only_quiesced && ReadProcStat(member.pid()).status().code() == StatusCode::kNotFound) continue;
    if (only_quiesced) {
      ASSIGN_OR_RETURN(TaskState state, StateOf(member));
      if (state != TaskState::kQuiesced) continue;
    }
    uint8_t strategy = static_cast<uint8_t>(holdings_.members[i].strategy);
    Status status = member
                        .Call(TaskMessage::kRelease, Payload([&](PayloadWriter& out) { out.U8(strategy); }),
                              {}, Deadline::After(kRebuildTime))
                        .status();
    if (!status.ok() && first.ok()) first = std::move(status);
  }
  return first;
}

Status Job::Deafen() {
  for (auto& member : members_) {
    pid_t pid = member->pid();
    RETURN_IF_ERROR(member->Call(TaskMessage::kPrepareDump, {}, {}, Deadline::After(kPromptTime)).status());
    member.reset();
    RETURN_IF_ERROR(AwaitDeaf(pid));
  }
  return Status();
}

Status Job::Listen() {
  const bool stay = op_.goal == Phase::kHeld && holdings_.empty();
  // What somebody has stopped while its image was made he can continue no more: that was another process. Who
  // does not use devices goes on when it is attached.
  const bool stopped_in_image = restored_ && !holdings_.empty();
  if ((left_stopped_ && !stay) || stopped_in_image) {
    RETURN_IF_ERROR(
        ThawTree({FreezeKind::kSigstop, "", "", process_.init_pid, false}, Deadline::After(kPromptTime)));
  }
  left_stopped_ = false;
  return ConnectHeld();
}

// Connections to those that have released and have none: they are deaf, or their ghost was another one.
Status Job::ConnectHeld() {
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  members_.resize(holdings_.members.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    HeldMember& held = holdings_.members[i];
    if (members_[i]) continue;
    held.pid = HostPid(tree, held.nspid);
    if (held.pid == 0) {
      return Errorf(StatusCode::kPeerDied, "process %d of the task has ended", held.nspid);
    }
    std::string path = paths_.Ctl() + "/" + std::to_string(held.nspid) + ".sock";
    Deadline deadline = Deadline::After(kPromptTime);
    // A wake-up that nobody sleeps for would stay pending, and wake the process when it goes deaf the next
    // time.
    StatusCode heard = ConnectUnix(path, deadline).status().code();
    if (heard == StatusCode::kNotFound || heard == StatusCode::kUnavailable) {
      RETURN_IF_ERROR(WakeMember(held.pid));
    }
    ASSIGN_OR_RETURN(members_[i], Member::Connect(path, held.pid, deadline, true));
  }
  return Status();
}

Status Job::AttachMember(Member& member, const HeldMember& held) {
  ASSIGN_OR_RETURN(TaskState state, StateOf(member));
  if (state != TaskState::kReleased) return Status();
  TaskAttach attach;
  attach.restored = restored_;
  attach.driver_path = config_.driver;
  if (held.strategy == TaskStrategy::kDriverCheckpoint) {
    // The driver has put the process on other devices under the numbers that it knows.
    for (const TaskDevice& d : member.hello().devices) {
      attach.placements.push_back({d.virtual_ordinal, d.physical_ordinal});
    }
  } else {
    for (auto [ordinal, physical] : held.placements) attach.placements.push_back({ordinal, physical});
  }
  Deadline deadline = Deadline::After(kRebuildTime);
  RETURN_IF_ERROR(member.Call(TaskMessage::kAttach, Encode(attach), {}, deadline).status());
  for (size_t at = 0; at < held.extents.size(); at += kTaskBatch) {
    std::vector<TaskExtent> extents;
    std::vector<Fd> fds;
    for (size_t i = at; i < std::min(at + kTaskBatch, held.extents.size()); ++i) {
      extents.push_back(held.extents[i].extent);
      const HeldExtent* holder = HolderOf(holdings_.members, held.extents[i]);
      if (holder == nullptr) return Status(StatusCode::kInternal, "nobody holds shared device memory");
      fds.push_back(holder->fd.Duplicate());
      if (!fds.back().valid()) return ErrnoStatus(errno, "duplicate a descriptor");
    }
    RETURN_IF_ERROR(member.Call(TaskMessage::kImport, Encode(extents), std::move(fds), deadline).status());
    RETURN_IF_ERROR(Fault(FaultPoint::kAttachInside));
  }
  return member.Call(TaskMessage::kRebuild, {}, {}, deadline).status();
}

Status Job::Attach() {
  for (size_t i = 0; i < members_.size(); ++i) {
    Status status = AttachMember(*members_[i], holdings_.members[i]);
    status = std::move(status).WithContext("process " + Named(members_[i]->pid()));
    if (status.ok()) continue;
    // An attach in progress is undone by asking for nothing more: the connection is made anew.
    pid_t pid = members_[i]->pid();
    std::string path = paths_.Ctl() + "/" + std::to_string(holdings_.members[i].nspid) + ".sock";
    members_[i].reset();
    if (ReadProcStat(pid).status().code() != StatusCode::kNotFound) {
      Result<std::unique_ptr<Member>> again = Member::Connect(path, pid, Deadline::After(kPromptTime), true);
      if (again.ok()) members_[i] = *std::move(again);
    }
    if (!members_[i]) return status;
    Status back = Release(true);
    (void)back;  // the first error is the one to tell
    return status;
  }
  RETURN_IF_ERROR(RecordPlaces());
  // They were stopped for an image, this one or an earlier one.
  if (!holdings_.empty()) return Status();
  return ThawTree({FreezeKind::kSigstop, "", "", process_.init_pid, false}, Deadline::After(kPromptTime));
}

// Where the task's devices are, for processes of it that begin to use them from now on.
Status Job::RecordPlaces() {
  // Asked by processes whose driver is shown what they see, when nothing of that has moved.
  std::vector<std::string> here;
  if (std::any_of(holdings_.members.begin(), holdings_.members.end(),
                  [](const HeldMember& held) { return held.strategy == TaskStrategy::kDriverCheckpoint; })) {
    ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
    ASSIGN_OR_RETURN(here, gpu->DeviceUuids());
  }
  const auto first = std::find_if(holdings_.members.begin(), holdings_.members.end(),
                                  std::mem_fn(&HeldMember::sees_devices));
  std::lock_guard lock(mutex_);
  std::string places;
  if (first != holdings_.members.end()) {
    record_.gpus.clear();
    for (const TaskDevice& device : first->devices)
      record_.gpus.push_back(first->placements.at(device.virtual_ordinal));
    places = PlacesText(*first, holdings_.members, here);
  } else {
    // Nobody has looked at devices yet: those that have been named are for who does.
    if (op_.request.gpus.empty()) return Status();
    record_.gpus = op_.request.gpus;
    for (int physical : record_.gpus) places += "- " + std::to_string(physical) + "\n";
  }
  return WriteFileAtomically(PlacesFile(), places);
}

// What is held on the devices that this process sees, whoever of the task it was copied from.
Result<TaskResume> Job::ResumeOf(const HeldMember& held, const std::map<int, uint64_t>& device_bytes) const {
  TaskResume resume;
  for (auto [ordinal, physical] : held.placements) {
    auto found = device_bytes.find(physical);
    if (found != device_bytes.end()) resume.held.push_back({ordinal, found->second});
  }
  return resume;
}

Status Job::Reopen() {
  std::map<int, uint64_t> device_bytes;
  if (op_.snapshot) device_bytes = op_.snapshot->DeviceBytes();
  // The ghost that died may have held as much, which the driver gives back in its own time. The end of the
  // connection tells the program to expect it.
  if (op_.taken_over) device_bytes = holdings_.ActiveBytesByDevice();
  if (op_.snapshot && !device_bytes.empty()) {
    ASSIGN_OR_RETURN(op_.pressure, PressureWatch::Start(*op_.snapshot, members_.size()));
  }
  // On the way back some may run already, and some have ended.
  ASSIGN_OR_RETURN(std::vector<Member*> drained, MembersIn(TaskState::kDrained));
  Status first;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (std::find(drained.begin(), drained.end(), members_[i].get()) == drained.end()) continue;
    TaskResume resume;
    std::vector<Fd> fds;
    ASSIGN_OR_RETURN(resume, ResumeOf(holdings_.members[i], device_bytes));
    if (!resume.held.empty()) {
      ASSIGN_OR_RETURN(fds, op_.pressure ? op_.pressure->DescriptorsOf(i) : PressureWatch::NewEvents());
    }
    Status status =
        members_[i]
            ->Call(TaskMessage::kResume, Encode(resume), std::move(fds), Deadline::After(kPromptTime))
            .status();
    if (!status.ok() && first.ok()) first = std::move(status);
  }
  RETURN_IF_ERROR(first);
  op_.standstill = Clock::Real().Now() - op_.stopped_at;
  if (op_.pressure) op_.watched = std::move(members_);
  members_.clear();
  holdings_.Clear();
  restored_ = false;
  return Status();
}

Status Job::Drop() {
  for (HeldMember& member : holdings_.members) member.extents.clear();
  return Status();
}

Json Job::MemberStatus() {
  Json list = Json::array();
  if (phase_ == Phase::kHeld) {
    for (const HeldMember& held : holdings_.members)
      list.push_back({{"nspid", held.nspid},
                      {"strategy", TaskStrategyName(held.strategy)},
                      {"allocated_bytes", held.bytes()},
                      {"active_bytes", held.active_bytes()}});
  }
  if (phase_ != Phase::kRunning || !TaskAlive()) return list;
  Result<std::vector<pid_t>> tree = ProcessTree(process_.init_pid);
  if (!tree.ok()) return list;
  Deadline deadline = Deadline::After(std::chrono::seconds(1));
  for (const MemberSocket& socket : FindMembers(paths_.Ctl(), *tree)) {
    Result<std::unique_ptr<Member>> member = Member::Connect(socket.path, socket.pid, deadline);
    if (!member.ok()) continue;
    Result<Message> answer = (*member)->Call(TaskMessage::kStatus, {}, {}, deadline);
    if (!answer.ok()) continue;
    Result<TaskStatus> status = DecodeTaskStatus(answer->payload);
    if (!status.ok()) continue;
    list.push_back({{"pid", socket.pid},
                    {"nspid", socket.nspid},
                    {"state", TaskStateName(status->state)},
                    {"strategy", TaskStrategyName(StrategyOf(**member))},
                    {"threads", status->threads},
                    {"allocations", status->allocations},
                    {"allocated_bytes", status->allocated_bytes},
                    {"extents", status->extents},
                    {"extent_bytes", status->extent_bytes},
                    {"host_bytes", status->host_bytes},
                    {"active_bytes", status->active_bytes},
                    {"active_low_bytes", status->low_bytes},
                    {"active_high_bytes", status->high_bytes},
                    {"iterations", status->iterations},
                    {"ignored_notes", status->ignored_notes},
                    {"records", status->records}});
  }
  return list;
}

}  // namespace stasis

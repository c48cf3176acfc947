// Checkpoint: CRIU's images beside the device memory, then everything into the store.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/files.h"
#include "ghost/beside.h"
#include "ghost/child.h"
#include "ghost/criu.h"
#include "ghost/criu_pages.h"
#include "ghost/dumpable.h"
#include "ghost/dumpable_tcp.h"
#include "ghost/job.h"
#include "ghost/proc.h"
#include "ghost/programs.h"
#include "ghost/restored.h"
#include "ghost/scratch.h"
#include "ghost/tcp_kernel.h"

namespace stasis {
namespace {

constexpr size_t kMaxFilesImage = 1u << 30;
constexpr std::chrono::seconds kPromptTime(30);
// CRIU's log tells of a full disk only if the disk has room for the log.
constexpr uint64_t kFullBytes = 1 << 20;

bool DiskIsFull(const std::string& folder) {
  struct statvfs info {};
  return statvfs(folder.c_str(), &info) == 0 && info.f_bavail * info.f_frsize < kFullBytes;
}

Status NoRoom(const std::string& folder, const Status& why) {
  return Status(StatusCode::kResourceExhausted,
                "the disk of " + folder + " is full: " + std::string(why.message()));
}

ManifestMember DescribeMember(const HeldMember& held) {
  ManifestMember member;
  member.nspid = held.nspid;
  member.strategy = held.strategy;
  member.driver_version = held.driver_version;
  member.devices = held.devices;
  for (TaskDevice& device : member.devices) {
    device.physical_ordinal = held.placements.at(device.virtual_ordinal);
  }
  member.placed_uuids = held.placed_uuids;
  member.stream = held.stream();
  for (const HeldExtent& e : held.extents) member.extents.push_back(e.extent);
  member.ranges = held.ranges;
  return member;
}

bool RegularSize(const std::string& path, uint64_t* size) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  *size = static_cast<uint64_t>(info.st_size);
  return true;
}

using Sizes = std::map<std::string, uint64_t>;

// Of the files that some process only appends to.
Result<Sizes> AppendedSizes(const std::vector<pid_t>& tree) {
  Sizes sizes;
  for (pid_t pid : tree) {
    ASSIGN_OR_RETURN(const std::vector<ProcFd> fds, FdsOf(pid));
    for (const ProcFd& fd : fds) {
      uint64_t size = 0;
      if ((FdFlags(pid, fd.fd) & O_APPEND) && RegularSize(fd.target, &size)) sizes[fd.target] = size;
    }
  }
  return sizes;
}

// The size that a file had in the moment of the dump, of which CRIU says nothing when it is only appended to.
// It lies between those before and after; the last write of the descriptor ended there if anything was
// written in between.
uint64_t SizeAtDump(const CriuFile& file, uint64_t known, const Sizes& before, uint64_t after) {
  if (file.sized) return file.size;
  auto found = before.find(file.path);
  uint64_t low = found == before.end() ? 0 : std::min(found->second, after);
  return std::max(known, std::clamp(file.position, low, after));
}

// What was opened since the tree was looked at is found here.
Status DescribeTcp(const std::string& files_image, Manifest* manifest) {
  ASSIGN_OR_RETURN(std::vector<CriuTcp> sockets, ParseCriuTcp(std::as_bytes(std::span(files_image))));
  for (const CriuTcp& tcp : sockets) manifest->tcp.push_back(tcp.socket);
  return CheckDumpedTcp(manifest->tcp);
}

// A program that stands still for the driver may come to its end without it: then CRIU is not what has
// failed, and what it has made has not all of the task.
Status OfTheLiving(const std::vector<pid_t>& tree, Status status) {
  for (const pid_t pid : tree) {
    if (!HasEnded(pid)) continue;
    const std::string why = status.ok() ? "" : " (" + std::string(status.message()) + ")";
    return Errorf(StatusCode::kPeerDied, "process %d of the task has ended while its image was made%s", pid,
                  why.c_str());
  }
  return status;
}

}  // namespace

// --- device memory

CopyContext Job::SaveContext() {
  CopyContext context{op_.progress, &cancel_, op_.request.device_hash, op_.saved.get()};
  context.shared = op_.request.job && op_.request.job->ranks > 1;
  return context;
}

Status Job::SaveMemory() {
  Gpu* gpu = nullptr;
  if (!holdings_.in_host() && !holdings_.on_disk() && holdings_.bytes() > 0) {
    ASSIGN_OR_RETURN(gpu, OpenGpu());
  }
  op_.progress->Begin("save device memory", holdings_.active_bytes());
  return holdings_.Save(gpu, *op_.writer, SaveContext());
}

Status Job::TakeSnapshot() {
  ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
  op_.stream_names = holdings_.StreamNames();
  static const StreamLayout kNothing;
  Layouts layouts;
  for (const std::string& name : op_.stream_names) {
    layouts.push_back(name.empty() ? &kNothing : &op_.writer->Layout(name));
  }
  uint64_t limit = HostShare(op_.request.snapshot_host_percent);
  SnapshotMode mode = op_.request.snapshot;
  auto take = [&](Snapshot::Place place) {
    return Snapshot::Take(*gpu, holdings_.members, layouts, place, limit);
  };
  Result<std::unique_ptr<Snapshot>> copy =
      take(mode == SnapshotMode::kHost ? Snapshot::Place::kHost : Snapshot::Place::kDevice);
  bool no_room = copy.status().code() == StatusCode::kResourceExhausted;
  if (no_room && mode == SnapshotMode::kAuto) copy = take(Snapshot::Place::kHost);
  RETURN_IF_ERROR(copy.status());
  op_.snapshot = *std::move(copy);
  op_.snapshot_place = op_.snapshot->place() == Snapshot::Place::kDevice ? "device" : "host";
  return Status();
}

// A second copy costs the task less standstill than the way to the disk, where there is room for one. What is
// to be held or ended afterwards is in nobody's way.
Status Job::KeepMemory() {
  RETURN_IF_ERROR(holdings_.AddStreams(*op_.writer));
  bool goes_on = op_.goal == Phase::kRunning && !op_.request.stop && holdings_.active_bytes() > 0;
  if (!goes_on || op_.request.snapshot == SnapshotMode::kOff) return SaveMemory();
  Status status = TakeSnapshot();
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return op_.request.snapshot == SnapshotMode::kAuto ? SaveMemory() : status;
}

Status Job::SaveSnapshot() {
  RETURN_IF_ERROR(Fault(FaultPoint::kSnapshotHeld));
  uint64_t bytes = op_.manifest.ActiveBytes();
  op_.progress->Begin("save device memory", bytes);
  bool on_device = op_.snapshot->place() == Snapshot::Place::kDevice;
  Status status = SaveStreams(op_.stream_names, *op_.snapshot, on_device ? gpu_.get() : nullptr, *op_.writer,
                              SaveContext());
  if (op_.snapshot->gave_up()) {
    op_.snapshot_place = "device, then host";
    if (status.code() == StatusCode::kResourceExhausted && !DiskIsFull(paths_.state)) {
      op_.answer.remedy =
          "checkpoint when the program needs less device memory, with a larger --snapshot-host-share, or "
          "with --snapshot off, which keeps it standing still meanwhile";
      return status;
    }
  }
  return OnDisk(std::move(status));
}

// Gives back what is left of it, and says so to the processes that count it as free.
void Job::EndSnapshot() {
  op_.pressure.reset();
  op_.snapshot.reset();
  for (auto& member : op_.watched) {
    // A process that has ended counts nothing any more; the others see the end of the connection, too.
    (void)member->Call(TaskMessage::kSnapshotDone, {}, {}, Deadline::After(kPromptTime));
  }
  op_.watched.clear();
}

// --- CRIU

// Whoever takes over knows of it, and waits for its end, before it touches anything.
Status Job::LetCriuGo(Step step, HeldChild& criu) {
  criu_pid_ = criu.pid;
  Result<ProcStat> stat = ReadProcStat(criu.pid);
  criu_start_time_ = stat.ok() ? stat->start_time : 0;
  Status status = stat.ok() ? Publish(step, false) : stat.status();
  if (status.ok()) status = criu.Go();
  if (status.ok()) return status;
  criu.go.Reset();
  (void)WaitChild(std::exchange(criu_pid_, 0), Deadline::Never());
  return status;
}

Status Job::RunCriuDump(const std::string& folder) {
  // Left to run, and ended only when the image is committed: until then there must be a way back. A task that
  // is to end is left stopped, so that it does nothing after the moment that the image shows.
  bool stop = op_.request.stop;
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  ASSIGN_OR_RETURN(bool connected, HasTcpConnections(tree));
  ASSIGN_OR_RETURN(HeldChild criu, StartCriuDump(criu_, process_.init_pid, folder,
                                                 stop ? DumpEnd::kStopped : DumpEnd::kRunning,
                                                 connected ? DumpTcp::kConnections : DumpTcp::kNone));
  RETURN_IF_ERROR(LetCriuGo(Step::kDump, criu));
  Status inside = Fault(FaultPoint::kDumpInside);
  AwaitDump(criu_pid_, process_.init_pid);
  Result<int> exit_status = WaitChild(std::exchange(criu_pid_, 0), Deadline::Never());
  Status status = exit_status.ok() ? CriuStatus(*exit_status, folder + "/dump.log", &op_.answer.remedy)
                                   : exit_status.status();
  if (!status.ok()) {
    Status ended = EndCriu(folder, Deadline::After(kPromptTime));
    if (!ended.ok()) Log(LogLevel::kWarning, ended.ToString());
    // The folder goes with the failure; its log is what can be looked at afterwards.
    (void)rename((folder + "/dump.log").c_str(), (paths_.state + "/criu-dump.log").c_str());
    return DiskIsFull(folder) ? NoRoom(folder, status) : OfTheLiving(tree, std::move(status));
  }
  left_stopped_ = stop;
  std::vector<pid_t> needed = {process_.pid};
  for (const HeldMember& held : holdings_.members) needed.push_back(held.pid);
  RETURN_IF_ERROR(OfTheLiving(needed, Status()));
  // The image is made; what the kernel passes on between sockets of stopped processes is in nobody's way.
  if (stop && connected) RETURN_IF_ERROR(LiftTcpLock(folder));
  return inside;
}

// What CRIU has written down of the moment of the dump; what changes when the program runs on is looked at
// now.
Status Job::DescribeDump(const std::string& criu_folder) {
  ASSIGN_OR_RETURN(std::string image, ReadFile(criu_folder + "/files.img", kMaxFilesImage));
  ASSIGN_OR_RETURN(std::vector<CriuFile> files, ParseCriuFiles(std::as_bytes(std::span(image))));
  RETURN_IF_ERROR(DescribeTcp(image, &op_.manifest));
  std::map<std::string, ManifestFile> by_path;
  for (const CriuFile& file : files) {
    // What is in the image itself (deleted files) or has no size worth comparing (devices) is CRIU's
    // business.
    uint64_t now = 0;
    if (!RegularSize(file.path, &now)) continue;
    ManifestFile& entry = by_path[file.path];
    uint64_t size = SizeAtDump(file, entry.size, op_.sizes_before, now);
    entry = {file.path, size, entry.writable || file.writable};
  }
  Manifest& manifest = op_.manifest;
  manifest.task = task_json_;
  manifest.created = static_cast<uint64_t>(time(nullptr));
  manifest.kernel = KernelRelease();
  manifest.machine = MachineName();
  manifest.cpu_features = CpuFeatures();
  ASSIGN_OR_RETURN(ProcIds ids, ReadProcIds(process_.init_pid));
  manifest.init_nspid = ids.nspids.back();
  manifest.program_nspid = process_.nspid;
  for (const HeldMember& held : holdings_.members) manifest.members.push_back(DescribeMember(held));
  manifest.log = config_.log;
  manifest.run = paths_.run;
  auto log = by_path.find(config_.log);
  if (log != by_path.end()) op_.log_size = log->second.size;
  for (auto& [path, file] : by_path) manifest.files.push_back(std::move(file));
  return Status();
}

// A disk that is full makes both fail.
Status Job::WhyNotDumped(Status dumped, Status kept) {
  if (dumped.ok() && kept.ok()) return Status();
  SnapshotMode mode = op_.request.snapshot;
  bool named = mode == SnapshotMode::kDevice || mode == SnapshotMode::kHost;
  if (kept.code() == StatusCode::kResourceExhausted && named && !op_.snapshot) {
    op_.answer.remedy = "use --snapshot auto, which takes what there is room for, or --snapshot off";
    return kept;
  }
  if (!dumped.ok() && dumped.code() != StatusCode::kResourceExhausted) return dumped;
  op_.answer.remedy.clear();
  return OnDisk(kept.ok() ? std::move(dumped) : std::move(kept));
}

Status Job::Dump() {
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  std::vector<pid_t> closed;
  for (const HeldMember& held : holdings_.members) {
    if (held.strategy == TaskStrategy::kReconstruct) closed.push_back(held.pid);
  }
  RETURN_IF_ERROR(CheckResidue(tree, closed, config_.driver, &op_.answer.remedy));
  ASSIGN_OR_RETURN(op_.manifest.programs, ProgramsOf(tree, &op_.answer.remedy));
  std::string criu_folder = paths_.Dump() + "/" + kCriuFolder;
  RETURN_IF_ERROR(MakeScratch(paths_.Dump(), op_.writer->encrypted()));
  RETURN_IF_ERROR(MakeFolders(criu_folder));
  ASSIGN_OR_RETURN(op_.sizes_before, AppendedSizes(tree));
  if (coordination_) {
    op_.writer->ShareWith([this](std::span<const Hash128> chunks) { return coordination_->Claim(chunks); });
  }
  Beside keeping([this] { return KeepMemory(); });
  Status dumped = RunCriuDump(criu_folder);
  Status kept = keeping.Join();
  RETURN_IF_ERROR(WhyNotDumped(std::move(dumped), std::move(kept)));
  return DescribeDump(criu_folder);
}

// --- into the store

// The log is only appended to, so that its beginning is what it was at the dump.
void Job::CopyLog(const std::string& files_folder) {
  if (!op_.log_size) return;
  Status status = CopyFile(config_.log, files_folder + "/" + kLogCopy, *op_.log_size);
  op_.manifest.log_copied = status.ok();
  if (!status.ok()) op_.answer.notes.push_back("the log is not in the image: " + status.ToString());
}

Status Job::AddDump() {
  std::string criu_folder = paths_.Dump() + "/" + kCriuFolder;
  std::string files_folder = paths_.Dump() + "/" + kFilesFolder;
  // Nothing that a restore needs, and different each time.
  if (Result<std::string> log = ReadFile(criu_folder + "/dump.log"); log.ok())
    (void)WriteFileAtomically(paths_.state + "/criu-dump.log", *log);
  (void)unlink((criu_folder + "/dump.log").c_str());
  (void)unlink((criu_folder + "/dump.log.out").c_str());
  CriuPages pages(criu_folder);
  RETURN_IF_ERROR(
      op_.writer->AddFolder(kCriuFolder, criu_folder,
                            [&](const std::string& file, uint64_t size) { return pages.Of(file, size); }));
  RETURN_IF_ERROR(MakeFolders(files_folder));
  CopyLog(files_folder);
  return op_.writer->AddFolder(kFilesFolder, files_folder);
}

Status Job::Commit() {
  if (op_.snapshot) {
    RETURN_IF_ERROR(SaveSnapshot());
    EndSnapshot();
  }
  op_.progress->Begin(RowOf(Step::kCommit).what);
  RETURN_IF_ERROR(OnDisk(AddDump()));
  RETURN_IF_ERROR(Fault(FaultPoint::kCommitInside));
  RETURN_IF_ERROR(OnDisk(op_.writer->Prepare(ManifestJson(op_.manifest))));
  // What is in the store by now is nobody's if this is as far as it gets.
  bool untidy = std::exchange(untidy_, true);
  RETURN_IF_ERROR(Vote(VotePoint::kSaved));
  RETURN_IF_ERROR(OnDisk(op_.writer->Commit()));
  untidy_ = untidy;
  op_.committed = true;
  return RemoveScratch(paths_.Dump());
}

}  // namespace stasis

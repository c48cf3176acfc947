// The steps that use CRIU and images.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <thread>

#include "base/files.h"
#include "base/raw_log.h"
#include "ghost/child.h"
#include "ghost/criu.h"
#include "ghost/dumpable.h"
#include "ghost/job.h"
#include "ghost/proc.h"
#include "ghost/programs.h"

namespace stasis {
namespace {

constexpr char kCriuFolder[] = "criu";
constexpr char kFilesFolder[] = "files";
constexpr char kLogCopy[] = "output.log";
constexpr size_t kMaxFilesImage = 1u << 30;
constexpr std::chrono::minutes kRestoreTime(30);
constexpr std::chrono::seconds kKillTime(30);

// Runs `work` beside the caller until Join().
class Beside {
 public:
  explicit Beside(std::function<Status()> work)
      : thread_([this, work = std::move(work)] { status_ = work(); }) {}
  Status Join() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  ~Beside() { (void)Join(); }

 private:
  Status status_;
  std::thread thread_;
};

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
  for (const HeldExtent& e : held.extents) member.extents.push_back({e.extent, e.offset});
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
Sizes AppendedSizes(const std::vector<pid_t>& tree) {
  Sizes sizes;
  for (pid_t pid : tree) {
    for (const ProcFd& fd : FdsOf(pid)) {
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

void KillAll(const std::vector<pid_t>& tree) {
  for (pid_t pid : tree) (void)kill(pid, SIGKILL);
}

}  // namespace

// --- checkpoint

Status Job::SaveMemory() {
  Gpu* gpu = nullptr;
  const Holdings& source = op_.snapshot ? *op_.snapshot : holdings_;
  if (!source.in_host() && !source.on_disk() && source.bytes() > 0) {
    ASSIGN_OR_RETURN(gpu, OpenGpu());
  }
  op_.progress->Begin("save device memory", source.bytes());
  return source.Save(gpu, *op_.writer, {op_.progress, &cancel_});
}

Status Job::RunCriuDump(const std::string& folder) {
  // Left to run, and ended only when the image is committed: until then there must be a way back. A task that
  // is to end is left stopped, so that it does nothing after the moment that the image shows.
  bool stop = op_.request.stop;
  ASSIGN_OR_RETURN(criu_pid_, StartCriuDump(criu_, process_.init_pid, folder,
                                            stop ? DumpEnd::kStopped : DumpEnd::kRunning));
  Status told = Publish(Step::kDump, false);
  Status inside = Fault(FaultPoint::kDumpInside);
  Result<int> exit_status = WaitChild(criu_pid_, Deadline::Never());
  criu_pid_ = 0;
  RETURN_IF_ERROR(exit_status.status());
  Status status = CriuStatus(*exit_status, folder + "/dump.log", &op_.answer.remedy);
  if (!status.ok()) {
    // The image goes with the failure; its log is what can be looked at afterwards.
    (void)rename((folder + "/dump.log").c_str(), (paths_.state + "/criu-dump.log").c_str());
    return status;
  }
  left_stopped_ = stop;
  RETURN_IF_ERROR(told);
  return inside;
}

Status Job::DescribeDump(const std::string& criu_folder, const std::string& files_folder) {
  ASSIGN_OR_RETURN(std::string image, ReadFile(criu_folder + "/files.img", kMaxFilesImage));
  ASSIGN_OR_RETURN(std::vector<CriuFile> files, ParseCriuFiles(std::as_bytes(std::span(image))));
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
  ASSIGN_OR_RETURN(manifest.criu, CriuVersion(criu_));
  manifest.cpu_features = CpuFeatures();
  ASSIGN_OR_RETURN(ProcIds ids, ReadProcIds(process_.init_pid));
  manifest.init_nspid = ids.nspids.back();
  manifest.program_nspid = process_.nspid;
  for (const HeldMember& held : holdings_.members) manifest.members.push_back(DescribeMember(held));
  manifest.log = config_.log;
  auto log = by_path.find(config_.log);
  if (log != by_path.end()) {
    RETURN_IF_ERROR(CopyFile(config_.log, files_folder + "/" + kLogCopy, log->second.size));
    manifest.log_copied = true;
  }
  for (auto& [path, file] : by_path) manifest.files.push_back(std::move(file));
  return Status();
}

Status Job::Dump() {
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  std::vector<pid_t> closed;
  for (const HeldMember& held : holdings_.members) {
    if (held.strategy == TaskStrategy::kReconstruct) closed.push_back(held.pid);
  }
  RETURN_IF_ERROR(CheckResidue(tree, closed, config_.driver, &op_.answer.remedy));
  ASSIGN_OR_RETURN(op_.manifest.programs, ProgramsOf(tree, &op_.answer.remedy));
  ASSIGN_OR_RETURN(op_.writer, FolderImageWriter::Create(paths_.images, op_.image_id));
  ASSIGN_OR_RETURN(std::string criu_folder, op_.writer->AddFolder(kCriuFolder));
  ASSIGN_OR_RETURN(std::string files_folder, op_.writer->AddFolder(kFilesFolder));
  op_.sizes_before = AppendedSizes(tree);
  Beside saving([this] {
    // A second copy on the device costs the task less standstill than the way to the disk, where there is
    // room for it. What is to be held or ended afterwards is in nobody's way.
    bool goes_on = op_.goal == Phase::kRunning && !op_.request.stop && holdings_.bytes() > 0;
    if (goes_on) {
      Result<Gpu*> gpu = OpenGpu();
      Result<Holdings> copy = gpu.ok() ? holdings_.Duplicate(**gpu) : Result<Holdings>(gpu.status());
      if (copy.ok()) {
        op_.snapshot = *std::move(copy);
        return Status();
      }
    }
    return SaveMemory();
  });
  Status dumped = RunCriuDump(criu_folder);
  Status saved = saving.Join();
  RETURN_IF_ERROR(dumped);
  RETURN_IF_ERROR(saved);
  return DescribeDump(criu_folder, files_folder);
}

Status Job::Commit() {
  if (op_.snapshot) {
    RETURN_IF_ERROR(SaveMemory());
    op_.snapshot.reset();
  }
  op_.progress->Begin(RowOf(Step::kCommit).what);
  RETURN_IF_ERROR(op_.writer->Commit(ManifestJson(op_.manifest)));
  op_.committed = true;
  op_.answer.fields["image_bytes"] = op_.writer->bytes();
  return Status();
}

// --- the end of processes

// The first process takes the others of its PID namespace with it; without one each is ended by itself.
Status Job::KillTree(pid_t root) {
  Deadline deadline = Deadline::After(kKillTime);
  Status status;
  for (Result<std::vector<pid_t>> tree = ProcessTree(root); tree.ok(); tree = ProcessTree(root)) {
    KillAll(*tree);
    status = WaitProcess(root, deadline);
    if (!status.ok()) return status;
  }
  // A restored task's first process is a child of ours.
  while (waitpid(root, nullptr, WNOHANG) < 0 && errno == EINTR) continue;
  return Status();
}

Status Job::EndTask(Duration grace) {
  {
    std::lock_guard lock(mutex_);
    record_.ended_by = op_.request.verb == Verb::kCancel ? "cancel" : "checkpoint";
    if (op_.committed) record_.last_image = op_.image_id;
  }
  // Before the end: who waits for the task looks here as soon as it is gone.
  SetRecord("ended");
  int used = SIGKILL;
  if (grace > Duration::zero()) {
    ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
    (void)kill(process_.init_pid, SIGTERM);
    if (WaitProcess(process_.init_pid, Deadline::After(grace)).ok()) used = SIGTERM;
  }
  RETURN_IF_ERROR(KillTree(process_.init_pid));
  op_.answer.fields["signal"] = used;
  holdings_.Clear();
  members_.clear();
  left_stopped_ = false;
  return Status();
}

// --- restore

Status Job::CheckImageFits() {
  const Manifest& manifest = op_.manifest;
  if (manifest.machine != MachineName()) {
    return Status(StatusCode::kUnsupported, "the image is of a " + manifest.machine + " machine");
  }
  RETURN_IF_ERROR(CheckCpuFeatures(manifest.cpu_features, CpuFeatures()));
  RETURN_IF_ERROR(CheckPrograms(manifest.programs, &op_.answer.remedy));
  ASSIGN_OR_RETURN(TaskConfig config, ParseTaskConfig(manifest.task));
  if (config.name != config_.name) {
    return Status(StatusCode::kCorrupt, "the image is of task " + config.name);
  }
  for (const ManifestMember& member : manifest.members) {
    if (member.stream.empty()) continue;
    uint64_t size = member.extents.back().offset + member.extents.back().extent.size;
    if (op_.reader->StreamSize(member.stream) != size ||
        member.stream != "device-" + std::to_string(member.nspid)) {
      return Status(StatusCode::kCorrupt,
                    "image " + op_.image_id + ": the device memory does not fit its description");
    }
  }
  return Status();
}

Status Job::RunCriuRestore() {
  std::string work = paths_.state + "/restore";
  RETURN_IF_ERROR(RemoveTree(work));
  RETURN_IF_ERROR(MakeFolders(work));
  ASSIGN_OR_RETURN(criu_pid_, StartCriuRestore(criu_, op_.reader->FolderPath(kCriuFolder), work));
  Status told = Publish(Step::kRevive, false);
  if (told.ok()) told = Fault(FaultPoint::kReviveInside);
  Result<int> exit_status = WaitChild(criu_pid_, Deadline::After(kRestoreTime));
  if (!exit_status.ok()) kill(criu_pid_, SIGKILL);
  criu_pid_ = 0;
  RETURN_IF_ERROR(exit_status.status());
  RETURN_IF_ERROR(CriuStatus(*exit_status, work + "/restore.log", &op_.answer.remedy));
  ASSIGN_OR_RETURN(std::string pid, ReadFile(work + "/pid", 64));
  process_.init_pid = static_cast<pid_t>(std::strtol(pid.c_str(), nullptr, 10));
  if (process_.init_pid <= 1)
    return Status(StatusCode::kInternal, "criu does not say which process it restored");
  RETURN_IF_ERROR(told);
  return AdoptProcesses(process_.init_pid);
}

Status Job::AdoptProcesses(pid_t root) {
  ASSIGN_OR_RETURN(ProcStat stat, ReadProcStat(root));
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(root));
  process_.init_start_time = stat.start_time;
  process_.boot_id = BootId();
  process_.nspid = op_.manifest.program_nspid;
  process_.pid = HostPid(tree, process_.nspid);
  return WriteTaskProcess(paths_, process_);
}

Status Job::Revive() {
  RETURN_IF_ERROR(MakeFolders(paths_.Ctl()));
  RETURN_IF_ERROR(op_.reader->VerifyFolder(kCriuFolder));
  RETURN_IF_ERROR(op_.reader->VerifyFolder(kFilesFolder));
  std::string copy = op_.manifest.log_copied ? op_.reader->FolderPath(kFilesFolder) + "/" + kLogCopy : "";
  Status status = PrepareFiles(op_.manifest.files, op_.manifest.log, copy, op_.image_id, &op_.set_aside,
                               &op_.answer.remedy);
  if (status.ok()) status = Publish(Step::kRevive, false);
  if (status.ok()) status = RemoveTree(paths_.state + "/exit.json");
  if (status.ok()) {
    Beside loading([this] {
      if (holdings_.bytes() == 0) return Status();
      Result<Gpu*> gpu = OpenGpu();
      if (!gpu.ok()) return gpu.status();
      op_.progress->Begin("load device memory", holdings_.bytes());
      return holdings_.LoadFromImage(**gpu, *op_.reader, {op_.progress, &cancel_});
    });
    status = RunCriuRestore();
    Status loaded = loading.Join();
    if (!loaded.ok() && loaded.code() == StatusCode::kResourceExhausted) {
      op_.answer.remedy = "free device memory, or name another device with --gpus; the image is untouched";
    }
    // What the device says is the better reason: a restore of processes that fails is rarely its consequence.
    if (!loaded.ok()) status = std::move(loaded);
  }
  if (!status.ok()) {
    Abandon();
    return status;
  }
  restored_ = true;
  residency_ = Residency::kDevice;
  op_.stopped_at = Clock::Real().Now();
  std::lock_guard lock(mutex_);
  record_.last_image = op_.image_id;
  return Status();
}

// Nothing of a restore that failed is left but the image.
void Job::Abandon() {
  members_.clear();
  holdings_.Clear();
  Result<std::string> pid = ReadFile(paths_.state + "/restore/pid", 64);
  pid_t root = pid.ok() ? static_cast<pid_t>(std::strtol(pid->c_str(), nullptr, 10)) : 0;
  if (root > 1) {
    Status status = KillTree(root);
    if (!status.ok()) RawLog(LogLevel::kError, "end the restored processes: %s", status.ToString().c_str());
  }
  (void)RemoveTree(paths_.state + "/restore/pid");
  Status status = UndoPrepareFiles(op_.set_aside);
  if (!status.ok()) RawLog(LogLevel::kError, "put files back: %s", status.ToString().c_str());
  restored_ = false;
}

}  // namespace stasis

// Restore: files, processes and device memory from an image.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "ghost/beside.h"
#include "ghost/child.h"
#include "ghost/criu.h"
#include "ghost/dumpable_tcp.h"
#include "ghost/job.h"
#include "ghost/proc.h"
#include "ghost/programs.h"
#include "ghost/restored.h"
#include "ghost/scratch.h"
#include "ghost/socket_folders.h"
#include "ghost/tcp_kernel.h"

namespace stasis {
namespace {

constexpr std::chrono::minutes kRestoreTime(30);
constexpr std::chrono::seconds kEndTime(30);

// What is in the way of the image's TCP sockets: refused with whoever has it, or, where it is only the kernel
// that still waits after the end of an earlier life of them, appended to *stale.
Status CheckTcpPlaces(const std::vector<TcpSocket>& tcp, std::vector<TcpSocket>* stale, std::string* remedy) {
  if (tcp.empty()) return Status();
  ASSIGN_OR_RETURN(std::vector<TcpSocket> all, TcpSocketsOf(getpid()));
  ASSIGN_OR_RETURN(std::set<TcpAddress> local, LocalAddresses());
  TcpPlaces places = FindTcpPlaces(tcp, all, local);
  *stale = std::move(places.stale);
  if (places.status.ok()) return Status();
  *remedy = "restore where the address is, or let the program use 127.0.0.1";
  if (!places.taken_by) return places.status;
  pid_t holder = HolderOfSocket(places.taken_by->inode);
  std::string who = holder != 0 ? "process " + Named(holder) : "whoever has it";
  *remedy = "end " + who + " first";
  return Status(places.status.code(), std::string(places.status.message()) + (holder ? " by " + who : ""));
}

Status ForgetStaleTcp(const std::vector<TcpSocket>& tcp, std::string* remedy) {
  std::vector<TcpSocket> stale;
  RETURN_IF_ERROR(CheckTcpPlaces(tcp, &stale, remedy));
  for (const TcpSocket& socket : stale) {
    Status status = ForgetTcp(socket);
    if (status.ok()) continue;
    *remedy = "try again in a minute";
    return status;
  }
  return Status();
}

// CRIU does it when all has gone well.
struct LiftAtTheEnd {
  const std::string& images;
  ~LiftAtTheEnd() { LetTcpGoOn(0, images); }
};

}  // namespace

Status Job::CheckImageFits() {
  const Manifest& manifest = op_.manifest;
  if (manifest.machine != MachineName()) {
    return Status(StatusCode::kUnsupported, "the image is of a " + manifest.machine + " machine");
  }
  RETURN_IF_ERROR(CheckCpuFeatures(manifest.cpu_features, CpuFeatures()));
  RETURN_IF_ERROR(CheckPrograms(manifest.programs, &op_.answer.remedy));
  std::vector<TcpSocket> stale;
  RETURN_IF_ERROR(CheckTcpPlaces(manifest.tcp, &stale, &op_.answer.remedy));
  for (const ManifestMember& member : manifest.members) {
    HeldMember described;
    described.nspid = member.nspid;
    described.ranges = member.ranges;
    if (member.stream != described.stream())
      return Status(StatusCode::kCorrupt, "image " + op_.image_id + ": stream " + member.stream);
    std::vector<HeldMember> one;
    one.push_back(std::move(described));
    RETURN_IF_ERROR(CheckStreams(one, *op_.reader));
  }
  return Status();
}

Status Job::RunCriuRestore() {
  std::string work = paths_.state + "/restore";
  RETURN_IF_ERROR(RemoveTree(work));
  RETURN_IF_ERROR(MakeFolders(work));
  std::string images = paths_.Revive() + "/" + kCriuFolder;
  RETURN_IF_ERROR(MakeFolders(images));
  RETURN_IF_ERROR(OnDisk(op_.reader->ExtractFolder(kCriuFolder, images)));
  MadeFolders made;
  RETURN_IF_ERROR(MakeSocketFolders(images, &made));
  RETURN_IF_ERROR(ForgetStaleTcp(op_.manifest.tcp, &op_.answer.remedy));
  RETURN_IF_ERROR(LockTcp(op_.manifest.tcp, images));
  LiftAtTheEnd lift{images};
  ASSIGN_OR_RETURN(std::vector<CriuInherited> moved, OpenMovedFiles(op_.moved));
  ASSIGN_OR_RETURN(HeldChild criu, StartCriuRestore(criu_, images, work, moved));
  RETURN_IF_ERROR(LetCriuGo(Step::kRevive, criu));
  Status inside = Fault(FaultPoint::kReviveInside);
  Result<int> exit_status = WaitChild(criu_pid_, Deadline::After(kRestoreTime));
  if (!exit_status.ok()) kill(criu_pid_, SIGKILL);
  criu_pid_ = 0;
  RETURN_IF_ERROR(exit_status.status());
  RETURN_IF_ERROR(CriuStatus(*exit_status, work + "/restore.log", &op_.answer.remedy));
  made.Keep();
  ASSIGN_OR_RETURN(std::string pid, ReadFile(work + "/pid", 64));
  process_.init_pid = static_cast<pid_t>(std::strtol(pid.c_str(), nullptr, 10));
  if (process_.init_pid <= 1)
    return Status(StatusCode::kInternal, "criu does not say which process it restored");
  RETURN_IF_ERROR(inside);
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

// What the processes have open is put back as it was at the checkpoint.
Status Job::ReviveFiles() {
  std::string folder = paths_.Revive() + "/" + kFilesFolder;
  RETURN_IF_ERROR(MakeFolders(folder));
  RETURN_IF_ERROR(OnDisk(op_.reader->ExtractFolder(kFilesFolder, folder)));
  std::string copy = op_.manifest.log_copied ? folder + "/" + kLogCopy : "";
  return PrepareFiles(op_.manifest.files, op_.manifest.log, copy, op_.image_id, &op_.set_aside,
                      &op_.answer.remedy);
}

Status Job::LoadImageMemory() {
  if (holdings_.bytes() == 0) return Status();
  ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
  op_.progress->Begin("load device memory", holdings_.active_bytes());
  std::vector<FanOut::Peer> peers;
  for (const RestorePeer& peer : op_.request.peers) {
    TaskPaths paths = PathsOf(arguments_.state_dir, arguments_.run_dir, peer.task);
    peers.push_back({peer.task, peer.image, paths.run + "/memory.sock"});
  }
  ASSIGN_OR_RETURN(op_.fan_out, FanOut::Plan(*op_.store, *op_.reader, std::move(peers)));
  return op_.fan_out->Load(*gpu, holdings_, {op_.progress, &cancel_});
}

// What other ranks have read, once all have.
Status Job::FetchMemory() {
  RETURN_IF_ERROR(Vote(VotePoint::kLoaded));
  if (!op_.fan_out) return Status();
  RETURN_IF_ERROR(Fault(FaultPoint::kLoadInside));
  return op_.fan_out->Fetch(*gpu_, holdings_, {op_.progress, &cancel_});
}

void Job::FillRestore() {
  Json& fields = op_.answer.fields;
  fields["read_bytes"] = op_.fan_out ? op_.fan_out->read_bytes() : 0;
  fields["fanned_out_bytes"] = op_.fan_out ? op_.fan_out->fanned_out_bytes() : 0;
  if (!op_.fan_out) return;
  for (const std::string& note : op_.fan_out->notes()) op_.answer.notes.push_back(note);
}

Status Job::Revive() {
  RETURN_IF_ERROR(MakeFolders(paths_.Ctl()));
  // Of one whose ghost, guardian and CRIU were killed together.
  RETURN_IF_ERROR(EndRestored(paths_.Revive() + "/" + kCriuFolder, paths_.run, Deadline::After(kEndTime)));
  RETURN_IF_ERROR(MakeScratch(paths_.Revive(), op_.reader->manifest().names != nullptr));
  Status status = ReviveFiles();
  if (status.ok()) status = Publish(Step::kRevive, false);
  if (status.ok()) status = RemoveTree(paths_.state + "/exit.json");
  if (status.ok()) {
    Beside loading([this] { return LoadImageMemory(); });
    status = RunCriuRestore();
    Status loaded = loading.Join();
    if (!loaded.ok() && loaded.code() == StatusCode::kResourceExhausted) {
      op_.answer.remedy = "free device memory, or name another device with --gpus; the image is untouched";
    }
    // What the device says is the better reason: a restore of processes that fails is rarely its consequence.
    if (!loaded.ok()) status = std::move(loaded);
  }
  if (status.ok()) status = FetchMemory();
  (void)RemoveScratch(paths_.Revive());
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
  // CRIU may have been killed, by whomever, and then has not said which they are.
  Status status = EndRestored(paths_.Revive() + "/" + kCriuFolder, paths_.run, Deadline::After(kEndTime));
  if (!status.ok()) RawLog(LogLevel::kError, "end the restored processes: %s", status.ToString().c_str());
  status = UndoPrepareFiles(op_.set_aside);
  if (!status.ok()) RawLog(LogLevel::kError, "put files back: %s", status.ToString().c_str());
  restored_ = false;
}

}  // namespace stasis

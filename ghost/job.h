// One task under the ghost's hands: runs the steps of ghost/steps.h and undoes them.
//
// Run() and Adopt() are called by one thread at a time; Cancel() and record() by any.
#ifndef GHOST_JOB_H_
#define GHOST_JOB_H_

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/raw_log.h"
#include "base/status.h"
#include "dedup/image.h"
#include "ghost/child.h"
#include "ghost/coordination.h"
#include "ghost/fan_out.h"
#include "ghost/freezer.h"
#include "ghost/gpu.h"
#include "ghost/guard.h"
#include "ghost/holdings.h"
#include "ghost/manifest.h"
#include "ghost/member.h"
#include "ghost/moved_files.h"
#include "ghost/open_files.h"
#include "ghost/pressure.h"
#include "ghost/request.h"
#include "ghost/snapshot.h"
#include "ghost/steps.h"
#include "ghost/task_files.h"

namespace stasis {

// What a rank has to do with the others of its job in an operation that began while it ran.
enum class Bond : int {
  kNone = 0,  // it may go back by itself
  kCast,      // it has told, or is about to tell, that it stands still
  kTogether,  // all give their communicators up: it goes on and back with the others only
  kOver,      // they have them again
  kEnding,    // all are in an image, and end
};
const char* BondName(Bond bond);
bool FindBond(const std::string& name, Bond* bond);

class Job {
 public:
  static Result<std::unique_ptr<Job>> Load(const GhostArguments& arguments);
  ~Job();

  // Whether the task is the rank that the request names, or none where it names none. Any thread.
  Status CheckRank(const Request& request, Answer* answer) const;
  // One verb except kStatus, from start to end. Returns the result for the client. `coordination` null: the
  // task decides alone.
  Json Run(const Request& request, Progress& progress, Coordination* coordination);
  // Takes over what a ghost that died has left: undoes what it was doing, or goes on holding the task.
  Status Adopt(Adopted adopted);
  // Makes the running operation stop at the next place where it can.
  void Cancel() { cancel_.Set(); }

  // The task stands still until it is asked for something else. Any thread.
  bool held() const { return phase_ == Phase::kHeld || in_doubt_; }
  // Any thread.
  Phase phase() const { return phase_; }
  const std::optional<JobRank>& rank() const { return config_.rank; }
  // Signals that a frozen task cannot take by itself wait for it: thaws it.
  void DeliverSignals();
  // While held: the task's first process, to notice its end.
  pid_t root() const { return process_.init_pid; }
  // The task has ended while it was held.
  void TaskEnded();
  // For the guardian's descriptor, see Guard::fd(); its death starts another.
  int guard_fd() const { return guard_.fd(); }
  void GuardDied();

  TaskRecord record() const;
  // The members' own account, asked now; only while no operation runs.
  Json MemberStatus();
  // Collects what this ghost has left in the store, when nobody waits for it any more.
  void Tidy();

 private:
  Json RunOnce(const Request& request, Progress& progress, bool* newcomer);
  // For who asks for the same again, also of another ghost.
  void KeepResult(const std::string& operation, const Json& result);
  // Processes of the task that use devices.
  size_t MembersNow() const;
  // What exists only while an operation runs.
  struct Operation {
    Request request;
    bool active = false;      // its result has not been reported yet
    bool taken_over = false;  // from a ghost that died in it
    bool undoing = false;     // on the way back to the goal
    Bond bond = Bond::kNone;
    Phase goal = Phase::kRunning;  // where a failure leads back to
    Progress* progress = nullptr;
    Answer answer;
    size_t members = 0;  // processes that used devices when they were asked to stand still
    std::string image_id;
    std::shared_ptr<stasis::Store> store;
    std::unique_ptr<ImageWriter> writer;
    std::unique_ptr<ImageReader> reader;
    std::unique_ptr<FanOut> fan_out;  // uses the reader
    Manifest manifest;
    MovedFiles moved;
    std::optional<TaskQuiesced> quiesced;  // of all processes together
    // A snapshot, and what is needed to write it while the task runs: see EndSnapshot().
    std::unique_ptr<Snapshot> snapshot;
    std::vector<std::string> stream_names;         // by member
    std::unique_ptr<PressureWatch> pressure;       // while it holds device memory
    std::vector<std::unique_ptr<Member>> watched;  // connections to who was told of it
    std::string snapshot_place = "none";
    std::unique_ptr<SaveReport> saved = std::make_unique<SaveReport>();
    std::optional<uint64_t> log_size;              // of output.log at the dump, when it was open
    std::map<std::string, uint64_t> sizes_before;  // of files that are appended to, before the dump
    bool committed = false;
    bool unwanted = false;                  // the image is committed, and not to be
    MonotonicTime asked_at{};               // to stand still
    Deadline still_by = Deadline::Never();  // for that
    MonotonicTime stopped_at{};
    MonotonicTime started_at{};
    Duration standstill{};
    uint64_t moved_bytes = 0;  // of device memory, from device to device
    std::vector<SetAside> set_aside;
    std::vector<std::vector<HeldExtent>> old_extents;
    std::vector<Placements> old_placements;
  };

  Job(GhostArguments arguments, TaskPaths paths);

  static constexpr std::chrono::seconds kThawTime{30};
  // Folders of an image, and what is in them.
  static constexpr char kCriuFolder[] = "criu";
  static constexpr char kFilesFolder[] = "files";
  static constexpr char kLogCopy[] = "output.log";
  static void Log(LogLevel level, const std::string& text) { RawLog(level, "%s", text.c_str()); }

  // job.cc: verbs, and what is checked before anything is touched
  Status Begin(std::vector<Step>* plan);
  Status BeginRestore();
  Status BeginCheckpoint();
  Status BeginMigrate();
  Status CheckNamesForLater(const std::vector<int>& gpus);
  Status PlaceAll(const std::vector<int>& gpus);
  bool TaskAlive() const;
  void SetRecord(const std::string& state);

  // job_walk.cc: the walk along a plan, and back
  Status Walk(const std::vector<Step>& plan);
  Status Take(Step step);
  Status Freeze();
  Status Thaw();
  Status StopProcesses();
  Status Do(Step step);
  void Undo();
  void TryBack(Phase goal);
  void Report(const Status& status);
  const char* StateName() const;
  void FillAnswer();
  void FillCheckpoint();
  void FillActive();

  // job_votes.cc: what all ranks do or none does
  Status VoteAfter(Step step);
  Status Vote(VotePoint point);
  Status TakeVote(VotePoint point, Status status);
  void NoteEnding();
  Status Hold();
  Status WhyItFailed(Status status) const;
  Phase BackTo() const;
  void GiveUpForTheWayBack();
  Status VoteOnTheWayBack(Step step);
  void DropUnwantedImage();
  bool StaysInDoubt();
  Status BeginInDoubt(std::vector<Step>* plan);
  Status AdoptInDoubt();

  // job_guardian.cc: what another ghost needs to go on, and going on
  Status Publish(std::optional<Step> step, bool with_fds);
  Json StateJson(std::optional<Step> step) const;
  Status AwaitLeftCriu(Phase goal);
  Status Recover(Phase goal, const Json& state);
  Status FindRealPhase(Phase* goal);

  // job_end.cc: the end of processes
  Status CancelTask();
  Status EndTask(Duration grace);
  Status KillTree(pid_t root);
  void ThawForTheEnd(const std::string& why);

  // job_store.cc: the store
  Result<std::shared_ptr<stasis::Store>> OpenStore();
  Status ChooseImage();
  Status AwaitLeftDump();
  void Sweep();
  Status OnDisk(Status status);

  // job_task.cc: steps that speak to the task
  Status ConnectMembers();
  Status CheckNotStranded();
  Status Stranded();
  bool IsMember(pid_t pid) const;
  Status CheckNobodyPassesUs(const std::vector<pid_t>& tree);
  std::string PlacesFile() const { return paths_.run + "/placements"; }
  std::map<std::string, int> RecordedPlaces() const;
  Placements PlacesOf(const HeldMember& held) const;
  Status CheckCarriable(const Member& member, TaskStrategy strategy, TaskState expected);
  void NoteDriver(const Member& member, HeldMember* held) const;
  Status GreetAgain(Member& member, HeldMember* held);
  TaskStrategy StrategyOf(const Member& member) const;
  Status HandOver();
  Status CheckNoNewcomer() const;
  Status HandOverMember(Member& member, HeldMember* held);
  Status AskActive(Member& member, HeldMember* held);
  Status Release(bool only_quiesced);
  Status Deafen();
  Status Listen();
  Status ConnectHeld();
  Status Attach();
  Status RecordPlaces();
  Status AttachMember(Member& member, const HeldMember& held);
  Status Reopen();
  Result<TaskResume> ResumeOf(const HeldMember& held, const std::map<int, uint64_t>& device_bytes) const;
  Status Drop();
  Result<TaskState> StateOf(Member& member);

  // job_ranks.cc: steps in which processes wait for each other
  bool CoordinatorLost() const { return coordination_ != nullptr && coordination_->lost(); }
  bool DecidesAlone() const { return coordination_ == nullptr; }
  // What the task's processes and those of the other ranks decide together.
  Coordination& Decisions() { return coordination_ != nullptr ? *coordination_ : alone_; }
  std::vector<Member*> AllMembers() const;
  Result<std::vector<Member*>> MembersIn(TaskState state);
  Status AskAll(const std::vector<Member*>& asked, TaskMessage type, const std::vector<std::byte>& payload,
                const Deadline& deadline, const CancelFlag* cancel, std::vector<Message>* answers);
  void NoteBlockers(const Member& member, const std::vector<TaskBlocker>& found);
  Status Quiesce();
  Status StandStill();
  Status FindCut(bool again);
  Status CheckCut(const std::vector<Message>& drained);
  Status HoldMembers();
  Status GiveUp();
  void NoteQuiesced(const std::vector<TaskQuiesced>& answers);
  Status Rejoin();
  Status RejoinOnce();

  // job_driver.cc: steps that use the driver
  Result<Gpu*> OpenGpu();
  Status Detach();
  Status Reattach();
  Status RestoreDriver(Gpu& gpu, HeldMember& held);
  Status ReattachMember(Gpu& gpu, HeldMember& held, bool* locked);
  Status RestoreDrivers(std::vector<const HeldMember*>* locked);
  Status Store();
  Status LoadMemory();
  Status Move();
  Status NotePlacedUuids();

  // job_dump.cc: checkpoint, by CRIU and into the store
  Status Dump();
  Status KeepMemory();
  Status TakeSnapshot();
  CopyContext SaveContext();
  Status SaveMemory();
  Status SaveSnapshot();
  void EndSnapshot();
  Status LetCriuGo(Step step, HeldChild& criu);
  Status RunCriuDump(const std::string& folder);
  Status DescribeDump(const std::string& criu_folder);
  Status WhyNotDumped(Status dumped, Status kept);
  void CopyLog(const std::string& files_folder);
  Status AddDump();
  Status Commit();

  // job_restore.cc: restore
  Status Revive();
  Status ReviveFiles();
  Status LoadImageMemory();
  Status FetchMemory();
  void FillRestore();
  Status RunCriuRestore();
  Status AdoptProcesses(pid_t root);
  Status CheckImageFits();
  void Abandon();

  const GhostArguments arguments_;
  const TaskPaths paths_;
  Json task_json_;
  TaskConfig config_;
  TaskProcess process_;
  std::string criu_;

  std::atomic<Phase> phase_{Phase::kRunning};
  std::atomic<bool> in_doubt_{false};  // drained, and the others may have been told anything
  Residency residency_ = Residency::kDevice;
  bool want_freeze_ = true;
  bool stranded_ = false;  // held by another ghost, which is gone; found by a request that was refused for it
  bool restored_ = false;  // the processes were restored since they released
  bool left_stopped_ = false;  // by a dump
  Frozen frozen_;
  Holdings holdings_;
  std::vector<std::unique_ptr<Member>> members_;  // as holdings_.members from kHandedOver on; null: deaf
  std::unique_ptr<Gpu> gpu_;
  pid_t criu_pid_ = 0;
  uint64_t criu_start_time_ = 0;  // with criu_pid_, that process and no other
  bool untidy_ = false;           // something of ours in the store is of no use any more

  Guard guard_;
  CancelFlag cancel_;
  AloneCoordination alone_;
  Coordination* coordination_ = nullptr;  // of the operation that runs; null: the task decides alone
  Operation op_;

  mutable std::mutex mutex_;
  TaskRecord record_;  // guarded by mutex_
};

}  // namespace stasis

#endif  // GHOST_JOB_H_

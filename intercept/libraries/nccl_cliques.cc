#include "intercept/libraries/nccl_cliques.h"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/raw_log.h"
#include "intercept/libraries/handles.h"
#include "intercept/libraries/nccl_calls.h"
#include "intercept/libraries/nccl_comms.h"
#include "intercept/libraries/nccl_graphs.h"
#include "intercept/libraries/nccl_handles.h"
#include "intercept/libraries/nccl_ledger.h"
#include "intercept/libraries/nccl_real.h"
#include "intercept/libraries/nccl_watchdog.h"
#include "replay/context_record.h"
#include "vmm/real_driver.h"

namespace stasis::nccl {
namespace {

constexpr std::chrono::seconds kInitTime(60);
constexpr std::chrono::seconds kSpendTime(5);

// Ids that no rank has come by: the library keeps a thread and a socket for each. Of the control thread.
struct Unused {
  std::map<uint64_t, ncclUniqueId> meant;  // by the communicator that each is for
  std::vector<ncclUniqueId> left;          // for none any more
  // Other processes may know it, so that it is not offered again.
  void Leave(uint64_t key) {
    const auto found = meant.find(key);
    if (found == meant.end()) return;
    left.push_back(found->second);
    meant.erase(found);
  }
};
Unused& UnusedIds() {
  static Unused* const unused = new Unused;
  return *unused;
}

// The ranks of one communicator in this process that the program has not destroyed, by rank.
struct Whole {
  uint64_t key = 0;
  int depth = 0;
  int size = 0;
  bool shared = false;     // it has ranks in other processes
  bool complete = false;   // all ranks that were ever here are
  bool in_making = false;  // a rank of it is not known yet
  std::vector<CommPtr> comms;
};

// In the same order in every process, because making one waits for those that make it elsewhere; parents
// before what was split off them.
std::vector<Whole> Cliques() {
  std::map<uint64_t, Whole> by_key;
  for (const CommPtr& comm : CommBook::Get().All()) {
    Whole& clique = by_key[comm->clique_key];
    clique.key = comm->clique_key;
    clique.depth = comm->depth;
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    clique.size = std::max(clique.size, comm->size);
    clique.in_making = clique.in_making || comm->cut == nullptr;
    clique.comms.push_back(comm);
  }
  std::vector<Whole> cliques;
  for (auto& [key, clique] : by_key) {
    std::sort(clique.comms.begin(), clique.comms.end(),
              [](const CommPtr& a, const CommPtr& b) { return a->rank < b->rank; });
    const int ever = CommBook::Get().RanksEver(key);
    clique.shared = ever < clique.size;
    clique.complete = static_cast<int>(clique.comms.size()) == ever;
    cliques.push_back(std::move(clique));
  }
  std::stable_sort(cliques.begin(), cliques.end(),
                   [](const Whole& a, const Whole& b) { return a.depth < b.depth; });
  return cliques;
}

bool IsWell(const Whole& clique) {
  return clique.complete && std::all_of(clique.comms.begin(), clique.comms.end(), [](const CommPtr& comm) {
           return comm->state == CommState::kLive && !comm->finalizing && comm->cut != nullptr &&
                  !comm->cut->clique->over_elsewhere;
         });
}

bool IsGivenUp(const Whole& clique) { return clique.comms.front()->real == nullptr; }

std::string Rank(const CommRecord& comm) {
  return std::string(comm.made_by) + ": rank " + std::to_string(comm.rank) + " of " +
         std::to_string(comm.size);
}

// Windows belong to all ranks alike, each having its part.
bool SameWindows(const Whole& clique) {
  return std::all_of(clique.comms.begin(), clique.comms.end(), [&clique](const CommPtr& comm) {
    return comm->windows.size() == clique.comms.front()->windows.size();
  });
}

Status CheckClique(const Whole& clique) {
  if (clique.in_making) return {};
  const CommRecord& first = *clique.comms.front();
  for (const CommPtr& comm : clique.comms) {
    if (!comm->refused.empty()) return Status(StatusCode::kUnsupported, comm->refused);
    if (comm->config.unknown())
      return Status(StatusCode::kUnsupported, Rank(*comm) + ": a configuration of a later version of NCCL");
    RETURN_IF_ERROR(CheckCaptured(comm));
  }
  if (IsWell(clique) && !SameWindows(clique))
    return Status(StatusCode::kUnsupported,
                  Rank(first) + ": ncclCommWindowDeregister was called by some of the ranks only");
  return {};
}

// NCCL takes the device from the current context.
class DeviceOf {
 public:
  explicit DeviceOf(const CommRecord& comm) {
    CUcontext context = comm.context;
    for (const replay::ContextPtr& active : replay::ActiveContexts())
      if (active->kind() == replay::ObjectKind::kPrimaryContext && active->device() == comm.device)
        context = reinterpret_cast<CUcontext>(active->visible());
    status_ = DriverStatus(::cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  }
  ~DeviceOf() {
    CUcontext popped = nullptr;
    if (status_.ok()) (void)::cuCtxPopCurrent_v2(&popped);
  }
  DeviceOf(const DeviceOf&) = delete;
  DeviceOf& operator=(const DeviceOf&) = delete;
  const Status& status() const { return status_; }

 private:
  Status status_;
};

Status NcclStatus(ncclResult_t result, const CommRecord& comm, const char* call) {
  if (Accepted(result)) return {};
  return Errorf(StatusCode::kDriver, "%s: %s answers %d", Rank(comm).c_str(), call, static_cast<int>(result));
}

// ---- Giving up

void NoteGone(CommRecord& comm) {
  libraries::SetReal<std::remove_pointer_t<ncclComm_t>>(comm.visible, nullptr);
  for (const KeptBuffer& buffer : comm.buffers)
    libraries::SetReal<char>(static_cast<char*>(buffer.visible), nullptr);
  for (const KeptWindow& window : comm.windows)
    libraries::SetReal<std::remove_pointer_t<ncclWindow_t>>(window.visible, nullptr);
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  comm.real = nullptr;
}

// Notes the error that the library reports of a rank; false when there is none.
bool ReadError(CommRecord& comm) {
  ncclResult_t state = ncclSuccess;
  if (comm.real == nullptr || comm.state != CommState::kLive || comm.busy ||
      Real().ncclCommGetAsyncError(comm.real, &state) != ncclSuccess || Accepted(state))
    return false;
  comm.error = state;
  const char* message = Real().ncclGetLastError(comm.real);
  comm.last_error = message == nullptr ? "" : message;
  return true;
}

// Of the ranks of one process only: of others the cut has decided what is given up for good, in all processes
// alike (NoteFailures()), and what one of them ends now is an error to the next.
bool ReadErrors(const Whole& clique) {
  bool failed = false;
  if (clique.shared) return failed;
  for (const CommPtr& comm : clique.comms) failed = ReadError(*comm) || failed;
  return failed;
}

// It can only be ended by the program; what it would have answered until then is kept.
void SetAside(const Whole& clique, bool failed) {
  failed = failed || std::any_of(clique.comms.begin(), clique.comms.end(),
                                 [](const CommPtr& comm) { return comm->state == CommState::kFailed; });
  for (const CommPtr& comm : clique.comms) {
    if (comm->state != CommState::kLive) continue;
    comm->state = failed             ? CommState::kFailed
                  : comm->finalizing ? CommState::kFinalized
                                     : CommState::kOrphaned;
    if (failed && comm->error == ncclSuccess) comm->error = ncclRemoteError;
    NcclLedger::Get().SetOver(comm->cut);
  }
}

// Finalising waits for the device and for peers; all ranks are idle and end it at the same time, so it is
// quick or stuck. False when the communicators had to be aborted, and are gone.
bool Finalize(const std::vector<CommPtr>& comms, const Deadline& deadline) {
  Handles handles;
  for (const CommPtr& comm : comms) handles.Add(comm->real);
  handles.Start();
  Watchdog watchdog(deadline, [&handles] { handles.Abort(); });
  (void)Real().ncclGroupStart();
  for (const CommPtr& comm : comms) {
    if (handles.aborted()) break;
    const DeviceOf device(*comm);
    (void)Real().ncclCommFinalize(comm->real);
  }
  (void)Real().ncclGroupEnd();
  for (const CommPtr& comm : comms) (void)handles.AwaitReady(comm->real, deadline);
  return !watchdog.Stop();
}

void EndOne(CommRecord& comm, bool abort) {
  const DeviceOf device(comm);
  const ncclResult_t result = abort ? Real().ncclCommAbort(comm.real) : Real().ncclCommDestroy(comm.real);
  if (!Accepted(result))
    RawLog(LogLevel::kWarning, "%s: ending it answers %d", Rank(comm).c_str(), static_cast<int>(result));
}

void GiveUpClique(const Whole& clique, const Deadline& deadline) {
  std::vector<CommPtr> there;
  for (const CommPtr& comm : clique.comms)
    if (comm->real != nullptr) there.push_back(comm);
  if (there.empty()) return;
  const bool failed = ReadErrors(clique);
  const bool well = IsWell(clique) && !failed;
  if (!well) SetAside(clique, failed);
  const bool gone = well && !Finalize(there, deadline);
  for (const CommPtr& comm : there) {
    if (!gone) EndOne(*comm, !well && comm->state != CommState::kFinalized);
    NoteGone(*comm);
  }
}

// ---- Making again

// The number of the communicator, and by when all of its ranks have to be there.
struct Joining {
  ncclUniqueId id;
  Deadline deadline;
};

// "1, 3", and at most so many.
std::string Elsewhere(const Whole& clique) {
  constexpr int kNamed = 16;
  std::string text;
  int named = 0;
  for (int rank = 0; rank < clique.size && named < kNamed; ++rank) {
    const bool here = std::any_of(clique.comms.begin(), clique.comms.end(),
                                  [rank](const CommPtr& comm) { return comm->rank == rank; });
    if (here) continue;
    text += (named++ == 0 ? "" : ", ") + std::to_string(rank);
  }
  const int rest = clique.size - static_cast<int>(clique.comms.size()) - named;
  return rest == 0 ? text : text + " and " + std::to_string(rest) + " more";
}

// A communicator of a single rank ends what the library keeps for an id, too. False: it did not come so far,
// as for want of device memory.
bool Spend(const CommRecord& comm, const ncclUniqueId& id) {
  const DeviceOf device(comm);
  if (!device.status().ok()) return false;
  Handles handles;
  Watchdog watchdog(Deadline::After(kSpendTime), [&handles] { handles.Abort(); });
  ncclComm_t made = nullptr;
  (void)Real().ncclGroupStart();
  const ncclResult_t taken = Real().ncclCommInitRank(&made, 1, id, 0);
  if (made != nullptr) handles.Add(made);
  handles.Start();
  const ncclResult_t joined = Real().ncclGroupEnd();
  if (!watchdog.Stop() && made != nullptr) (void)Real().ncclCommAbort(made);
  return Accepted(taken) && joined != ncclUnhandledCudaError;
}

// What could not be spent is kept for the next time.
void SpendLeft(const CommRecord& comm) {
  std::erase_if(UnusedIds().left, [&comm](const ncclUniqueId& id) { return Spend(comm, id); });
}

Status InitRank(const CommPtr& comm, const ncclUniqueId& id, ncclComm_t* made) {
  const DeviceOf device(*comm);
  RETURN_IF_ERROR(device.status());
  if (!comm->config.given())
    return NcclStatus(Real().ncclCommInitRank(made, comm->size, id, comm->rank), *comm, "ncclCommInitRank");
  ncclConfig_t config;
  return NcclStatus(
      Real().ncclCommInitRankConfig(made, comm->size, id, comm->rank, comm->config.Fill(&config)), *comm,
      "ncclCommInitRankConfig");
}

// All ranks at once, as one thread has to. What was made is in `made`, also on failure.
Status InitAll(const Whole& clique, const Joining& joining, Handles* handles, std::vector<ncclComm_t>* made) {
  const CommRecord& first = *clique.comms.front();
  Status status = NcclStatus(Real().ncclGroupStart(), first, "ncclGroupStart");
  for (size_t i = 0; status.ok() && i < clique.comms.size(); ++i) {
    status = InitRank(clique.comms[i], joining.id, &(*made)[i]);
    if ((*made)[i] != nullptr) handles->Add((*made)[i]);
  }
  handles->Start();
  const ncclResult_t joined = Real().ncclGroupEnd();
  // One that has joined uses up the id, whatever comes of it; who is refused before that, or finds no room on
  // the device, may not have come anywhere.
  if (status.ok() && joined == ncclUnhandledCudaError) UnusedIds().Leave(clique.key);
  if (status.ok()) UnusedIds().meant.erase(clique.key);
  const Status ended = NcclStatus(joined, first, "ncclGroupEnd");
  if (status.ok()) status = ended;
  for (size_t i = 0; status.ok() && i < made->size(); ++i)
    status =
        NcclStatus(handles->AwaitReady((*made)[i], joining.deadline), *clique.comms[i], "making it again");
  return status;
}

Status RebuildOperators(CommRecord& comm, Handles* handles) {
  for (KeptOperator& op : comm.operators) {
    void* scalar = op.residence == ncclScalarHostImmediate ? op.value.data() : op.scalar;
    RETURN_IF_ERROR(NcclStatus(handles->Do([&] {
      return Real().ncclRedOpCreatePreMulSum(&op.real, scalar, op.type, op.residence, comm.real);
    }),
                               comm, "ncclRedOpCreatePreMulSum"));
  }
  return {};
}

Status RebuildBuffers(CommRecord& comm, Handles* handles) {
  const DeviceOf device(comm);
  RETURN_IF_ERROR(device.status());
  for (const KeptBuffer& buffer : comm.buffers) {
    void* handle = nullptr;
    RETURN_IF_ERROR(NcclStatus(
        handles->Do([&] { return Real().ncclCommRegister(comm.real, buffer.buffer, buffer.size, &handle); }),
        comm, "ncclCommRegister"));
    libraries::SetReal(static_cast<char*>(buffer.visible), static_cast<char*>(handle));
  }
  return {};
}

// Window by window, each by all ranks together.
Status RebuildWindow(const Whole& clique, size_t index, Handles* handles, const Deadline& deadline) {
  std::vector<ncclWindow_t> made(clique.comms.size());
  Status status = NcclStatus(Real().ncclGroupStart(), *clique.comms.front(), "ncclGroupStart");
  for (size_t i = 0; status.ok() && i < made.size(); ++i) {
    CommRecord& comm = *clique.comms[i];
    const KeptWindow& window = comm.windows[index];
    const DeviceOf device(comm);
    status = device.status();
    if (status.ok())
      status = NcclStatus(handles->Do([&] {
        return Real().ncclCommWindowRegister(comm.real, window.buffer, window.size, &made[i], window.flags);
      }),
                          comm, "ncclCommWindowRegister");
  }
  const Status ended = NcclStatus(Real().ncclGroupEnd(), *clique.comms.front(), "ncclCommWindowRegister");
  if (status.ok()) status = ended;
  for (size_t i = 0; status.ok() && i < made.size(); ++i) {
    status = NcclStatus(handles->AwaitReady(clique.comms[i]->real, deadline), *clique.comms[i],
                        "ncclCommWindowRegister");
    libraries::SetReal(clique.comms[i]->windows[index].visible, made[i]);
  }
  return status;
}

void AbortClique(const Whole& clique) {
  for (const CommPtr& comm : clique.comms) {
    if (comm->real == nullptr) continue;
    EndOne(*comm, true);
    NoteGone(*comm);
  }
}

Status RebuildRegistrations(const Whole& clique, Handles* handles, const Deadline& deadline) {
  for (const CommPtr& comm : clique.comms) {
    RETURN_IF_ERROR(RebuildOperators(*comm, handles));
    RETURN_IF_ERROR(RebuildBuffers(*comm, handles));
  }
  for (size_t i = 0; i < clique.comms.front()->windows.size(); ++i)
    RETURN_IF_ERROR(RebuildWindow(clique, i, handles, deadline));
  return {};
}

void Adopt(const Whole& clique, const std::vector<ncclComm_t>& made) {
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i] == nullptr) continue;
    {
      std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
      clique.comms[i]->real = made[i];
    }
    libraries::SetReal(clique.comms[i]->visible, made[i]);
  }
}

Status Explain(const Whole& clique, bool late, Status status) {
  if (status.ok() || !clique.shared) return status;
  const CommRecord& first = *clique.comms.front();
  if (late)
    return Errorf(StatusCode::kTimeout,
                  "%s was not made again in time: not all of ranks %s, in other processes, came",
                  Rank(first).c_str(), Elsewhere(clique).c_str());
  return std::move(status).WithContext("with ranks " + Elsewhere(clique) + " in other processes");
}

// On failure it is given up again, before what the library may still write to has gone.
Status RebuildClique(const Whole& clique, const Joining& joining) {
  Handles handles;
  Watchdog watchdog(joining.deadline, [&handles] { handles.Abort(); });
  std::vector<ncclComm_t> made(clique.comms.size());
  Status status = InitAll(clique, joining, &handles, &made);
  Adopt(clique, made);
  if (status.ok()) status = RebuildRegistrations(clique, &handles, joining.deadline);
  const bool late = watchdog.Stop();
  if (late) {
    if (status.ok())
      status = Status(StatusCode::kTimeout, Rank(*clique.comms.front()) + ": not made in time");
    for (const CommPtr& comm : clique.comms) NoteGone(*comm);
  } else if (!status.ok()) {
    AbortClique(clique);
  }
  return Explain(clique, late || joining.deadline.Expired(), std::move(status));
}

Result<ncclUniqueId> NewId(const Whole& clique) {
  ncclUniqueId id;
  RETURN_IF_ERROR(NcclStatus(Real().ncclGetUniqueId(&id), *clique.comms.front(), "ncclGetUniqueId"));
  return id;
}

// Of one whose ranks are all here: nobody else knows its id, which is good until they have come by it.
Result<ncclUniqueId> OwnId(const Whole& clique) {
  std::map<uint64_t, ncclUniqueId>& meant = UnusedIds().meant;
  if (const auto unused = meant.find(clique.key); unused != meant.end()) return unused->second;
  ASSIGN_OR_RETURN(const ncclUniqueId id, NewId(clique));
  return meant[clique.key] = id;
}

// What was meant for one that is not to be made again, and what is left of attempts that have failed.
void SpendUnused(const std::vector<Whole>& cliques) {
  std::set<uint64_t> keys;
  for (const auto& [key, id] : UnusedIds().meant) keys.insert(key);
  for (const Whole& clique : cliques)
    if (IsWell(clique) && IsGivenUp(clique)) keys.erase(clique.key);
  for (const uint64_t key : keys) UnusedIds().Leave(key);
  if (!cliques.empty()) SpendLeft(*cliques.front().comms.front());
}

// Those to be made again, one after another. On failure all of them are given up again.
template <typename Choose>
Status RebuildAll(const Choose& choose) {
  std::vector<const Whole*> made;
  const std::vector<Whole> cliques = Cliques();
  for (const Whole& clique : cliques) {
    if (!IsWell(clique) || !IsGivenUp(clique)) continue;
    Joining joining{{}, Deadline::Never()};
    Result<bool> wanted = choose(clique, &joining);
    Status status = wanted.status();
    if (status.ok() && !*wanted) continue;
    if (status.ok()) status = RebuildClique(clique, joining);
    if (status.ok()) {
      made.push_back(&clique);
      continue;
    }
    for (auto it = made.rbegin(); it != made.rend(); ++it) AbortClique(**it);
    return status;
  }
  SpendUnused(cliques);
  return {};
}

bool NeedsRejoin(const Whole& clique) { return clique.shared && IsWell(clique) && IsGivenUp(clique); }

std::string_view Bytes(const ncclUniqueId& id) { return {id.internal, sizeof id.internal}; }
static_assert(sizeof(ncclUniqueId) == kCommIdBytes);

}  // namespace

Status CheckCliques() {
  for (const Whole& clique : Cliques()) RETURN_IF_ERROR(CheckClique(clique));
  return {};
}

void NoteFailures() {
  for (const Whole& clique : Cliques()) {
    if (!clique.shared || clique.in_making) continue;
    for (const CommPtr& comm : clique.comms) {
      if (!ReadError(*comm)) continue;
      comm->state = CommState::kFailed;
      NcclLedger::Get().SetOver(comm->cut);
    }
  }
}

// What was split off ends before what it was split off from, since they may share what they hold.
void GiveUpCliques(Duration finalize_time) {
  const Deadline deadline = Deadline::After(finalize_time);
  const std::vector<Whole> cliques = Cliques();
  std::for_each(cliques.rbegin(), cliques.rend(),
                [&deadline](const Whole& clique) { GiveUpClique(clique, deadline); });
}

Status RebuildCliques() {
  return RebuildAll([](const Whole& clique, Joining* joining) -> Result<bool> {
    if (clique.shared) return false;
    joining->deadline = Deadline::After(kInitTime);
    ASSIGN_OR_RETURN(joining->id, OwnId(clique));
    return true;
  });
}

bool CliquesNeedRejoin() {
  const std::vector<Whole> cliques = Cliques();
  return std::any_of(cliques.begin(), cliques.end(), NeedsRejoin);
}

Result<std::vector<CommReport>> ReportCliques() {
  std::vector<CommReport> reports;
  for (const Whole& clique : Cliques()) {
    if (!NeedsRejoin(clique)) continue;
    CommReport report = {clique.key, clique.size, clique.comms.front()->made_by, {}, {}};
    for (const CommPtr& comm : clique.comms) report.ranks.push_back(comm->rank);
    if (report.ranks.front() == 0) {
      UnusedIds().Leave(clique.key);
      SpendLeft(*clique.comms.front());
      ASSIGN_OR_RETURN(const ncclUniqueId id, NewId(clique));
      UnusedIds().meant[clique.key] = id;
      report.id = Bytes(id);
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

Status RejoinCliques(const CommRejoin& rejoin) {
  const Deadline deadline = Deadline::After(std::chrono::milliseconds(rejoin.deadline_ms));
  std::map<uint64_t, std::string_view> ids;
  for (const CommId& id : rejoin.ids) ids[id.comm] = id.id;
  return RebuildAll([&](const Whole& clique, Joining* joining) -> Result<bool> {
    joining->deadline = deadline;
    if (!clique.shared) {
      ASSIGN_OR_RETURN(joining->id, OwnId(clique));
      return true;
    }
    const auto id = ids.find(clique.key);
    if (id == ids.end()) {
      SetAside(clique, /*failed=*/false);
      return false;
    }
    std::memcpy(joining->id.internal, id->second.data(), std::min(id->second.size(), kCommIdBytes));
    return true;
  });
}

}  // namespace stasis::nccl

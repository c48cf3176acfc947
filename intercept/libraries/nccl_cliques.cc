#include "intercept/libraries/nccl_cliques.h"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/raw_log.h"
#include "intercept/libraries/handles.h"
#include "intercept/libraries/nccl_calls.h"
#include "intercept/libraries/nccl_comms.h"
#include "intercept/libraries/nccl_graphs.h"
#include "intercept/libraries/nccl_ledger.h"
#include "intercept/libraries/nccl_real.h"
#include "intercept/libraries/nccl_watchdog.h"
#include "replay/context_record.h"
#include "vmm/real_driver.h"

namespace stasis::nccl {
namespace {

constexpr std::chrono::seconds kInitTime(60);
constexpr std::chrono::milliseconds kPoll(1);

// The ranks of one communicator in this process that the program has not destroyed, by rank.
struct Whole {
  uint64_t key = 0;
  uint64_t sequence = 0;  // of the oldest
  int size = 0;
  bool complete = false;   // all ranks are here
  bool in_making = false;  // a rank of it is not known yet
  std::vector<CommPtr> comms;
};

// Oldest first, so that parents come before what was split off them.
std::vector<Whole> Cliques() {
  std::map<uint64_t, Whole> by_key;
  for (const CommPtr& comm : CommBook::Get().All()) {
    Whole& clique = by_key[comm->clique_key];
    if (clique.comms.empty()) clique.sequence = comm->sequence;
    clique.key = comm->clique_key;
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    clique.size = std::max(clique.size, comm->size);
    clique.in_making = clique.in_making || comm->cut == nullptr;
    clique.comms.push_back(comm);
  }
  std::vector<Whole> cliques;
  for (auto& [key, clique] : by_key) {
    std::sort(clique.comms.begin(), clique.comms.end(),
              [](const CommPtr& a, const CommPtr& b) { return a->rank < b->rank; });
    clique.complete = static_cast<int>(clique.comms.size()) == clique.size;
    cliques.push_back(std::move(clique));
  }
  std::sort(cliques.begin(), cliques.end(),
            [](const Whole& a, const Whole& b) { return a.sequence < b.sequence; });
  return cliques;
}

bool IsWell(const Whole& clique) {
  return clique.complete && std::all_of(clique.comms.begin(), clique.comms.end(), [](const CommPtr& comm) {
           return comm->state == CommState::kLive && !comm->finalizing;
         });
}

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
  const bool over = std::all_of(clique.comms.begin(), clique.comms.end(),
                                [](const CommPtr& comm) { return comm->state == CommState::kFinalized; });
  if (!over && CommBook::Get().RanksEver(clique.key) < clique.size)
    return Status(StatusCode::kUnsupported, Rank(first) + ": the other ranks are in other processes");
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

// A communicator that does not block says when it is ready. `ask` is ncclCommGetAsyncError's question.
template <typename Ask>
ncclResult_t AwaitAnswer(const Ask& ask, const Deadline& deadline) {
  for (;;) {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t result = ask(&state);
    if (result != ncclSuccess) return result;
    if (state != ncclInProgress || deadline.Expired()) return state;
    std::this_thread::sleep_for(kPoll);  // there is no other way to be told
  }
}

ncclResult_t AwaitReady(ncclComm_t real, const Deadline& deadline) {
  return AwaitAnswer([real](ncclResult_t* state) { return Real().ncclCommGetAsyncError(real, state); },
                     deadline);
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

// The error that the library reports of each rank; true when there is one.
bool ReadErrors(const Whole& clique) {
  bool failed = false;
  for (const CommPtr& comm : clique.comms) {
    ncclResult_t state = ncclSuccess;
    if (comm->real == nullptr || comm->state != CommState::kLive ||
        Real().ncclCommGetAsyncError(comm->real, &state) != ncclSuccess || state == ncclSuccess)
      continue;
    comm->error = state;
    const char* message = Real().ncclGetLastError(comm->real);
    comm->last_error = message == nullptr ? "" : message;
    failed = true;
  }
  return failed;
}

// It can only be ended by the program; what it would have answered until then is kept.
void SetAside(const Whole& clique, bool failed) {
  for (const CommPtr& comm : clique.comms) {
    if (comm->state != CommState::kLive) continue;
    comm->state = failed             ? CommState::kFailed
                  : comm->finalizing ? CommState::kFinalized
                                     : CommState::kOrphaned;
    if (failed && comm->error == ncclSuccess) comm->error = ncclRemoteError;
    NcclLedger::Get().SetOver(comm->cut);
  }
}

// Aborting a communicator frees it: after that nobody may name it, only return from a call that is inside.
class Finalizing {
 public:
  explicit Finalizing(const std::vector<CommPtr>& comms) : comms_(comms) {}
  void Abort() {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    for (const CommPtr& comm : comms_) (void)Real().ncclCommAbort(comm->real);
  }
  bool aborted() {
    std::lock_guard<std::mutex> lock(mutex_);
    return aborted_;
  }
  ncclResult_t State(const CommRecord& comm, ncclResult_t* state) {
    std::lock_guard<std::mutex> lock(mutex_);
    return aborted_ ? ncclInvalidUsage : Real().ncclCommGetAsyncError(comm.real, state);
  }

 private:
  const std::vector<CommPtr>& comms_;
  std::mutex mutex_;
  bool aborted_ = false;
};

// Finalising waits for the device and for peers; all ranks are here and idle, so it is quick or stuck.
// False when the communicators had to be aborted, and are gone.
bool Finalize(const std::vector<CommPtr>& comms, Duration time) {
  Finalizing ending(comms);
  Watchdog watchdog(time, [&ending] { ending.Abort(); });
  (void)Real().ncclGroupStart();
  for (const CommPtr& comm : comms) {
    if (ending.aborted()) break;
    const DeviceOf device(*comm);
    (void)Real().ncclCommFinalize(comm->real);
  }
  (void)Real().ncclGroupEnd();
  for (const CommPtr& comm : comms)
    (void)AwaitAnswer([&](ncclResult_t* state) { return ending.State(*comm, state); }, Deadline::After(time));
  return !watchdog.Stop();
}

void EndOne(CommRecord& comm, bool abort) {
  const DeviceOf device(comm);
  const ncclResult_t result = abort ? Real().ncclCommAbort(comm.real) : Real().ncclCommDestroy(comm.real);
  if (!Accepted(result))
    RawLog(LogLevel::kWarning, "%s: ending it answers %d", Rank(comm).c_str(), static_cast<int>(result));
}

void GiveUpClique(const Whole& clique, Duration finalize_time) {
  std::vector<CommPtr> there;
  for (const CommPtr& comm : clique.comms)
    if (comm->real != nullptr) there.push_back(comm);
  if (there.empty()) return;
  const bool failed = ReadErrors(clique);
  const bool well = IsWell(clique) && !failed;
  if (!well) SetAside(clique, failed);
  const bool gone = well && !Finalize(there, finalize_time);
  for (const CommPtr& comm : there) {
    if (!gone) EndOne(*comm, !well && comm->state != CommState::kFinalized);
    NoteGone(*comm);
  }
}

// ---- Making again

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

// All ranks at once, as one thread has to.
Status InitAll(const Whole& clique, std::vector<ncclComm_t>* made) {
  ncclUniqueId id;
  const CommRecord& first = *clique.comms.front();
  RETURN_IF_ERROR(NcclStatus(Real().ncclGetUniqueId(&id), first, "ncclGetUniqueId"));
  Status status = NcclStatus(Real().ncclGroupStart(), first, "ncclGroupStart");
  for (size_t i = 0; status.ok() && i < clique.comms.size(); ++i)
    status = InitRank(clique.comms[i], id, &(*made)[i]);
  const Status ended = NcclStatus(Real().ncclGroupEnd(), first, "ncclGroupEnd");
  if (status.ok()) status = ended;
  const Deadline deadline = Deadline::After(kInitTime);
  for (size_t i = 0; status.ok() && i < made->size(); ++i)
    status = NcclStatus(AwaitReady((*made)[i], deadline) == ncclSuccess ? ncclSuccess : ncclInternalError,
                        *clique.comms[i], "making it again");
  return status;
}

Status RebuildOperators(CommRecord& comm) {
  for (KeptOperator& op : comm.operators) {
    void* scalar = op.residence == ncclScalarHostImmediate ? op.value.data() : op.scalar;
    RETURN_IF_ERROR(
        NcclStatus(Real().ncclRedOpCreatePreMulSum(&op.real, scalar, op.type, op.residence, comm.real), comm,
                   "ncclRedOpCreatePreMulSum"));
  }
  return {};
}

Status RebuildBuffers(CommRecord& comm) {
  const DeviceOf device(comm);
  RETURN_IF_ERROR(device.status());
  for (const KeptBuffer& buffer : comm.buffers) {
    void* handle = nullptr;
    RETURN_IF_ERROR(NcclStatus(Real().ncclCommRegister(comm.real, buffer.buffer, buffer.size, &handle), comm,
                               "ncclCommRegister"));
    libraries::SetReal(static_cast<char*>(buffer.visible), static_cast<char*>(handle));
  }
  return {};
}

// Window by window, each by all ranks together.
Status RebuildWindow(const Whole& clique, size_t index) {
  std::vector<ncclWindow_t> made(clique.comms.size());
  Status status = NcclStatus(Real().ncclGroupStart(), *clique.comms.front(), "ncclGroupStart");
  for (size_t i = 0; status.ok() && i < made.size(); ++i) {
    CommRecord& comm = *clique.comms[i];
    const KeptWindow& window = comm.windows[index];
    const DeviceOf device(comm);
    status = device.status();
    if (status.ok())
      status = NcclStatus(
          Real().ncclCommWindowRegister(comm.real, window.buffer, window.size, &made[i], window.flags), comm,
          "ncclCommWindowRegister");
  }
  const Status ended = NcclStatus(Real().ncclGroupEnd(), *clique.comms.front(), "ncclCommWindowRegister");
  if (status.ok()) status = ended;
  for (size_t i = 0; status.ok() && i < made.size(); ++i) {
    (void)AwaitReady(clique.comms[i]->real, Deadline::After(kInitTime));
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

Status RebuildRegistrations(const Whole& clique) {
  for (const CommPtr& comm : clique.comms) {
    RETURN_IF_ERROR(RebuildOperators(*comm));
    RETURN_IF_ERROR(RebuildBuffers(*comm));
  }
  for (size_t i = 0; i < clique.comms.front()->windows.size(); ++i) RETURN_IF_ERROR(RebuildWindow(clique, i));
  return {};
}

// On failure it is given up again, before what the library may still write to has gone.
Status RebuildClique(const Whole& clique) {
  std::vector<ncclComm_t> made(clique.comms.size());
  Status status = InitAll(clique, &made);
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i] == nullptr) continue;
    {
      std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
      clique.comms[i]->real = made[i];
    }
    libraries::SetReal(clique.comms[i]->visible, made[i]);
  }
  if (status.ok()) status = RebuildRegistrations(clique);
  if (!status.ok()) AbortClique(clique);
  return status;
}

}  // namespace

Status CheckCliques() {
  for (const Whole& clique : Cliques()) RETURN_IF_ERROR(CheckClique(clique));
  return {};
}

// What was split off ends before what it was split off from, since they may share what they hold.
void GiveUpCliques(Duration finalize_time) {
  const std::vector<Whole> cliques = Cliques();
  std::for_each(cliques.rbegin(), cliques.rend(),
                [finalize_time](const Whole& clique) { GiveUpClique(clique, finalize_time); });
}

Status RebuildCliques() {
  std::vector<const Whole*> made;
  const std::vector<Whole> cliques = Cliques();
  for (const Whole& clique : cliques) {
    if (!IsWell(clique) || clique.comms.front()->real != nullptr) continue;
    const Status status = RebuildClique(clique);
    if (status.ok()) {
      made.push_back(&clique);
      continue;
    }
    for (auto it = made.rbegin(); it != made.rend(); ++it) AbortClique(**it);
    return status;
  }
  return {};
}

}  // namespace stasis::nccl

#include "intercept/libraries/nccl_calls.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

#include "intercept/libraries/nccl_library.h"
#include "intercept/libraries/nccl_real.h"
#include "vmm/real_driver.h"

namespace stasis::nccl {
namespace {

// What the calling thread has done in its open group.
struct Group {
  std::vector<CommPtr> comms;
  std::vector<CreationPtr> creations;
};
__thread Group* t_group __attribute__((tls_model("initial-exec")));

Group& OpenGroup() {
  if (t_group == nullptr) t_group = new Group;
  return *t_group;
}

// What the library goes on with behind the return of the call: it has the address of where its handle goes,
// and may write there to the end.
struct GoingOn {
  CreationPtr creation;
  bool finished;  // the program has its handle
};
constinit std::mutex g_mutex;  // a leaf
std::vector<GoingOn>& AllGoingOn() {
  static std::vector<GoingOn>* const all = new std::vector<GoingOn>;
  return *all;
}

std::vector<GoingOn> TakeGoingOn(const CommPtr& comm) {
  std::vector<GoingOn> taken;
  std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<GoingOn>& all = AllGoingOn();
  for (const GoingOn& one : all)
    if (one.creation->told_by() == comm) taken.push_back(one);
  std::erase_if(all, [&comm](const GoingOn& one) { return one.creation->told_by() == comm; });
  return taken;
}

// Asks the library what it has made.
void Learn(const CommPtr& comm) {
  int size = 0, rank = 0, device = 0;
  const RealNccl& nccl = Real();
  if (nccl.ncclCommCount(comm->real, &size) != ncclSuccess ||
      nccl.ncclCommUserRank(comm->real, &rank) != ncclSuccess ||
      nccl.ncclCommCuDevice(comm->real, &device) != ncclSuccess)
    return;
  const CutRankPtr cut = NcclLedger::Get().AddRank(comm->clique_key, size, rank, comm->made_by);
  {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    comm->size = size;
    comm->rank = rank;
    comm->device = device;
    comm->cut = cut;
  }
  CommBook::Get().NoteRank(comm);
}

void Finish(const CreationPtr& creation, ncclResult_t result) {
  const bool finished = creation->Finish(result);
  if (result != ncclInProgress) return;
  std::lock_guard<std::mutex> lock(g_mutex);
  AllGoingOn().push_back({creation, finished});
}

}  // namespace

CutRankPtr RankOf(const CommPtr& comm) {
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  return comm->cut;
}

ncclResult_t StandInAnswer(CommRecord& comm) {
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  if (comm.real != nullptr) return ncclSuccess;
  return comm.state == CommState::kFailed ? comm.error : ncclInvalidUsage;
}

void NoteBusy(const CommPtr& comm, const char* call) {
  {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    if (comm->busy) return;
    comm->busy = true;
  }
  NcclLedger::Get().OpenMeeting(comm->clique_key, call);
}

void NoteAsyncState(const CommPtr& comm, ncclResult_t state) {
  if (state == ncclInProgress) return;
  bool unknown;
  {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    if (!comm->busy) return;
    comm->busy = false;
    unknown = comm->cut == nullptr;
    if (comm->finalizing) comm->state = CommState::kFinalized;
  }
  if (state == ncclSuccess && unknown) Learn(comm);
  for (const GoingOn& one : TakeGoingOn(comm))
    if (!one.finished) (void)one.creation->Finish(state);
  NcclLedger::Get().CloseMeeting(comm->clique_key);
}

void PollBusy() {
  for (const CommPtr& comm : CommBook::Get().All()) {
    ncclResult_t state = ncclInProgress;
    {
      // Held over the call, which does not block, so that the object is not freed meanwhile.
      std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
      if (!comm->busy || comm->ending || comm->real == nullptr) continue;
      if (Real().ncclCommGetAsyncError(comm->real, &state) != ncclSuccess) continue;
    }
    NoteAsyncState(comm, state);
  }
}

void NoteInGroup(const CommPtr& comm) {
  if (NcclLedger::Get().Depth() > 0) OpenGroup().comms.push_back(comm);
}

void GroupEnded(const libraries::LibraryCall& call, ncclResult_t result) {
  const std::unique_ptr<Group> group(t_group);
  t_group = nullptr;
  if (group == nullptr) return;
  for (const CreationPtr& creation : group->creations) Finish(creation, result);
  if (result != ncclInProgress) return;
  for (const CommPtr& comm : group->comms) NoteBusy(comm, call.name());
}

CommCreation::CommCreation(const libraries::LibraryCall& call, ncclComm_t* place, uint64_t key,
                           const KeptConfig& config, CommPtr parent)
    : comm_(std::make_shared<CommRecord>()), parent_(std::move(parent)), place_(place) {
  EnsureRegistered();
  comm_->made_by = call.name();
  comm_->clique_key = key;
  comm_->depth = parent_ == nullptr ? 0 : parent_->depth + 1;
  comm_->config = config;
  (void)::cuCtxGetCurrent(&comm_->context);
}

bool CommCreation::Finish(ncclResult_t result) {
  const bool going_on = result == ncclInProgress;
  if (going_on && made_ == nullptr && parent_ != nullptr) {
    NoteBusy(parent_, comm_->made_by);
    return false;
  }
  *place_ = nullptr;
  // Without a colour a rank gets none.
  if (!Accepted(result) || made_ == nullptr) return true;
  CommBook::Get().Add(comm_, made_);
  *place_ = comm_->visible;
  if (going_on) {
    NoteBusy(comm_, comm_->made_by);
  } else {
    Learn(comm_);
  }
  return true;
}

bool WindowCreation::Finish(ncclResult_t result) {
  if (result == ncclInProgress && made_ == nullptr) {
    NoteBusy(comm_, "ncclCommWindowRegister");
    return false;
  }
  *place_ = made_;
  // The library gives none where it has no use for it.
  if (!Accepted(result) || made_ == nullptr) return true;
  *place_ = window_.visible = libraries::AddHandle(made_);
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  comm_->windows.push_back(window_);
  return true;
}

void Called(const CreationPtr& creation, ncclResult_t result) {
  if (NcclLedger::Get().Depth() > 0 && Accepted(result)) {
    OpenGroup().creations.push_back(creation);
  } else {
    Finish(creation, result);
  }
}

void NoteFinalize(const CommPtr& comm, ncclResult_t result) {
  NcclLedger::Get().SetOver(RankOf(comm));
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  comm->finalizing = true;
  if (result == ncclSuccess) comm->state = CommState::kFinalized;
}

void ResetCallsAfterFork() { new (&g_mutex) std::mutex; }

void EndRegistrations(const CommPtr& comm) {
  (void)TakeGoingOn(comm);
  std::vector<KeptBuffer> buffers;
  std::vector<KeptWindow> windows;
  {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    buffers.swap(comm->buffers);
    windows.swap(comm->windows);
  }
  const auto end = [](auto* visible) {
    (void)libraries::ForgetHandle(visible);
    libraries::EndHandle(visible);
  };
  for (const KeptBuffer& buffer : buffers) end(static_cast<char*>(buffer.visible));
  for (const KeptWindow& window : windows) end(window.visible);
}

}  // namespace stasis::nccl

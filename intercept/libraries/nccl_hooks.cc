// NCCL: how communicators are made and end, and what they say of themselves.
#include "nccl_hooks.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "intercept/libraries/nccl_calls.h"
#include "intercept/libraries/nccl_ids.h"
#include "intercept/libraries/nccl_library.h"

namespace stasis::libraries::hooks {
namespace {

using nccl::Accepted;
using nccl::Also;
using nccl::Called;
using nccl::CliqueKey;
using nccl::CommBook;
using nccl::CommCreation;
using nccl::CommPtr;
using nccl::CommState;
using nccl::KeptConfig;
using nccl::Local;
using nccl::NcclCall;
using nccl::NcclLedger;
using nccl::OnComm;
using nccl::Operation;

Operation Meeting(const char* name, uint64_t key) {
  Operation operation;
  operation.call = name;
  operation.kind = Operation::Kind::kMeeting;
  operation.meeting = key;
  return operation;
}

// `make` is given the place for the library's handle. The creation must outlive a call that the library goes
// on with behind its return.
template <typename Make>
ncclResult_t Init(const LibraryCall& call, ncclComm_t* place, const ncclUniqueId* ids, int count,
                  const KeptConfig& config, Make make) {
  const uint64_t key = CliqueKey(ids, count);
  NcclCall inside(Meeting(call.name(), key));
  const auto creation = std::make_shared<CommCreation>(call, place, key, config);
  const ncclResult_t result = make(creation->made());
  if (!Accepted(result)) inside.Failed();
  Called(creation, result);
  nccl::NoteIdsUsed(ids, count);
  return result;
}

bool Usable(const ncclComm_t* place, const void* other) { return place != nullptr && other != nullptr; }

// The children of one parent by the same call are told apart by its number; all ranks call in the same order.
uint64_t SplitKey(const CommPtr& parent, int color) {
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  return CliqueKey(parent->clique_key, "split", parent->splits++, color);
}

// Ranks that are left out do not call.
uint64_t ShrinkKey(const CommPtr& parent, const int* excluded, int count) {
  std::vector<int> ranks;
  if (excluded != nullptr && count > 0) ranks.assign(excluded, excluded + count);
  std::sort(ranks.begin(), ranks.end());
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  return CliqueKey(parent->clique_key, "shrink", parent->shrinks[ranks]++, ranks);
}

template <typename Make>
ncclResult_t MakeChild(const LibraryCall& call, const CommPtr& parent, ncclComm_t* place,
                       const ncclConfig_t* config, uint64_t key, Make make) {
  // Without a configuration of its own the child has its parent's.
  const auto creation = std::make_shared<CommCreation>(
      call, place, key, config != nullptr ? KeptConfig(config) : parent->config, parent);
  const ncclResult_t result = make(creation->made());
  Called(creation, result);
  return result;
}

// The communicator's handle means nothing any more once `end` has succeeded.
template <typename End>
ncclResult_t Ended(const LibraryCall& call, ncclComm_t visible, Operation::Kind kind, End end) {
  const CommPtr comm = CommBook::Get().Find(visible);
  if (comm == nullptr) return end(ToReal(visible));
  Operation operation = Meeting(call.name(), comm->clique_key);
  operation.kind = kind;
  operation.rank = nccl::RankOf(comm);
  NcclCall inside(operation);
  ncclComm_t real;
  bool busy;
  {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    comm->ending = true;
    real = comm->real;
    busy = comm->busy;
    comm->busy = false;
  }
  if (busy) NcclLedger::Get().CloseMeeting(comm->clique_key);
  // From here on the library may give the value to a new one.
  (void)ForgetHandle(visible);
  const ncclResult_t result = real == nullptr ? ncclSuccess : end(real);
  if (!Accepted(result)) {
    RestoreHandle(visible, real);
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    comm->ending = false;
    return result;
  }
  NcclLedger::Get().SetOver(nccl::RankOf(comm));
  nccl::EndRegistrations(comm);
  CommBook::Get().Remove(comm);
  EndHandle(visible);
  return result;
}

// Other ranks may have ended theirs before a pause, as they may without one; there is nothing left to flush.
ncclResult_t FinalizeStandIn(nccl::CommRecord& comm) {
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  if (comm.state == CommState::kFailed) return comm.error;
  if (comm.state != CommState::kOrphaned) return ncclInvalidUsage;
  comm.state = CommState::kFinalized;
  return ncclSuccess;
}

// Its operations were stopped midway, and no call brings another one into that state.
void NoteBroken(const LibraryCall& call, const CommPtr& comm) {
  NcclLedger::Get().SetOver(nccl::RankOf(comm));
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  comm->refused = call.name();
}

template <typename Function>
ncclResult_t Fact(const LibraryCall& call, ncclComm_t visible, int nccl::CommRecord::*fact, int* out,
                  Function real) {
  const CommPtr comm = CommBook::Get().Find(visible);
  if (comm != nullptr && out != nullptr) {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    if (comm->real == nullptr) {
      *out = *comm.*fact;
      return ncclSuccess;
    }
  }
  return OnComm(call, visible, Local(),
                [&](ncclComm_t comm_now, const CommPtr&) { return real(comm_now, out); });
}

}  // namespace

ncclResult_t ncclGetUniqueId(const LibraryCall& call, ncclUniqueId* uniqueId) {
  nccl::EnsureRegistered();
  NcclCall inside(Local());
  const ncclResult_t result = call.Real<decltype(&::ncclGetUniqueId)>()(uniqueId);
  if (result == ncclSuccess) nccl::NoteIdMade(*uniqueId);
  return result;
}

ncclResult_t ncclCommInitRank(const LibraryCall& call, ncclComm_t* comm, int nranks, ncclUniqueId commId,
                              int rank) {
  const auto real = call.Real<decltype(&::ncclCommInitRank)>();
  if (comm == nullptr) return real(comm, nranks, commId, rank);
  return Init(call, comm, &commId, 1, KeptConfig(),
              [&](ncclComm_t* made) { return real(made, nranks, commId, rank); });
}

ncclResult_t ncclCommInitRankConfig(const LibraryCall& call, ncclComm_t* comm, int nranks,
                                    ncclUniqueId commId, int rank, ncclConfig_t* config) {
  const auto real = call.Real<decltype(&::ncclCommInitRankConfig)>();
  if (comm == nullptr) return real(comm, nranks, commId, rank, config);
  return Init(call, comm, &commId, 1, KeptConfig(config),
              [&](ncclComm_t* made) { return real(made, nranks, commId, rank, config); });
}

ncclResult_t ncclCommInitRankScalable(const LibraryCall& call, ncclComm_t* newcomm, int nranks, int myrank,
                                      int nId, ncclUniqueId* commIds, ncclConfig_t* config) {
  const auto real = call.Real<decltype(&::ncclCommInitRankScalable)>();
  if (!Usable(newcomm, commIds) || nId <= 0) return real(newcomm, nranks, myrank, nId, commIds, config);
  return Init(call, newcomm, commIds, nId, KeptConfig(config),
              [&](ncclComm_t* made) { return real(made, nranks, myrank, nId, commIds, config); });
}

ncclResult_t ncclCommInitAll(const LibraryCall& call, ncclComm_t* comm, int ndev, const int* devlist) {
  const auto real = call.Real<decltype(&::ncclCommInitAll)>();
  if (comm == nullptr || ndev <= 0) return real(comm, ndev, devlist);
  const uint64_t key = nccl::LocalKey();
  NcclCall inside(Meeting(call.name(), key));
  std::vector<ncclComm_t> made(static_cast<size_t>(ndev));
  const ncclResult_t result = real(made.data(), ndev, devlist);
  if (!Accepted(result)) inside.Failed();
  for (int i = 0; i < ndev; ++i) {
    const auto creation = std::make_shared<CommCreation>(call, &comm[i], key, KeptConfig());
    *creation->made() = made[static_cast<size_t>(i)];
    Called(creation, result);
  }
  return result;
}

ncclResult_t ncclCommSplit(const LibraryCall& call, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  const auto real = call.Real<decltype(&::ncclCommSplit)>();
  return OnComm(call, comm, nccl::Collective(), [&](ncclComm_t parent, const CommPtr& record) {
    if (record == nullptr || newcomm == nullptr) return real(parent, color, key, newcomm, config);
    const uint64_t child = SplitKey(record, color);
    return MakeChild(call, record, newcomm, config, child,
                     [&](ncclComm_t* made) { return real(parent, color, key, made, config); });
  });
}

ncclResult_t ncclCommShrink(const LibraryCall& call, ncclComm_t comm, int* excludeRanksList,
                            int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config,
                            int shrinkFlags) {
  const auto real = call.Real<decltype(&::ncclCommShrink)>();
  const auto shrink = [&](ncclComm_t parent, ncclComm_t* made) {
    return real(parent, excludeRanksList, excludeRanksCount, made, config, shrinkFlags);
  };
  const CommPtr known = CommBook::Get().Find(comm);
  const Operation meeting = Meeting(call.name(), known == nullptr ? 0 : known->clique_key);
  return OnComm(call, comm, meeting, [&](ncclComm_t parent, const CommPtr& record) {
    if (record == nullptr || newcomm == nullptr) return shrink(parent, newcomm);
    const uint64_t child = ShrinkKey(record, excludeRanksList, excludeRanksCount);
    const ncclResult_t result = MakeChild(call, record, newcomm, config, child,
                                          [&](ncclComm_t* made) { return shrink(parent, made); });
    if ((shrinkFlags & NCCL_SHRINK_ABORT) != 0 && Accepted(result)) NoteBroken(call, record);
    return result;
  });
}

ncclResult_t ncclCommFinalize(const LibraryCall& call, ncclComm_t comm) {
  const CommPtr known = CommBook::Get().Find(comm);
  const Operation meeting = Meeting(call.name(), known == nullptr ? 0 : known->clique_key);
  return OnComm(call, comm, meeting, Also::kEnded, [&](ncclComm_t real, const CommPtr& record) {
    if (record != nullptr && real == nullptr) return FinalizeStandIn(*record);
    const ncclResult_t result = call.Real<decltype(&::ncclCommFinalize)>()(real);
    if (record != nullptr && Accepted(result)) nccl::NoteFinalize(record, result);
    return result;
  });
}

ncclResult_t ncclCommDestroy(const LibraryCall& call, ncclComm_t comm) {
  return Ended(call, comm, Operation::Kind::kMeeting,
               [&](ncclComm_t real) { return call.Real<decltype(&::ncclCommDestroy)>()(real); });
}

ncclResult_t ncclCommAbort(const LibraryCall& call, ncclComm_t comm) {
  return Ended(call, comm, Operation::Kind::kLocal,
               [&](ncclComm_t real) { return call.Real<decltype(&::ncclCommAbort)>()(real); });
}

ncclResult_t ncclCommRevoke(const LibraryCall& call, ncclComm_t comm, int revokeFlags) {
  return OnComm(call, comm, Local(), [&](ncclComm_t real, const CommPtr& record) {
    const ncclResult_t result = call.Real<decltype(&::ncclCommRevoke)>()(real, revokeFlags);
    if (record != nullptr && Accepted(result)) NoteBroken(call, record);
    return result;
  });
}

ncclResult_t ncclCommGetAsyncError(const LibraryCall& call, ncclComm_t comm, ncclResult_t* asyncError) {
  const CommPtr known = CommBook::Get().Find(comm);
  if (known != nullptr && asyncError != nullptr) {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    if (known->real == nullptr) {
      *asyncError = known->state == CommState::kFailed ? known->error : ncclSuccess;
      return ncclSuccess;
    }
  }
  return OnComm(call, comm, Local(), [&](ncclComm_t real, const CommPtr& record) {
    const ncclResult_t result = call.Real<decltype(&::ncclCommGetAsyncError)>()(real, asyncError);
    if (record != nullptr && result == ncclSuccess && asyncError != nullptr)
      nccl::NoteAsyncState(record, *asyncError);
    return result;
  });
}

ncclResult_t ncclCommCount(const LibraryCall& call, ncclComm_t comm, int* count) {
  return Fact(call, comm, &nccl::CommRecord::size, count, call.Real<decltype(&::ncclCommCount)>());
}

ncclResult_t ncclCommCuDevice(const LibraryCall& call, ncclComm_t comm, int* device) {
  return Fact(call, comm, &nccl::CommRecord::device, device, call.Real<decltype(&::ncclCommCuDevice)>());
}

ncclResult_t ncclCommUserRank(const LibraryCall& call, ncclComm_t comm, int* rank) {
  return Fact(call, comm, &nccl::CommRecord::rank, rank, call.Real<decltype(&::ncclCommUserRank)>());
}

const char* ncclGetLastError(const LibraryCall& call, ncclComm_t comm) {
  const CommPtr known = CommBook::Get().Find(comm);
  ncclComm_t real = ToReal(comm);
  if (known != nullptr) {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    if (known->real == nullptr) return known->last_error.c_str();
    real = known->real;
  }
  NcclCall inside(Local());
  return call.Real<decltype(&::ncclGetLastError)>()(real);
}

}  // namespace stasis::libraries::hooks

// NCCL communicators: not carried yet, so a program that makes one is refused by the name of the call.
#include "nccl_hooks.h"

#include "intercept/taint.h"

namespace stasis::libraries::hooks {
namespace {

template <typename... Arguments>
ncclResult_t Refused(const LibraryCall& call, Arguments... arguments) {
  const ncclResult_t result = call.Real<ncclResult_t (*)(Arguments...)>()(arguments...);
  if (result == ncclSuccess) Taint(call.name(), true);
  return result;
}

}  // namespace

ncclResult_t ncclCommInitRankConfig(const LibraryCall& call, ncclComm_t* comm, int nranks,
                                    ncclUniqueId commId, int rank, ncclConfig_t* config) {
  return Refused(call, comm, nranks, commId, rank, config);
}
ncclResult_t ncclCommInitRank(const LibraryCall& call, ncclComm_t* comm, int nranks, ncclUniqueId commId,
                              int rank) {
  return Refused(call, comm, nranks, commId, rank);
}
ncclResult_t ncclCommInitAll(const LibraryCall& call, ncclComm_t* comm, int ndev, const int* devlist) {
  return Refused(call, comm, ndev, devlist);
}
ncclResult_t ncclCommSplit(const LibraryCall& call, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  return Refused(call, comm, color, key, newcomm, config);
}
ncclResult_t ncclCommShrink(const LibraryCall& call, ncclComm_t comm, int* excludeRanksList,
                            int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config,
                            int shrinkFlags) {
  return Refused(call, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
}
ncclResult_t ncclCommInitRankScalable(const LibraryCall& call, ncclComm_t* newcomm, int nranks, int myrank,
                                      int nId, ncclUniqueId* commIds, ncclConfig_t* config) {
  return Refused(call, newcomm, nranks, myrank, nId, commIds, config);
}

}  // namespace stasis::libraries::hooks

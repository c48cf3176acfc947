#include "intercept/libraries/nccl_testing.h"

#include <cstdio>
#include <cstring>

#include "intercept/libraries/real_functions.h"

namespace stasis::nccl {
namespace {

using libraries::LibraryFn;

std::string IdText(const ncclUniqueId& id) { return id.internal; }

ncclResult_t FakeGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "id %d", Fake().ids++);
  return ncclSuccess;
}
ncclResult_t FakeInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return Fake().Init(comm, size, IdText(id), rank, nullptr);
}
ncclResult_t FakeInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return Fake().Init(comm, size, IdText(id), rank, config);
}
ncclResult_t FakeSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  if (color < 0) return *child = nullptr, ncclSuccess;
  return Fake().Init(child, comm->size, comm->id + " split " + std::to_string(color), key, nullptr);
}
ncclResult_t FakeFinalize(ncclComm_t comm) { return Fake().Finalize(comm); }
ncclResult_t FakeDestroy(ncclComm_t comm) { return Fake().End(comm); }
ncclResult_t FakeAbort(ncclComm_t comm) {
  Fake().LetFinalize();
  return Fake().End(comm);
}
// As the real one: it must not be asked about a communicator that is gone.
ncclResult_t FakeAsyncError(ncclComm_t comm, ncclResult_t* state) {
  EXPECT_TRUE(Fake().Has(comm));
  *state = comm->state;
  return ncclSuccess;
}
ncclResult_t FakeCount(const ncclComm_t comm, int* count) { return *count = comm->size, ncclSuccess; }
ncclResult_t FakeRank(const ncclComm_t comm, int* rank) { return *rank = comm->rank, ncclSuccess; }
ncclResult_t FakeDevice(const ncclComm_t comm, int* device) { return *device = comm->device, ncclSuccess; }
const char* FakeLastError(ncclComm_t) { return "the cable is out"; }
ncclResult_t FakeAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t) {
  if (!Fake().Has(comm) || static_cast<int>(op) >= static_cast<int>(ncclNumOps) + comm->operators)
    return ncclInvalidArgument;
  ++Fake().issued;
  return ncclSuccess;
}
ncclResult_t FakeGroupStart() { return ++FakeLibrary::t_depth, ncclSuccess; }
ncclResult_t FakeGroupEnd() { return Fake().GroupEnd(); }
ncclResult_t FakeOperator(ncclRedOp_t* op, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t comm) {
  *op = static_cast<ncclRedOp_t>(static_cast<int>(ncclNumOps) + comm->operators++);
  return ncclSuccess;
}
ncclResult_t FakeRegister(const ncclComm_t comm, void*, size_t, void** handle) {
  ++comm->buffers;
  *handle = &comm->buffers;
  return ncclSuccess;
}
ncclResult_t FakeDeregister(const ncclComm_t comm, void* handle) {
  return handle == &comm->buffers ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t FakeWindow(ncclComm_t comm, void*, size_t, ncclWindow_t* window, int) {
  ++comm->windows;
  *window = reinterpret_cast<ncclWindow_t>(&comm->windows);
  return ncclSuccess;
}

template <typename Function>
void Install(LibraryFn function, Function* fake) {
  libraries::internal::g_real_functions[static_cast<uint32_t>(function)].store(reinterpret_cast<void*>(fake));
}

}  // namespace

void InstallFakes() {
  Install(LibraryFn::ncclGetUniqueId, FakeGetUniqueId);
  Install(LibraryFn::ncclCommInitRank, FakeInitRank);
  Install(LibraryFn::ncclCommInitRankConfig, FakeInitRankConfig);
  Install(LibraryFn::ncclCommSplit, FakeSplit);
  Install(LibraryFn::ncclCommFinalize, FakeFinalize);
  Install(LibraryFn::ncclCommDestroy, FakeDestroy);
  Install(LibraryFn::ncclCommAbort, FakeAbort);
  Install(LibraryFn::ncclCommGetAsyncError, FakeAsyncError);
  Install(LibraryFn::ncclCommCount, FakeCount);
  Install(LibraryFn::ncclCommUserRank, FakeRank);
  Install(LibraryFn::ncclCommCuDevice, FakeDevice);
  Install(LibraryFn::ncclGetLastError, FakeLastError);
  Install(LibraryFn::ncclAllReduce, FakeAllReduce);
  Install(LibraryFn::ncclGroupStart, FakeGroupStart);
  Install(LibraryFn::ncclGroupEnd, FakeGroupEnd);
  Install(LibraryFn::ncclRedOpCreatePreMulSum, FakeOperator);
  Install(LibraryFn::ncclCommRegister, FakeRegister);
  Install(LibraryFn::ncclCommDeregister, FakeDeregister);
  Install(LibraryFn::ncclCommWindowRegister, FakeWindow);
}

}  // namespace stasis::nccl

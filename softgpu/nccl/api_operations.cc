#include <cstring>
#include <limits>

#include "softgpu/nccl/api.h"
#include "softgpu/nccl/group.h"
#include "softgpu/nccl/log.h"

namespace softgpu::nccl {

namespace {

// What a call says, before it is checked.
struct Call {
  const char* function;
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  int peer = 0;
  bool reduces = false;
  ncclRedOp_t op = ncclSum;
};

ncclResult_t Check(const Call& call, const Communicator& communicator, Operation* operation) {
  const size_t element = ElementBytes(call.type);
  if (element == 0)
    return Fail(ncclInvalidArgument, "%s: invalid type %d", call.function, static_cast<int>(call.type));
  if (call.peer < 0 || call.peer >= communicator.ranks())
    return Fail(ncclInvalidArgument, "%s: rank %d of %d", call.function, call.peer, communicator.ranks());
  const size_t most =
      std::numeric_limits<ptrdiff_t>::max() / element / static_cast<size_t>(communicator.ranks());
  if (call.count > most)
    return Fail(ncclInvalidArgument, "%s: %zu elements are too many", call.function, call.count);
  if (call.reduces) NCCL_TRY(communicator.FindReduction(call.op, call.type, operation));
  operation->kind = call.kind;
  operation->type = static_cast<uint8_t>(call.type);
  operation->peer = call.peer;
  operation->count = call.count;
  operation->send = reinterpret_cast<uint64_t>(call.send);
  operation->receive = reinterpret_cast<uint64_t>(call.receive);
  return ncclSuccess;
}

ncclResult_t Enqueue(const Call& call, ncclComm_t comm, cudaStream_t stream) {
  const CommunicatorPtr communicator = Find(comm);
  if (communicator == nullptr)
    return Fail(ncclInvalidArgument, "%s: comm is no communicator of this process", call.function);
  NCCL_TRY(communicator->Usable());
  Operation operation;
  NCCL_TRY(Check(call, *communicator, &operation));
  const bool message = call.kind == Kind::kSend || call.kind == Kind::kReceive;
  // An empty collective is none; an empty message is one.
  if (call.count == 0 && !message) return ncclSuccess;
  return Submit(communicator, operation, stream);
}

ncclResult_t CreateFactor(ncclRedOp_t* op, const void* scalar, ncclDataType_t type,
                          ncclScalarResidence_t residence, ncclComm_t comm) {
  if (op == nullptr || scalar == nullptr)
    return Fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op or scalar is NULL");
  const size_t element = ElementBytes(type);
  if (element == 0)
    return Fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: invalid type %d", static_cast<int>(type));
  const CommunicatorPtr communicator = Find(comm);
  if (communicator == nullptr)
    return Fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: comm is no communicator of this process");
  NCCL_TRY(communicator->Usable());
  Factor factor;
  factor.type = type;
  factor.on_device = residence == ncclScalarDevice;
  if (factor.on_device) {
    factor.scalar = reinterpret_cast<uint64_t>(scalar);
  } else if (residence == ncclScalarHostImmediate) {
    std::memcpy(&factor.scalar, scalar, element);
  } else {
    return Fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: invalid residence %d",
                static_cast<int>(residence));
  }
  return communicator->AddReduction(factor, op);
}

ncclResult_t DestroyFactor(ncclRedOp_t op, ncclComm_t comm) {
  const CommunicatorPtr communicator = Find(comm);
  if (communicator == nullptr)
    return Fail(ncclInvalidArgument, "ncclRedOpDestroy: comm is no communicator of this process");
  return communicator->RemoveReduction(op);
}

constexpr unsigned kSimInfoMagic = 0x74685283;
// A guess for ncclGroupSimulateEnd: microseconds a launch takes, and bytes a microsecond.
constexpr float kLaunchMicroseconds = 20;
constexpr float kBytesPerMicrosecond = 2000;

}  // namespace

ncclResult_t AllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream) {
  return Note(
      Enqueue({"ncclAllReduce", Kind::kAllReduce, send, receive, count, type, 0, true, op}, comm, stream));
}

ncclResult_t Broadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return Note(Enqueue({"ncclBroadcast", Kind::kBroadcast, send, receive, count, type, root}, comm, stream));
}

ncclResult_t Bcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                   cudaStream_t stream) {
  return Note(Enqueue({"ncclBcast", Kind::kBroadcast, buffer, buffer, count, type, root}, comm, stream));
}

ncclResult_t Reduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                    int root, ncclComm_t comm, cudaStream_t stream) {
  return Note(
      Enqueue({"ncclReduce", Kind::kReduce, send, receive, count, type, root, true, op}, comm, stream));
}

ncclResult_t ReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return Note(Enqueue({"ncclReduceScatter", Kind::kReduceScatter, send, receive, count, type, 0, true, op},
                      comm, stream));
}

ncclResult_t AllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                       cudaStream_t stream) {
  return Note(Enqueue({"ncclAllGather", Kind::kAllGather, send, receive, count, type}, comm, stream));
}

ncclResult_t AlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                      cudaStream_t stream) {
  return Note(Enqueue({"ncclAlltoAll", Kind::kAlltoAll, send, receive, count, type}, comm, stream));
}

ncclResult_t Gather(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  return Note(Enqueue({"ncclGather", Kind::kGather, send, receive, count, type, root}, comm, stream));
}

ncclResult_t Scatter(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                     ncclComm_t comm, cudaStream_t stream) {
  return Note(Enqueue({"ncclScatter", Kind::kScatter, send, receive, count, type, root}, comm, stream));
}

ncclResult_t Send(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return Note(Enqueue({"ncclSend", Kind::kSend, send, nullptr, count, type, peer}, comm, stream));
}

ncclResult_t Recv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return Note(Enqueue({"ncclRecv", Kind::kReceive, nullptr, receive, count, type, peer}, comm, stream));
}

ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                  ncclScalarResidence_t residence, ncclComm_t comm) {
  return Note(CreateFactor(op, scalar, type, residence, comm));
}

ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) { return Note(DestroyFactor(op, comm)); }

ncclResult_t GroupStart() { return BeginGroup(); }

ncclResult_t GroupEnd() { return EndGroup(); }

ncclResult_t GroupSimulateEnd(ncclSimInfo_t* info) {
  if (info != nullptr && (info->magic != kSimInfoMagic || info->size < sizeof *info))
    return Fail(ncclInvalidArgument, "ncclSimInfo_t was not initialised with NCCL_SIM_INFO_INITIALIZER");
  uint64_t bytes = 0;
  NCCL_TRY(DropGroup(&bytes));
  if (info != nullptr)
    info->estimatedTime = kLaunchMicroseconds + static_cast<float>(bytes) / kBytesPerMicrosecond;
  return ncclSuccess;
}

}  // namespace softgpu::nccl

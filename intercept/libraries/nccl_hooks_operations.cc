// NCCL: collectives, messages between ranks, groups, operators and registered memory.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "intercept/libraries/nccl_calls.h"
#include "intercept/libraries/nccl_graphs.h"
#include "nccl_hooks.h"

namespace stasis::libraries::hooks {
namespace {

using nccl::Accepted;
using nccl::Also;
using nccl::Collective;
using nccl::CommBook;
using nccl::CommPtr;
using nccl::CommRecord;
using nccl::Local;
using nccl::NcclCall;
using nccl::NcclLedger;
using nccl::OnComm;
using nccl::Operation;
using nccl::WithPeer;

// An operation in a stream, which may be capturing.
template <typename Function>
ncclResult_t InStream(const LibraryCall& call, ncclComm_t comm, const Operation& operation,
                      cudaStream_t stream, Function f) {
  return OnComm(call, comm, operation, [&](ncclComm_t real, const CommPtr& record) {
    const ncclResult_t result = f(real, record);
    if (record != nullptr && Accepted(result)) nccl::NoteCaptured(record, stream, call.name());
    return result;
  });
}

// The library's number of an operator that the program has made.
ncclRedOp_t RealOperator(const CommPtr& comm, ncclRedOp_t op) {
  if (comm == nullptr || op < ncclNumOps) return op;
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  for (const nccl::KeptOperator& kept : comm->operators)
    if (kept.visible == op) return kept.real;
  return op;
}

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

// Numbers are the communicator's own; after a rebuild the library starts them again.
ncclRedOp_t FreeOperator(const CommRecord& comm, ncclRedOp_t real) {
  const auto taken = [&comm](ncclRedOp_t op) {
    for (const nccl::KeptOperator& kept : comm.operators)
      if (kept.visible == op) return true;
    return false;
  };
  int number = static_cast<int>(real);
  while (taken(static_cast<ncclRedOp_t>(number)))
    number = number == static_cast<int>(ncclMaxRedOp) ? static_cast<int>(ncclNumOps) : number + 1;
  return static_cast<ncclRedOp_t>(number);
}

bool HasEnded(const CommPtr& comm) {
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  return comm->real == nullptr;
}

// Its handle is forgotten before the library may give the value to another one.
template <typename Kept, typename Handle, typename Function>
ncclResult_t Deregister(const CommPtr& comm, std::vector<Kept> CommRecord::*list, Handle* visible,
                        Function f) {
  const auto is_it = [visible](const Kept& kept) { return kept.visible == visible; };
  bool known = false;
  if (comm != nullptr) {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    known = std::any_of(((*comm).*list).begin(), ((*comm).*list).end(), is_it);
  }
  if (!known) return f(visible);
  Handle* const real = ForgetHandle(visible);
  // It has ended in the library together with its communicator.
  const ncclResult_t result = HasEnded(comm) ? ncclSuccess : f(real);
  if (!Accepted(result)) {
    RestoreHandle(visible, real);
    return result;
  }
  EndHandle(visible);
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  std::erase_if((*comm).*list, is_it);
  return result;
}

}  // namespace

ncclResult_t ncclAllReduce(const LibraryCall& call, const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr& record) {
    return call.Real<decltype(&::ncclAllReduce)>()(sendbuff, recvbuff, count, datatype,
                                                   RealOperator(record, op), real, stream);
  });
}

ncclResult_t ncclReduce(const LibraryCall& call, const void* sendbuff, void* recvbuff, size_t count,
                        ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr& record) {
    return call.Real<decltype(&::ncclReduce)>()(sendbuff, recvbuff, count, datatype, RealOperator(record, op),
                                                root, real, stream);
  });
}

ncclResult_t ncclReduceScatter(const LibraryCall& call, const void* sendbuff, void* recvbuff,
                               size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr& record) {
    return call.Real<decltype(&::ncclReduceScatter)>()(sendbuff, recvbuff, recvcount, datatype,
                                                       RealOperator(record, op), real, stream);
  });
}

ncclResult_t ncclBcast(const LibraryCall& call, void* buff, size_t count, ncclDataType_t datatype, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr&) {
    return call.Real<decltype(&::ncclBcast)>()(buff, count, datatype, root, real, stream);
  });
}

ncclResult_t ncclBroadcast(const LibraryCall& call, const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr&) {
    return call.Real<decltype(&::ncclBroadcast)>()(sendbuff, recvbuff, count, datatype, root, real, stream);
  });
}

ncclResult_t ncclAllGather(const LibraryCall& call, const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr&) {
    return call.Real<decltype(&::ncclAllGather)>()(sendbuff, recvbuff, sendcount, datatype, real, stream);
  });
}

ncclResult_t ncclAlltoAll(const LibraryCall& call, const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr&) {
    return call.Real<decltype(&::ncclAlltoAll)>()(sendbuff, recvbuff, count, datatype, real, stream);
  });
}

ncclResult_t ncclGather(const LibraryCall& call, const void* sendbuff, void* recvbuff, size_t count,
                        ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr&) {
    return call.Real<decltype(&::ncclGather)>()(sendbuff, recvbuff, count, datatype, root, real, stream);
  });
}

ncclResult_t ncclScatter(const LibraryCall& call, const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return InStream(call, comm, Collective(), stream, [&](ncclComm_t real, const CommPtr&) {
    return call.Real<decltype(&::ncclScatter)>()(sendbuff, recvbuff, count, datatype, root, real, stream);
  });
}

ncclResult_t ncclSend(const LibraryCall& call, const void* sendbuff, size_t count, ncclDataType_t datatype,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  const Operation send = WithPeer(Operation::Kind::kSend, peer);
  return InStream(call, comm, send, stream, [&](ncclComm_t real, const CommPtr&) {
    return call.Real<decltype(&::ncclSend)>()(sendbuff, count, datatype, peer, real, stream);
  });
}

ncclResult_t ncclRecv(const LibraryCall& call, void* recvbuff, size_t count, ncclDataType_t datatype,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  const Operation receive = WithPeer(Operation::Kind::kReceive, peer);
  return InStream(call, comm, receive, stream, [&](ncclComm_t real, const CommPtr&) {
    return call.Real<decltype(&::ncclRecv)>()(recvbuff, count, datatype, peer, real, stream);
  });
}

ncclResult_t ncclGroupStart(const LibraryCall& call) {
  Operation operation;
  operation.call = call.name();
  operation.kind = Operation::Kind::kGroupStart;
  NcclCall inside(operation);
  const ncclResult_t result = call.Real<decltype(&::ncclGroupStart)>()();
  if (result != ncclSuccess) inside.Failed();
  return result;
}

namespace {

template <typename End>
ncclResult_t EndGroup(const LibraryCall& call, bool issues, End end) {
  Operation operation;
  operation.call = call.name();
  operation.kind = Operation::Kind::kGroupEnd;
  NcclCall inside(operation);
  const ncclResult_t result = end();
  if (!issues || !Accepted(result)) inside.Failed();
  if (NcclLedger::Get().Depth() == 1) nccl::GroupEnded(call, issues ? result : ncclInvalidUsage);
  return result;
}

}  // namespace

ncclResult_t ncclGroupEnd(const LibraryCall& call) {
  return EndGroup(call, true, [&] { return call.Real<decltype(&::ncclGroupEnd)>()(); });
}

ncclResult_t ncclGroupSimulateEnd(const LibraryCall& call, ncclSimInfo_t* simInfo) {
  return EndGroup(call, false, [&] { return call.Real<decltype(&::ncclGroupSimulateEnd)>()(simInfo); });
}

ncclResult_t ncclRedOpCreatePreMulSum(const LibraryCall& call, ncclRedOp_t* op, void* scalar,
                                      ncclDataType_t datatype, ncclScalarResidence_t residence,
                                      ncclComm_t comm) {
  return OnComm(call, comm, Local(), [&](ncclComm_t real, const CommPtr& record) {
    const ncclResult_t result =
        call.Real<decltype(&::ncclRedOpCreatePreMulSum)>()(op, scalar, datatype, residence, real);
    if (record == nullptr || result != ncclSuccess) return result;
    nccl::KeptOperator kept{*op, *op, datatype, residence, scalar, {}};
    if (residence == ncclScalarHostImmediate) std::memcpy(kept.value.data(), scalar, SizeOf(datatype));
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    *op = kept.visible = FreeOperator(*record, kept.real);
    record->operators.push_back(kept);
    return result;
  });
}

ncclResult_t ncclRedOpDestroy(const LibraryCall& call, ncclRedOp_t op, ncclComm_t comm) {
  return OnComm(call, comm, Local(), Also::kEnded, [&](ncclComm_t real, const CommPtr& record) {
    // With a communicator that was given up for good its operators have gone, too.
    const ncclResult_t result =
        record != nullptr && real == nullptr
            ? ncclSuccess
            : call.Real<decltype(&::ncclRedOpDestroy)>()(RealOperator(record, op), real);
    if (record == nullptr || result != ncclSuccess) return result;
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    std::erase_if(record->operators, [op](const nccl::KeptOperator& kept) { return kept.visible == op; });
    return result;
  });
}

ncclResult_t ncclCommRegister(const LibraryCall& call, ncclComm_t comm, void* buff, size_t size,
                              void** handle) {
  return OnComm(call, comm, Local(), [&](ncclComm_t real, const CommPtr& record) {
    const ncclResult_t result = call.Real<decltype(&::ncclCommRegister)>()(real, buff, size, handle);
    if (record == nullptr || result != ncclSuccess || *handle == nullptr) return result;
    *handle = AddHandle(static_cast<char*>(*handle));
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    record->buffers.push_back({*handle, buff, size});
    return result;
  });
}

ncclResult_t ncclCommDeregister(const LibraryCall& call, ncclComm_t comm, void* handle) {
  return OnComm(call, comm, Local(), Also::kEnded, [&](ncclComm_t real, const CommPtr& record) {
    return Deregister(record, &CommRecord::buffers, static_cast<char*>(handle),
                      [&](char* kept) { return call.Real<decltype(&::ncclCommDeregister)>()(real, kept); });
  });
}

ncclResult_t ncclCommWindowRegister(const LibraryCall& call, ncclComm_t comm, void* buff, size_t size,
                                    ncclWindow_t* win, int winFlags) {
  return OnComm(call, comm, Collective(), [&](ncclComm_t real, const CommPtr& record) {
    const auto function = call.Real<decltype(&::ncclCommWindowRegister)>();
    if (record == nullptr || win == nullptr) return function(real, buff, size, win, winFlags);
    const auto creation =
        std::make_shared<nccl::WindowCreation>(record, nccl::KeptWindow{nullptr, buff, size, winFlags}, win);
    const ncclResult_t result = function(real, buff, size, creation->made(), winFlags);
    nccl::Called(creation, result);
    return result;
  });
}

ncclResult_t ncclCommWindowDeregister(const LibraryCall& call, ncclComm_t comm, ncclWindow_t win) {
  return OnComm(call, comm, Local(), Also::kEnded, [&](ncclComm_t real, const CommPtr& record) {
    return Deregister(record, &CommRecord::windows, win, [&](ncclWindow_t kept) {
      return call.Real<decltype(&::ncclCommWindowDeregister)>()(real, kept);
    });
  });
}

}  // namespace stasis::libraries::hooks

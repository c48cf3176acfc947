// The functions behind the exported names, ncclX and pncclX alike (forwards.table): their meaning, parameters
// and errors are those of NVIDIA's nccl.h.
#ifndef SOFTGPU_NCCL_API_H_
#define SOFTGPU_NCCL_API_H_

#include <nccl.h>

namespace softgpu::nccl {

// ---- Communicators (api_communicator.cc)
ncclResult_t GetVersion(int* version);
ncclResult_t GetUniqueId(ncclUniqueId* id);
ncclResult_t CommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count, ncclUniqueId* ids,
                                  ncclConfig_t* config);
ncclResult_t CommInitAll(ncclComm_t* comms, int count, const int* devices);
ncclResult_t CommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config);
ncclResult_t CommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* child,
                        ncclConfig_t* config, int flags);
ncclResult_t CommFinalize(ncclComm_t comm);
ncclResult_t CommDestroy(ncclComm_t comm);
ncclResult_t CommAbort(ncclComm_t comm);
ncclResult_t CommRevoke(ncclComm_t comm, int flags);
ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t CommCount(ncclComm_t comm, int* count);
ncclResult_t CommCuDevice(ncclComm_t comm, int* device);
ncclResult_t CommUserRank(ncclComm_t comm, int* rank);
const char* GetErrorString(ncclResult_t result);
const char* GetLastError(ncclComm_t comm);
void ResetDebugInit();

// ---- Operations and groups (api_operations.cc)
ncclResult_t AllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream);
ncclResult_t Broadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream);
ncclResult_t Bcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                   cudaStream_t stream);
ncclResult_t Reduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                    int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t AllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t AlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t Gather(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream);
ncclResult_t Scatter(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                     ncclComm_t comm, cudaStream_t stream);
ncclResult_t Send(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream);
ncclResult_t Recv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream);
ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                  ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t GroupStart();
ncclResult_t GroupEnd();
ncclResult_t GroupSimulateEnd(ncclSimInfo_t* info);

// ---- Memory (api_memory.cc)
ncclResult_t MemAlloc(void** pointer, size_t size);
ncclResult_t MemFree(void* pointer);
ncclResult_t CommRegister(ncclComm_t comm, void* buffer, size_t size, void** handle);
ncclResult_t CommDeregister(ncclComm_t comm, void* handle);
ncclResult_t CommWindowRegister(ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags);
ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t window);

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_API_H_

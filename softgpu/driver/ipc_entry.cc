// Entry points: memory shared between processes by handle.
#include <cuda.h>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_actions.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return entry.state().memory().ipc().GetHandle(dptr, pHandle);
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  return entry.state().memory().ipc().Open(entry.context().handle(), entry.context().ordinal(), handle,
                                           pdptr);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  // Peers may be at work on it, too.
  DrainUsers(entry, nullptr);
  return entry.state().memory().ipc().Close(dptr);
}

}  // extern "C"

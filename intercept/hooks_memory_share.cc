// Device memory that processes of the task share: by descriptor and by handle.
#include <unistd.h>

#include <bit>
#include <string>

#include "intercept/memory_environment.h"
#include "intercept/process.h"
#include "intercept/share_server.h"
#include "vmm/memory.h"
#include "vmm/opened_memory.h"
#include "vmm/pointer_query.h"
#include "vmm/virtual_memory.h"

namespace stasis::hooks {
namespace {

using vmm::VirtualMemory;

// What the 64 bytes of a handle of ours say.
struct WrittenHandle {
  static constexpr uint64_t kMagic = 0x314350'49534154;
  uint64_t magic = kMagic;
  int64_t pid = 0;
  uint64_t key = 0;
  uint64_t reserved[5] = {};
};
static_assert(sizeof(WrittenHandle) == sizeof(CUipcMemHandle));

CUresult GiveTicket(uint64_t share, void* out) {
  Result<Fd> ticket = NewTicket(share);
  if (!ticket.ok()) {
    VirtualMemory::Get().TicketGone(share);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(out) = ticket->Release();
  return CUDA_SUCCESS;
}

CUresult Open(const Call& call, CUdeviceptr* address, CUipcMemHandle handle, unsigned flags,
              decltype(&::cuIpcOpenMemHandle_v2) real) {
  JoinMemory();
  const WrittenHandle written = std::bit_cast<WrittenHandle>(handle);
  if (written.magic != WrittenHandle::kMagic) {
    const CUresult result = real(address, handle, flags);
    if (result == CUDA_SUCCESS)
      Taint((std::string(call.name()) + " of memory outside of the task").c_str(), true);
    return result;
  }
  const CUresult allowed = vmm::CheckCaller();
  if (allowed != CUDA_SUCCESS) return allowed;
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (written.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const ShareTicket ticket{static_cast<pid_t>(written.pid), written.key};
  return vmm::OpenedMemory::Get().Open(address, written.key, [&] { return FetchMemory(ticket); });
}

}  // namespace

CUresult cuMemExportToShareableHandle(const Call& call, void* shareableHandle,
                                      CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long flags) {
  JoinMemory();
  const auto real = call.Real<decltype(&::cuMemExportToShareableHandle)>();
  const bool ticket = !TaskFolder().empty() && shareableHandle != nullptr && flags == 0 &&
                      handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  uint64_t share = 0;
  CUresult result = CUDA_SUCCESS;
  if (ticket && VirtualMemory::Get().Export(handle, &share, &result))
    return result == CUDA_SUCCESS ? GiveTicket(share, shareableHandle) : result;
  result = real(shareableHandle, VirtualMemory::Get().ToReal(handle), handleType, flags);
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, true);
  return result;
}

CUresult cuMemImportFromShareableHandle(const Call& call, CUmemGenericAllocationHandle* handle,
                                        void* osHandle, CUmemAllocationHandleType shHandleType) {
  JoinMemory();
  const auto real = call.Real<decltype(&::cuMemImportFromShareableHandle)>();
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  const bool by_fd = shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && handle != nullptr;
  const std::optional<ShareTicket> ticket = by_fd ? ReadTicket(fd) : std::nullopt;
  if (!ticket) {
    const CUresult result = real(handle, osHandle, shHandleType);
    if (result == CUDA_SUCCESS) Taint("cuMemImportFromShareableHandle of memory outside of the task", true);
    return result;
  }
  Result<vmm::SharedMemory> memory = FetchMemory(*ticket);
  if (!memory.ok() || memory->pieces.size() != 1) return CUDA_ERROR_INVALID_VALUE;
  return VirtualMemory::Get().Import(handle, memory->fds[0], memory->pieces[0], memory->handle_types);
}

// Legacy handles do not exist for mapped memory: this one names our own.
CUresult cuIpcGetMemHandle(const Call& call, CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  JoinMemory();
  if (!vmm::IsPlainMemory(dptr)) {
    const CUresult result = call.Real<decltype(&::cuIpcGetMemHandle)>()(pHandle, dptr);
    if (result == CUDA_SUCCESS) TaintOnce(call.fn, true);
    return result;
  }
  const CUresult allowed = vmm::CheckCaller();
  if (allowed != CUDA_SUCCESS) return allowed;
  if (TaskFolder().empty()) return CUDA_ERROR_NOT_SUPPORTED;
  const std::optional<uint64_t> key = vmm::Memory::Get().ShareKeyOf(dptr);
  if (!key || pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!StartSharing().ok()) return CUDA_ERROR_OPERATING_SYSTEM;
  WrittenHandle written;
  written.pid = getpid();
  written.key = *key;
  *pHandle = std::bit_cast<CUipcMemHandle>(written);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(const Call& call, CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return Open(call, pdptr, handle, Flags, call.Real<decltype(&::cuIpcOpenMemHandle_v2)>());
}

CUresult cuIpcOpenMemHandle_v2(const Call& call, CUdeviceptr* pdptr, CUipcMemHandle handle,
                               unsigned int Flags) {
  return Open(call, pdptr, handle, Flags, call.Real<decltype(&::cuIpcOpenMemHandle_v2)>());
}

CUresult cuIpcCloseMemHandle(const Call& call, CUdeviceptr dptr) {
  CUresult result = CUDA_SUCCESS;
  if (vmm::OpenedMemory::Get().Close(dptr, &result)) return result;
  return call.Real<decltype(&::cuIpcCloseMemHandle)>()(dptr);
}

}  // namespace stasis::hooks

#include <cstring>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/proc_address.h"

using softgpu::kProcAddressCount;
using softgpu::kProcAddresses;
using softgpu::ProcAddress;

namespace {

constexpr int kDriverVersion = CUDA_VERSION;
constexpr cuuint64_t kAllFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

struct Search {
  const ProcAddress* best = nullptr;
  bool known = false;       // some version of the name exists
  bool per_thread = false;  // the name has per-thread variants
};

// The newest variant that `version` may know.
Search FindVariant(const char* symbol, int version, bool per_thread) {
  Search search;
  for (size_t i = 0; i < kProcAddressCount; i++) {
    const ProcAddress& row = kProcAddresses[i];
    if (std::strcmp(row.base, symbol) != 0) continue;
    search.known = true;
    search.per_thread |= row.per_thread;
    if (row.per_thread != per_thread || row.version > version) continue;
    if (search.best == nullptr || row.version > search.best->version) search.best = &row;
  }
  return search;
}

CUresult GetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (version > kDriverVersion || (flags & ~kAllFlags) != 0 || flags == kAllFlags)
    return CUDA_ERROR_INVALID_VALUE;
  bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  Search search = FindVariant(symbol, version, per_thread);
  if (per_thread && !search.per_thread) search = FindVariant(symbol, version, false);
  *function = search.best != nullptr ? search.best->function : nullptr;
  CUdriverProcAddressQueryResult found = search.best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                                         : search.known         ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                                                : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = kDriverVersion;
  return CUDA_SUCCESS;
}

// The first form has nowhere to say why nothing was found.
CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  CUresult result = GetProcAddress(symbol, pfn, cudaVersion, flags, nullptr);
  if (result == CUDA_SUCCESS && *pfn == nullptr) return CUDA_ERROR_NOT_FOUND;
  return result;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* symbolStatus) {
  return GetProcAddress(symbol, pfn, cudaVersion, flags, symbolStatus);
}

// Export tables are private interfaces between NVIDIA's libraries; there are none here.
CUresult CUDAAPI cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable == nullptr || pExportTableId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"

// What the driver says of addresses and of free memory, mended so that memory of ours looks as if the driver
// had allocated it. Thread-safe.
#ifndef VMM_POINTER_QUERY_H_
#define VMM_POINTER_QUERY_H_

#include <cuda.h>

#include <cstddef>

namespace stasis::vmm {

CUresult PointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer);
CUresult PointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                              CUdeviceptr pointer);
CUresult PointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer);
CUresult GetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr pointer);
CUresult GetMemInfo(size_t* free, size_t* total);
// Plain memory has no allocation handle to retain and no IPC handle of ours; true when `pointer` is that.
bool IsPlainMemory(CUdeviceptr pointer);

}  // namespace stasis::vmm

#endif  // VMM_POINTER_QUERY_H_

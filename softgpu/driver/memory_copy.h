// Copies and sets, reduced to one shape each: a box of rows between two places, and a rectangle filled with a
// value.
//
// Resolve* checks what a call names against the memory the process holds, on the caller's thread; Run* does
// the work, later, on whichever thread carries out a stream's work. Jobs are plain values and may be kept
// (graph nodes) and run many times.
#ifndef SOFTGPU_DRIVER_MEMORY_COPY_H_
#define SOFTGPU_DRIVER_MEMORY_COPY_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "softgpu/driver/array.h"
#include "softgpu/driver/memory_manager.h"

namespace softgpu {

struct CopySide {
  uint64_t address = 0;  // of the box's first byte
  uint64_t pitch = 0;    // bytes from row to row
  uint64_t slice = 0;    // bytes from slice to slice
  MemoryView::Where where = MemoryView::Where::kUnknown;
  int device = kHostDevice;
  bool sync_memops = false;

  bool pageable() const { return where == MemoryView::Where::kUnknown; }
  bool on_device() const { return where == MemoryView::Where::kDevice; }
};

struct CopyJob {
  CopySide src, dst;
  uint64_t width = 0, height = 1, depth = 1;  // bytes, rows, slices
  std::shared_ptr<const void> staging;        // holds the source's bytes when they were staged
  uint64_t bytes() const { return width * height * depth; }
};

struct SetJob {
  CopySide dst;
  uint64_t width = 0, height = 1;  // bytes, rows
  uint32_t value = 0;
  uint8_t element = 1;  // bytes: 1, 2 or 4
};

// INVALID_VALUE for anything that does not fit the memory it names; INVALID_HANDLE for arrays that are none.
CUresult ResolveCopy(const MemoryManager& memory, const ArrayTable& arrays, const CUDA_MEMCPY3D& copy,
                     CopyJob* job);
// A plain run of bytes; each side is host, device or unified as for CUDA_MEMCPY3D.
CUresult ResolveLinearCopy(const MemoryManager& memory, CUmemorytype dst_type, uint64_t dst,
                           CUmemorytype src_type, uint64_t src, uint64_t bytes, CopyJob* job);
// `width` in elements of `element` bytes.
CUresult ResolveSet(const MemoryManager& memory, uint64_t address, uint64_t pitch, uint32_t value,
                    unsigned element, uint64_t width, uint64_t height, SetJob* job);

// Reads the source now, so that the program may change it before the copy is carried out.
CUresult StageSource(CopyJob* job);

// How a copy is carried out: no faster than `gbps` 10^9 bytes a second (0 = as fast as it goes), given up
// soon after *cancel was set (may be null).
struct CopyPace {
  double gbps = 0;
  std::function<bool()> cancelled;
};
// CUDA_ERROR_ILLEGAL_ADDRESS when memory has vanished since the job was resolved; LAUNCH_FAILED when
// cancelled.
CUresult RunCopy(const MemoryManager& memory, const CopyJob& job, const CopyPace& pace);
CUresult RunSet(const MemoryManager& memory, const SetJob& job);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_COPY_H_

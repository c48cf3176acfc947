#include "softgpu/driver/memory_copy.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"

namespace softgpu {
namespace {

using Where = MemoryView::Where;

constexpr uint64_t kMaxPitch = 0x7fffffff;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH

// One side of a CUDA_MEMCPY3D, whichever.
struct SideRequest {
  uint64_t x, y, z;
  CUmemorytype type;
  uint64_t host, device;
  CUarray array;
  uint64_t pitch, height;
};

struct Box {
  uint64_t width, height, depth;
};

std::byte* At(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

// Whether the program has anything mapped there. Catches stale and wild pointers before a copy follows them.
bool IsMapped(uint64_t address) {
  unsigned char resident = 0;
  return mincore(At(address / kPageBytes * kPageBytes), kPageBytes, &resident) == 0;
}

// Bytes from the first to behind the last of a box; false when that does not fit 64 bits.
bool Span(const Box& box, uint64_t pitch, uint64_t slice, uint64_t* span) {
  uint64_t rows = 0, slices = 0;
  bool overflow = __builtin_mul_overflow(box.height - 1, pitch, &rows) ||
                  __builtin_mul_overflow(box.depth - 1, slice, &slices) ||
                  __builtin_add_overflow(rows, slices, &rows) ||
                  __builtin_add_overflow(rows, box.width, span);
  return !overflow;
}

CUresult CheckRange(const MemoryManager& memory, CUmemorytype type, uint64_t span, bool write,
                    CopySide* side) {
  if (side->address + span < side->address) return CUDA_ERROR_INVALID_VALUE;
  MemoryView view = memory.View(side->address);
  side->where = view.where;
  side->device = view.device;
  side->sync_memops = view.sync_memops;
  if (view.where == Where::kReserved) return CUDA_ERROR_INVALID_VALUE;
  if (view.where == Where::kUnknown) {
    bool host = type != CU_MEMORYTYPE_DEVICE && IsMapped(side->address) && IsMapped(side->address + span - 1);
    return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  // Pageable copies may begin in memory that was registered in part; they are no longer asynchronous then.
  if (view.where == Where::kPinned && type == CU_MEMORYTYPE_HOST && !memory.Covers(side->address, span)) {
    side->where = Where::kUnknown;
    return CUDA_SUCCESS;
  }
  if (!(write ? view.writable : view.readable)) return CUDA_ERROR_INVALID_VALUE;
  return memory.Covers(side->address, span) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult ResolveArraySide(const ArrayTable& arrays, const SideRequest& request, const Box& box,
                          CopySide* side) {
  std::shared_ptr<const Array> array = arrays.Find(request.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto fits = [](uint64_t at, uint64_t size, uint64_t limit) { return at <= limit && size <= limit - at; };
  if (!fits(request.x, box.width, array->row_bytes()) || !fits(request.y, box.height, array->rows()) ||
      !fits(request.z, box.depth, array->slices())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->pitch = array->row_pitch;
  side->slice = array->slice_pitch;
  side->address = array->data + request.z * side->slice + request.y * side->pitch + request.x;
  side->where = Where::kDevice;
  side->device = array->device;
  return CUDA_SUCCESS;
}

CUresult ResolveSide(const MemoryManager& memory, const ArrayTable& arrays, const SideRequest& request,
                     const Box& box, bool write, CopySide* side) {
  if (request.type == CU_MEMORYTYPE_ARRAY) return ResolveArraySide(arrays, request, box, side);
  bool known = request.type == CU_MEMORYTYPE_HOST || request.type == CU_MEMORYTYPE_DEVICE ||
               request.type == CU_MEMORYTYPE_UNIFIED;
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  bool many_rows = box.height > 1 || box.depth > 1 || request.y != 0 || request.z != 0;
  bool many_slices = box.depth > 1 || request.z != 0;
  if (request.pitch > kMaxPitch) return CUDA_ERROR_INVALID_VALUE;
  if (many_rows && (request.pitch < box.width || request.pitch - box.width < request.x)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (many_slices && (request.height < box.height || request.height - box.height < request.y)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t offset = 0, in_slice = 0, row = 0;
  side->pitch = many_rows ? request.pitch : box.width;
  bool overflow =
      __builtin_mul_overflow(side->pitch, many_slices ? request.height : box.height, &side->slice) ||
      __builtin_mul_overflow(request.z, side->slice, &offset) ||
      __builtin_mul_overflow(request.y, side->pitch, &in_slice) ||
      __builtin_add_overflow(in_slice, request.x, &row) || __builtin_add_overflow(offset, row, &offset);
  uint64_t base = request.type == CU_MEMORYTYPE_HOST ? request.host : request.device;
  uint64_t span = 0;
  overflow = overflow || __builtin_add_overflow(base, offset, &side->address) ||
             !Span(box, side->pitch, side->slice, &span);
  if (overflow || base == 0) return CUDA_ERROR_INVALID_VALUE;
  return CheckRange(memory, request.type, span, write, side);
}

// Keeps work at or below a rate, by absolute deadlines, so that short waits do not add up to a drift.
class Pacer {
 public:
  explicit Pacer(double gbps) : gbps_(gbps), start_(stasis::Clock::Real().Now()) {}
  // So small that a cancelled copy ends within some milliseconds.
  uint64_t chunk() const {
    if (gbps_ <= 0) return 8 << 20;
    return std::clamp<uint64_t>(static_cast<uint64_t>(gbps_ * 2e6), 4096, 8 << 20);
  }
  void Done(uint64_t bytes) {
    done_ += bytes;
    if (gbps_ <= 0) return;
    auto due = start_ + stasis::Duration(static_cast<int64_t>(static_cast<double>(done_) / gbps_));
    timespec until{static_cast<time_t>(due.count() / 1000000000),
                   static_cast<long>(due.count() % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }

 private:
  const double gbps_;
  const stasis::MonotonicTime start_;
  uint64_t done_ = 0;
};

bool Cancelled(const CopyPace& pace) { return pace.cancelled && pace.cancelled(); }

// The memory that the driver knew when the job was made is still there. By access rights, not by the table:
// what was freed in stream order is out of the table and still there for the work before the free.
bool StillThere(const MemoryManager& memory, const CopySide& side, const Box& box) {
  uint64_t span = 0;
  return side.pageable() ||
         (Span(box, side.pitch, side.slice, &span) && memory.Reachable(side.address, span));
}

// A box whose rows follow each other without gaps on both sides is one long row.
void Flatten(CopyJob* job) {
  CopySide &src = job->src, &dst = job->dst;
  if (job->height > 1 && src.pitch == job->width && dst.pitch == job->width) {
    if (job->depth == 1 || (src.slice == job->width * job->height && dst.slice == src.slice)) {
      job->width *= job->height * job->depth;
      job->height = job->depth = 1;
    }
  }
}

bool CopyRow(uint64_t dst, uint64_t src, uint64_t width, const CopyPace& pace, Pacer* pacer) {
  for (uint64_t done = 0; done < width;) {
    if (Cancelled(pace)) return false;
    uint64_t bytes = std::min(pacer->chunk(), width - done);
    memmove(At(dst + done), At(src + done), bytes);
    pacer->Done(bytes);
    done += bytes;
  }
  return true;
}

template <typename T>
void Fill(uint64_t address, uint64_t bytes, uint32_t value) {
  T* first = reinterpret_cast<T*>(address);
  std::fill(first, first + bytes / sizeof(T), static_cast<T>(value));
}

}  // namespace

CUresult ResolveCopy(const MemoryManager& memory, const ArrayTable& arrays, const CUDA_MEMCPY3D& copy,
                     CopyJob* job) {
  *job = CopyJob{};
  job->width = copy.WidthInBytes;
  job->height = copy.Height;
  job->depth = copy.Depth;
  if (copy.srcLOD != 0 || copy.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return CUDA_SUCCESS;
  Box box{copy.WidthInBytes, copy.Height, copy.Depth};
  SideRequest src{copy.srcXInBytes,
                  copy.srcY,
                  copy.srcZ,
                  copy.srcMemoryType,
                  reinterpret_cast<uint64_t>(copy.srcHost),
                  copy.srcDevice,
                  copy.srcArray,
                  copy.srcPitch,
                  copy.srcHeight};
  SideRequest dst{copy.dstXInBytes,
                  copy.dstY,
                  copy.dstZ,
                  copy.dstMemoryType,
                  reinterpret_cast<uint64_t>(copy.dstHost),
                  copy.dstDevice,
                  copy.dstArray,
                  copy.dstPitch,
                  copy.dstHeight};
  CUresult resolved = ResolveSide(memory, arrays, src, box, false, &job->src);
  if (resolved == CUDA_SUCCESS) resolved = ResolveSide(memory, arrays, dst, box, true, &job->dst);
  return resolved;
}

CUresult ResolveLinearCopy(const MemoryManager& memory, CUmemorytype dst_type, uint64_t dst,
                           CUmemorytype src_type, uint64_t src, uint64_t bytes, CopyJob* job) {
  *job = CopyJob{};
  job->width = bytes;
  if (bytes == 0) return CUDA_SUCCESS;
  job->src = {.address = src, .pitch = bytes, .slice = bytes};
  job->dst = {.address = dst, .pitch = bytes, .slice = bytes};
  CUresult resolved = CheckRange(memory, src_type, bytes, false, &job->src);
  if (resolved == CUDA_SUCCESS) resolved = CheckRange(memory, dst_type, bytes, true, &job->dst);
  return resolved;
}

CUresult ResolveSet(const MemoryManager& memory, uint64_t address, uint64_t pitch, uint32_t value,
                    unsigned element, uint64_t width, uint64_t height, SetJob* job) {
  *job = SetJob{};
  job->value = value;
  job->element = static_cast<uint8_t>(element);
  job->height = height;
  if (__builtin_mul_overflow(width, element, &job->width)) return CUDA_ERROR_INVALID_VALUE;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (address % element != 0) return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && (pitch < job->width || pitch > kMaxPitch || pitch % element != 0))
    return CUDA_ERROR_INVALID_VALUE;
  job->dst.address = address;
  job->dst.pitch = height > 1 ? pitch : job->width;
  uint64_t span = 0;
  if (!Span({job->width, height, 1}, job->dst.pitch, 0, &span)) return CUDA_ERROR_INVALID_VALUE;
  return CheckRange(memory, CU_MEMORYTYPE_DEVICE, span, true, &job->dst);
}

CUresult StageSource(CopyJob* job) {
  std::shared_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[job->bytes()]);
  if (bytes == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::byte* to = bytes.get();
  for (uint64_t z = 0; z < job->depth; ++z) {
    for (uint64_t y = 0; y < job->height; ++y, to += job->width) {
      memcpy(to, At(job->src.address + z * job->src.slice + y * job->src.pitch), job->width);
    }
  }
  job->src.address = reinterpret_cast<uint64_t>(bytes.get());
  job->src.pitch = job->width;
  job->src.slice = job->width * job->height;
  job->staging = std::move(bytes);
  return CUDA_SUCCESS;
}

CUresult RunCopy(const MemoryManager& memory, const CopyJob& request, const CopyPace& pace) {
  CopyJob job = request;
  if (job.bytes() == 0) return CUDA_SUCCESS;
  Box box{job.width, job.height, job.depth};
  if (!StillThere(memory, job.src, box) || !StillThere(memory, job.dst, box))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  Flatten(&job);
  Pacer pacer(pace.gbps);
  for (uint64_t z = 0; z < job.depth; ++z) {
    for (uint64_t y = 0; y < job.height; ++y) {
      uint64_t src = job.src.address + z * job.src.slice + y * job.src.pitch;
      uint64_t dst = job.dst.address + z * job.dst.slice + y * job.dst.pitch;
      if (!CopyRow(dst, src, job.width, pace, &pacer)) return CUDA_ERROR_LAUNCH_FAILED;
    }
  }
  return CUDA_SUCCESS;
}

CUresult RunSet(const MemoryManager& memory, const SetJob& job) {
  if (job.width == 0 || job.height == 0) return CUDA_SUCCESS;
  if (!StillThere(memory, job.dst, {job.width, job.height, 1})) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t y = 0; y < job.height; ++y) {
    uint64_t row = job.dst.address + y * job.dst.pitch;
    switch (job.element) {
      case 1:
        memset(At(row), static_cast<int>(job.value), job.width);
        break;
      case 2:
        Fill<uint16_t>(row, job.width, job.value);
        break;
      default:
        Fill<uint32_t>(row, job.width, job.value);
        break;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace softgpu

#include "softgpu/driver/mem_ops.h"

#include <time.h>

#include <algorithm>
#include <atomic>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {

namespace {

// A word of memory tells nobody when it changes, so waiting for one means looking again and again, as a
// device does.
constexpr long kFirstPauseNs = 1000, kLongestPauseNs = 200000;

bool IsWide(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

CUresult Check(const CUstreamBatchMemOpParams& op) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_BARRIER:
      return op.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if ((op.waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
      if (op.waitValue.flags > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if (op.writeValue.flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned size = IsWide(op.operation) ? 8 : 4;
  CUdeviceptr address = op.waitValue.address;  // at the same place in all of them
  bool known = State::Get()->memory().manager().Covers(address, size);
  return known && address % size == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename Word, typename Signed>
bool Satisfied(CUdeviceptr address, Word value, unsigned flags) {
  Word now = __atomic_load_n(reinterpret_cast<Word*>(address), __ATOMIC_ACQUIRE);
  switch (flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<Signed>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return static_cast<Word>(~(now | value)) != 0;
  }
}

bool IsSatisfied(const CUstreamBatchMemOpParams& op) {
  const auto& wait = op.waitValue;
  return IsWide(op.operation) ? Satisfied<cuuint64_t, int64_t>(wait.address, wait.value64, wait.flags)
                              : Satisfied<cuuint32_t, int32_t>(wait.address, wait.value, wait.flags);
}

void WaitFor(const CUstreamBatchMemOpParams& op, const Context& context) {
  long pause = kFirstPauseNs;
  while (!IsSatisfied(op) && context.error() == CUDA_SUCCESS) {
    timespec time{0, pause};
    nanosleep(&time, nullptr);
    pause = std::min(pause * 2, kLongestPauseNs);
  }
}

// A fence that ThreadSanitizer understands.
void FullBarrier() {
  static std::atomic<unsigned> everybody{0};
  everybody.fetch_add(1, std::memory_order_seq_cst);
}

void Perform(const CUstreamBatchMemOpParams& op, const Context& context) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return WaitFor(op, context);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return __atomic_store_n(reinterpret_cast<cuuint32_t*>(op.writeValue.address), op.writeValue.value,
                              __ATOMIC_RELEASE);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return __atomic_store_n(reinterpret_cast<cuuint64_t*>(op.writeValue.address), op.writeValue.value64,
                              __ATOMIC_RELEASE);
    default:
      return FullBarrier();
  }
}

CUresult Submit(CUstream handle, unsigned count, const CUstreamBatchMemOpParams* ops) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult result;
  std::shared_ptr<Stream> stream = ResolveStream(entry.context(), handle, &result);
  if (stream == nullptr) return result;
  std::shared_ptr<MemOpsAction> action;
  result = MemOpsAction::Create(ops, count, &action);
  return result == CUDA_SUCCESS ? stream->Submit(std::move(action)) : result;
}

CUresult SubmitOne(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, cuuint64_t value,
                   unsigned flags) {
  CUstreamBatchMemOpParams op{};
  op.operation = type;
  // Waits and writes have the same layout; the 32-bit value is the low half of the 64-bit one.
  op.waitValue.address = address;
  op.waitValue.value64 = value;
  op.waitValue.flags = flags;
  return Submit(stream, 1, &op);
}

}  // namespace

CUresult MemOpsAction::Create(const CUstreamBatchMemOpParams* ops, unsigned count,
                              std::shared_ptr<MemOpsAction>* out) {
  constexpr unsigned kMostOps = 256;
  if (ops == nullptr || count == 0 || count > kMostOps) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) {
    CUresult checked = Check(ops[i]);
    if (checked != CUDA_SUCCESS) return checked;
  }
  *out = std::make_shared<MemOpsAction>(std::vector<CUstreamBatchMemOpParams>(ops, ops + count));
  return CUDA_SUCCESS;
}

CUresult MemOpsAction::Run(Context& context) const {
  for (const CUstreamBatchMemOpParams& op : ops) Perform(op, context);
  return CUDA_SUCCESS;
}

}  // namespace softgpu

extern "C" {

CUresult CUDAAPI cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                        unsigned int flags) {
  return softgpu::SubmitOne(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                        unsigned int flags) {
  return softgpu::SubmitOne(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}
CUresult CUDAAPI cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                         unsigned int flags) {
  return softgpu::SubmitOne(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}
CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                         unsigned int flags) {
  return softgpu::SubmitOne(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}
CUresult CUDAAPI cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                       CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  return flags == 0 ? softgpu::Submit(stream, count, paramArray) : CUDA_ERROR_INVALID_VALUE;
}

// The first forms do the same.
CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                     unsigned int flags) {
  return softgpu::SubmitOne(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                     unsigned int flags) {
  return softgpu::SubmitOne(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}
CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                      unsigned int flags) {
  return softgpu::SubmitOne(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}
CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                      unsigned int flags) {
  return softgpu::SubmitOne(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}
CUresult CUDAAPI cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray,
                                    unsigned int flags) {
  return flags == 0 ? softgpu::Submit(stream, count, paramArray) : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"

// Entry points: copies.
#include <cuda.h>

#include <cstring>
#include <utility>
#include <vector>

#include "softgpu/driver/actions.h"
#include "softgpu/driver/capture.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_actions.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/stream.h"

namespace softgpu {
namespace {

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

struct Run {
  CUmemorytype type;
  uint64_t address;
};
Run HostRun(const void* pointer) { return {CU_MEMORYTYPE_HOST, Address(pointer)}; }
Run DeviceRun(CUdeviceptr address) { return {CU_MEMORYTYPE_DEVICE, address}; }
Run UnifiedRun(CUdeviceptr address) { return {CU_MEMORYTYPE_UNIFIED, address}; }

// `handle` 0 with async false: the default stream of the variant that was called.
CUresult CopyLinear(Run dst, Run src, size_t bytes, CUstream handle, bool async) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult error = CUDA_SUCCESS;
  std::shared_ptr<Stream> stream = ResolveStream(entry.context(), handle, &error);
  if (stream == nullptr) return error;
  CopyJob job;
  CUresult resolved = ResolveLinearCopy(entry.state().memory().manager(), dst.type, dst.address, src.type,
                                        src.address, bytes, &job);
  if (resolved != CUDA_SUCCESS) return resolved;
  return DoCopy(*stream, LinearParams(dst.type, dst.address, src.type, src.address, bytes), std::move(job),
                async);
}

CUresult CopyBox(const CUDA_MEMCPY3D& copy, CUstream handle, bool async) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult error = CUDA_SUCCESS;
  std::shared_ptr<Stream> stream = ResolveStream(entry.context(), handle, &error);
  if (stream == nullptr) return error;
  MemoryParts& parts = entry.state().memory();
  CopyJob job;
  CUresult resolved = ResolveCopy(parts.manager(), parts.arrays(), copy, &job);
  return resolved == CUDA_SUCCESS ? DoCopy(*stream, copy, std::move(job), async) : resolved;
}

CUDA_MEMCPY3D Widen(const CUDA_MEMCPY2D& copy) {
  CUDA_MEMCPY3D wide{};
  wide.srcXInBytes = copy.srcXInBytes;
  wide.srcY = copy.srcY;
  wide.srcMemoryType = copy.srcMemoryType;
  wide.srcHost = copy.srcHost;
  wide.srcDevice = copy.srcDevice;
  wide.srcArray = copy.srcArray;
  wide.srcPitch = copy.srcPitch;
  wide.dstXInBytes = copy.dstXInBytes;
  wide.dstY = copy.dstY;
  wide.dstMemoryType = copy.dstMemoryType;
  wide.dstHost = copy.dstHost;
  wide.dstDevice = copy.dstDevice;
  wide.dstArray = copy.dstArray;
  wide.dstPitch = copy.dstPitch;
  wide.WidthInBytes = copy.WidthInBytes;
  wide.Height = copy.Height;
  wide.Depth = 1;
  return wide;
}

CUDA_MEMCPY3D WithoutContexts(const CUDA_MEMCPY3D_PEER& copy) {
  // The two differ in the members that are reserved in one and name contexts in the other.
  static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D));
  CUDA_MEMCPY3D plain;
  memcpy(&plain, &copy, sizeof plain);
  plain.reserved0 = plain.reserved1 = nullptr;
  return plain;
}

// Bytes of an array by their offset: the first row only, as the 1D copies of the manual promise no more.
void ArraySide(CUarray array, size_t offset, bool source, CUDA_MEMCPY3D* copy) {
  (source ? copy->srcMemoryType : copy->dstMemoryType) = CU_MEMORYTYPE_ARRAY;
  (source ? copy->srcArray : copy->dstArray) = array;
  (source ? copy->srcXInBytes : copy->dstXInBytes) = offset;
}

CUDA_MEMCPY3D ArrayCopy(Run dst, CUarray dst_array, size_t dst_offset, Run src, CUarray src_array,
                        size_t src_offset, size_t bytes) {
  CUDA_MEMCPY3D copy = LinearParams(dst.type, dst.address, src.type, src.address, bytes);
  if (src_array != nullptr) ArraySide(src_array, src_offset, true, &copy);
  if (dst_array != nullptr) ArraySide(dst_array, dst_offset, false, &copy);
  return copy;
}

constexpr Run kNone{CU_MEMORYTYPE_DEVICE, 0};

// Puts `op` before all later work of the context's blocking streams.
void HoldBack(Context& context, const OpPtr& op) { context.legacy_stream().Enqueue(nullptr, {op}); }

// "Serialized with respect to all pending and future asynchronous work" of the three contexts (cuMemcpyPeer).
CUresult CopySerialized(Context& src, Context& dst, Stream& stream, const CUDA_MEMCPY3D& params,
                        CopyJob job) {
  CUresult forbidden = ForbidDuringCapture(*CurrentThread());
  if (forbidden == CUDA_SUCCESS) forbidden = stream.context().error();
  if (forbidden != CUDA_SUCCESS || job.bytes() == 0) return forbidden;
  std::vector<OpPtr> before = src.legacy_stream().Pending();
  for (OpPtr& op : dst.legacy_stream().Pending()) before.push_back(std::move(op));
  bool wait = !job.src.on_device() || !job.dst.on_device();
  if (job.src.pageable()) {
    CUresult staged = StageSource(&job);
    if (staged != CUDA_SUCCESS) return staged;
  }
  OpPtr op = stream.Enqueue(std::make_shared<CopyAction>(params, std::move(job)), before);
  HoldBack(src, op);
  HoldBack(dst, op);
  if (!wait) return CUDA_SUCCESS;
  op->Wait();
  return stream.context().error();
}

CUresult CopyBetween(CUcontext dst_handle, CUcontext src_handle, const CUDA_MEMCPY3D& params, CUstream handle,
                     bool async) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult error = CUDA_SUCCESS;
  std::shared_ptr<Stream> stream = ResolveStream(entry.context(), handle, &error);
  if (stream == nullptr) return error;
  std::shared_ptr<Context> dst = entry.state().FindContext(dst_handle);
  std::shared_ptr<Context> src = entry.state().FindContext(src_handle);
  bool contexts = (dst != nullptr || params.dstMemoryType == CU_MEMORYTYPE_ARRAY) &&
                  (src != nullptr || params.srcMemoryType == CU_MEMORYTYPE_ARRAY);
  if (!contexts) return CUDA_ERROR_INVALID_CONTEXT;
  MemoryParts& parts = entry.state().memory();
  CopyJob job;
  CUresult resolved = ResolveCopy(parts.manager(), parts.arrays(), params, &job);
  if (resolved != CUDA_SUCCESS) return resolved;
  if (async) return DoCopy(*stream, params, std::move(job), true);
  Context& current = entry.context();
  return CopySerialized(src ? *src : current, dst ? *dst : current, *stream, params, std::move(job));
}

bool ValidAttributes(const CUmemcpyAttributes* attributes, const size_t* starts, size_t number,
                     size_t count) {
  if (attributes == nullptr || starts == nullptr || number == 0 || number > count || starts[0] != 0)
    return false;
  for (size_t i = 0; i < number; ++i) {
    if (i > 0 && (starts[i] <= starts[i - 1] || starts[i] >= count)) return false;
    bool order = attributes[i].srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
                 attributes[i].srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    if (!order || (attributes[i].flags & ~CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) != 0) return false;
  }
  return true;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return CopyLinear(UnifiedRun(dst), UnifiedRun(src), ByteCount, nullptr, false);
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return CopyLinear(UnifiedRun(dst), UnifiedRun(src), ByteCount, hStream, true);
}

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return CopyLinear(DeviceRun(dstDevice), HostRun(srcHost), ByteCount, nullptr, false);
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                      CUstream hStream) {
  return CopyLinear(DeviceRun(dstDevice), HostRun(srcHost), ByteCount, hStream, true);
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return CopyLinear(HostRun(dstHost), DeviceRun(srcDevice), ByteCount, nullptr, false);
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                      CUstream hStream) {
  return CopyLinear(HostRun(dstHost), DeviceRun(srcDevice), ByteCount, hStream, true);
}

CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return CopyLinear(DeviceRun(dstDevice), DeviceRun(srcDevice), ByteCount, nullptr, false);
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                      CUstream hStream) {
  return CopyLinear(DeviceRun(dstDevice), DeviceRun(srcDevice), ByteCount, hStream, true);
}

CUresult CUDAAPI cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                                 size_t ByteCount) {
  return CopyBox(ArrayCopy(kNone, dstArray, dstOffset, DeviceRun(srcDevice), nullptr, 0, ByteCount), nullptr,
                 false);
}

CUresult CUDAAPI cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                                 size_t ByteCount) {
  return CopyBox(ArrayCopy(DeviceRun(dstDevice), nullptr, 0, kNone, srcArray, srcOffset, ByteCount), nullptr,
                 false);
}

CUresult CUDAAPI cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost, size_t ByteCount) {
  return CopyBox(ArrayCopy(kNone, dstArray, dstOffset, HostRun(srcHost), nullptr, 0, ByteCount), nullptr,
                 false);
}

CUresult CUDAAPI cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                      size_t ByteCount, CUstream hStream) {
  return CopyBox(ArrayCopy(kNone, dstArray, dstOffset, HostRun(srcHost), nullptr, 0, ByteCount), hStream,
                 true);
}

CUresult CUDAAPI cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return CopyBox(ArrayCopy(HostRun(dstHost), nullptr, 0, kNone, srcArray, srcOffset, ByteCount), nullptr,
                 false);
}

CUresult CUDAAPI cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                                      CUstream hStream) {
  return CopyBox(ArrayCopy(HostRun(dstHost), nullptr, 0, kNone, srcArray, srcOffset, ByteCount), hStream,
                 true);
}

CUresult CUDAAPI cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                                 size_t ByteCount) {
  return CopyBox(ArrayCopy(kNone, dstArray, dstOffset, kNone, srcArray, srcOffset, ByteCount), nullptr,
                 false);
}

CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox(Widen(*pCopy), nullptr, false);
}

CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox(Widen(*pCopy), nullptr, false);
}

CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox(Widen(*pCopy), hStream, true);
}

CUresult CUDAAPI cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox(*pCopy, nullptr, false);
}

CUresult CUDAAPI cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return pCopy == nullptr ? CUDA_ERROR_INVALID_VALUE : CopyBox(*pCopy, hStream, true);
}

CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                              CUcontext srcContext, size_t ByteCount) {
  CUDA_MEMCPY3D params =
      LinearParams(CU_MEMORYTYPE_DEVICE, dstDevice, CU_MEMORYTYPE_DEVICE, srcDevice, ByteCount);
  return CopyBetween(dstContext, srcContext, params, nullptr, false);
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                   CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  CUDA_MEMCPY3D params =
      LinearParams(CU_MEMORYTYPE_DEVICE, dstDevice, CU_MEMORYTYPE_DEVICE, srcDevice, ByteCount);
  return CopyBetween(dstContext, srcContext, params, hStream, true);
}

CUresult CUDAAPI cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CopyBetween(pCopy->dstContext, pCopy->srcContext, WithoutContexts(*pCopy), nullptr, false);
}

CUresult CUDAAPI cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CopyBetween(pCopy->dstContext, pCopy->srcContext, WithoutContexts(*pCopy), hStream, true);
}

CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                       CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                                       CUstream hStream) {
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!ValidAttributes(attrs, attrsIdxs, numAttrs, count)) return CUDA_ERROR_INVALID_VALUE;
  // The default streams are refused by the manual.
  if (hStream == nullptr || hStream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    CUresult result = CopyLinear(UnifiedRun(dsts[i]), UnifiedRun(srcs[i]), sizes[i], hStream, true);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"

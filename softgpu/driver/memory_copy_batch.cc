// Entry point: copies of boxes in one call. They are carried out one after the other.
#include <cuda.h>

#include <algorithm>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {
namespace {

// Bytes of an element: of an array's texel; 0 for one that is none. A pointer has no say.
size_t ElementBytes(const CUmemcpy3DOperand& operand, size_t otherwise) {
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return otherwise;
  std::shared_ptr<const Array> array = State::Get()->memory().arrays().Find(operand.op.array.array);
  return array == nullptr ? 0 : array->texel_bytes;
}

// Lengths of 0 mean that rows and layers follow each other without a gap.
bool IsWideEnough(const CUmemcpy3DOperand& operand, const CUextent3D& extent) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) return true;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return false;
  const auto& run = operand.op.ptr;
  return (run.rowLength == 0 || run.rowLength >= extent.width) &&
         (run.layerHeight == 0 || run.layerHeight >= extent.height);
}

struct Side {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  CUdeviceptr address = 0;
  CUarray array = nullptr;
  size_t x = 0, y = 0, z = 0, pitch = 0, height = 0;
};

Side Describe(const CUmemcpy3DOperand& operand, const CUextent3D& extent, size_t element) {
  Side side;
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const CUoffset3D& offset = operand.op.array.offset;
    side.type = CU_MEMORYTYPE_ARRAY;
    side.array = operand.op.array.array;
    side.x = offset.x * element, side.y = offset.y, side.z = offset.z;
    return side;
  }
  const auto& run = operand.op.ptr;
  side.address = run.ptr;
  side.pitch = (run.rowLength == 0 ? extent.width : run.rowLength) * element;
  side.height = run.layerHeight == 0 ? extent.height : run.layerHeight;
  return side;
}

CUresult CopyOne(const CUDA_MEMCPY3D_BATCH_OP& op, CUstream stream) {
  const size_t element = ElementBytes(op.src, ElementBytes(op.dst, 1));
  const bool order = op.srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
                     op.srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  const bool sizes = op.extent.width != 0 && op.extent.height != 0 && op.extent.depth != 0;
  if (!order || !sizes || element == 0 || element != ElementBytes(op.dst, element) ||
      !IsWideEnough(op.src, op.extent) || !IsWideEnough(op.dst, op.extent))
    return CUDA_ERROR_INVALID_VALUE;
  const Side src = Describe(op.src, op.extent, element), dst = Describe(op.dst, op.extent, element);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = src.type, copy.dstMemoryType = dst.type;
  copy.srcDevice = src.address, copy.dstDevice = dst.address;
  copy.srcArray = src.array, copy.dstArray = dst.array;
  copy.srcXInBytes = src.x, copy.srcY = src.y, copy.srcZ = src.z;
  copy.dstXInBytes = dst.x, copy.dstY = dst.y, copy.dstZ = dst.z;
  copy.srcPitch = src.pitch, copy.dstPitch = dst.pitch;
  copy.srcHeight = src.height, copy.dstHeight = dst.height;
  copy.WidthInBytes = op.extent.width * element;
  copy.Height = op.extent.height;
  copy.Depth = op.extent.depth;
  return cuMemcpy3DAsync_v2(&copy, stream);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                         unsigned long long flags, CUstream hStream) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  // The default streams are refused by the manual.
  const bool named = hStream != nullptr && hStream != CU_STREAM_LEGACY;
  if (numOps == 0 || opList == nullptr || flags != 0 || !named) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < numOps; ++i) {
    const CUresult result = CopyOne(opList[i], hStream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"

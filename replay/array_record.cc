#include "replay/array_record.h"

#include <algorithm>

#include "replay/current_context.h"
#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

// Bytes of one channel; 0 for formats whose texels are not simply channels side by side (planes, blocks).
size_t ChannelBytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

// Sizes with 1 for dimensions that are not there. Layers and faces count as depth.
struct Shape {
  explicit Shape(const CUDA_ARRAY3D_DESCRIPTOR& desc)
      : row(desc.Width * desc.NumChannels * ChannelBytes(desc.Format)),
        height(std::max<size_t>(desc.Height, 1)),
        depth(std::max<size_t>(desc.Depth, 1)) {}
  size_t bytes() const { return row * height * depth; }
  const size_t row, height, depth;
};

// All of the array; the host's side is left to the caller.
CUDA_MEMCPY3D CopyOf(const Shape& shape) {
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = shape.row;
  copy.Height = shape.height;
  copy.Depth = shape.depth;
  copy.srcPitch = copy.dstPitch = shape.row;
  copy.srcHeight = copy.dstHeight = shape.height;
  return copy;
}

std::vector<RecordPtr> ParentsOf(const ContextPtr& context) {
  return context == nullptr ? std::vector<RecordPtr>{} : std::vector<RecordPtr>{context};
}

Status Refuse(const Record& record, const char* why, const char* call) {
  return Errorf(StatusCode::kUnsupported, "%s %s (%s)", record.Name().c_str(), why, call);
}

Status CheckArray(const Record& record, const ContextPtr& context, const CUDA_ARRAY3D_DESCRIPTOR& desc,
                  const char* call) {
  if (context == nullptr) return Refuse(record, "was created in a context that cannot be rebuilt", call);
  if ((desc.Flags & CUDA_ARRAY3D_SPARSE) != 0) return Refuse(record, "is sparse: CUDA_ARRAY3D_SPARSE", call);
  if ((desc.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) != 0)
    return Refuse(record, "is mapped by the program: CUDA_ARRAY3D_DEFERRED_MAPPING", call);
  if (ChannelBytes(desc.Format) == 0)
    return Errorf(StatusCode::kUnsupported, "%s has a format whose texels cannot be saved: 0x%x (%s)",
                  record.Name().c_str(), static_cast<unsigned>(desc.Format), call);
  return {};
}

}  // namespace

Status ArrayContents::Save(CUarray array) {
  RETURN_IF_ERROR(DriverStatus(Driver().cuArray3DGetDescriptor_v2(&desc_, array), "cuArray3DGetDescriptor"));
  const Shape shape(desc_);
  ASSIGN_OR_RETURN(bytes_, Mapping::Anonymous(shape.bytes()));
  CUDA_MEMCPY3D copy = CopyOf(shape);
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = bytes_.data();
  return DriverStatus(Driver().cuMemcpy3D_v2(&copy), "cuMemcpy3D");
}

Status ArrayContents::PutBack(CUarray array) const {
  CUDA_MEMCPY3D copy = CopyOf(Shape(desc_));
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = bytes_.data();
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  return DriverStatus(Driver().cuMemcpy3D_v2(&copy), "cuMemcpy3D");
}

ArrayRecord::ArrayRecord(ContextPtr context, const CUDA_ARRAY3D_DESCRIPTOR& desc)
    : Record(ObjectKind::kArray, ParentsOf(context)), context_(std::move(context)), desc_(desc) {}

Status ArrayRecord::Check() { return CheckArray(*this, context_, desc_, "cuArray3DCreate"); }

Status ArrayRecord::Save() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  return contents_.Save(real_array());
}

Status ArrayRecord::Destroy() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  return DriverStatus(Driver().cuArrayDestroy(real_array()), "cuArrayDestroy");
}

Result<uint64_t> ArrayRecord::Rebuild() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  CUarray array = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuArray3DCreate_v2(&array, &desc_), "cuArray3DCreate"));
  Status status = contents_.PutBack(array);
  if (status.ok()) return reinterpret_cast<uint64_t>(array);
  (void)Driver().cuArrayDestroy(array);
  return status;
}

MipmappedArrayRecord::MipmappedArrayRecord(ContextPtr context, const CUDA_ARRAY3D_DESCRIPTOR& desc,
                                           unsigned levels)
    : Record(ObjectKind::kMipmappedArray, ParentsOf(context)),
      context_(std::move(context)),
      desc_(desc),
      levels_(levels) {}

Status MipmappedArrayRecord::Check() { return CheckArray(*this, context_, desc_, "cuMipmappedArrayCreate"); }

Status MipmappedArrayRecord::Save() {
  contents_.clear();
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  for (unsigned level = 0; level < levels_; ++level) {
    CUarray array = nullptr;
    const CUresult result = Driver().cuMipmappedArrayGetLevel(&array, real_array(), level);
    // No driver makes more levels than the size has bits.
    if (level > 0 && result == CUDA_ERROR_INVALID_VALUE) break;
    RETURN_IF_ERROR(DriverStatus(result, "cuMipmappedArrayGetLevel"));
    RETURN_IF_ERROR(contents_.emplace_back().Save(array));
  }
  return {};
}

Status MipmappedArrayRecord::Destroy() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  return DriverStatus(Driver().cuMipmappedArrayDestroy(real_array()), "cuMipmappedArrayDestroy");
}

Status MipmappedArrayRecord::PutBack(CUmipmappedArray mipmap) const {
  for (unsigned level = 0; level < contents_.size(); ++level) {
    CUarray array = nullptr;
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuMipmappedArrayGetLevel(&array, mipmap, level), "cuMipmappedArrayGetLevel"));
    RETURN_IF_ERROR(contents_[level].PutBack(array));
  }
  return {};
}

Result<uint64_t> MipmappedArrayRecord::Rebuild() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  CUmipmappedArray mipmap = nullptr;
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuMipmappedArrayCreate(&mipmap, &desc_, levels_), "cuMipmappedArrayCreate"));
  Status status = PutBack(mipmap);
  if (status.ok()) return reinterpret_cast<uint64_t>(mipmap);
  (void)Driver().cuMipmappedArrayDestroy(mipmap);
  return status;
}

Result<uint64_t> ArrayLevelRecord::Rebuild() {
  const CurrentContext current(mipmap_->context()->real_context());
  RETURN_IF_ERROR(current.status());
  CUarray array = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuMipmappedArrayGetLevel(&array, mipmap_->real_array(), level_),
                               "cuMipmappedArrayGetLevel"));
  return reinterpret_cast<uint64_t>(array);
}

void NoteArray(const CUDA_ARRAY3D_DESCRIPTOR& desc, CUarray* array) {
  AddRecord(std::make_shared<ArrayRecord>(CurrentContextRecord(), desc), array);
}

void NoteMipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned levels, CUmipmappedArray* mipmap) {
  AddRecord(std::make_shared<MipmappedArrayRecord>(CurrentContextRecord(), desc, levels), mipmap);
}

void NoteArrayLevel(CUmipmappedArray mipmap, unsigned level, CUarray* array) {
  const auto record = FindAs<MipmappedArrayRecord>(mipmap);
  if (record == nullptr) return;
  AddSharedRecord(std::make_shared<ArrayLevelRecord>(record, level), array);
}

}  // namespace stasis::replay

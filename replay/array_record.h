// CUDA arrays and mipmapped arrays, with their contents.
//
// How texels lie in memory is the driver's secret, and their memory has no descriptor that could be handed
// over as that of other device memory is: the contents are copied into memory of the process at a pause, and
// back at the resume.
#ifndef REPLAY_ARRAY_RECORD_H_
#define REPLAY_ARRAY_RECORD_H_

#include <cuda.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/mapping.h"
#include "replay/context_record.h"
#include "replay/object_table.h"

namespace stasis::replay {

// The texels of one array, while the driver has them not. Arrays are the driver's handles, and their context
// is current.
class ArrayContents {
 public:
  Status Save(CUarray array);
  Status PutBack(CUarray array) const;

 private:
  CUDA_ARRAY3D_DESCRIPTOR desc_{};
  Mapping bytes_;
};

class ArrayRecord final : public Record {
 public:
  ArrayRecord(ContextPtr context, const CUDA_ARRAY3D_DESCRIPTOR& desc);
  CUarray real_array() const { return reinterpret_cast<CUarray>(real()); }

  Status Check() override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;
  void Rebuilt() override { contents_ = ArrayContents(); }

 private:
  const ContextPtr context_;
  const CUDA_ARRAY3D_DESCRIPTOR desc_;
  ArrayContents contents_;
};

class MipmappedArrayRecord final : public Record {
 public:
  MipmappedArrayRecord(ContextPtr context, const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned levels);
  const ContextPtr& context() const { return context_; }
  CUmipmappedArray real_array() const { return reinterpret_cast<CUmipmappedArray>(real()); }

  Status Check() override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;
  void Rebuilt() override { contents_.clear(); }

 private:
  Status PutBack(CUmipmappedArray mipmap) const;

  const ContextPtr context_;
  const CUDA_ARRAY3D_DESCRIPTOR desc_;
  const unsigned levels_;  // as asked for; the driver may have made fewer
  std::vector<ArrayContents> contents_;
};

// One level of a mipmapped array, which the program was given a handle of.
class ArrayLevelRecord final : public Record {
 public:
  ArrayLevelRecord(std::shared_ptr<MipmappedArrayRecord> mipmap, unsigned level)
      : Record(ObjectKind::kArrayLevel, {mipmap}), mipmap_(std::move(mipmap)), level_(level) {}
  Status Destroy() override { return {}; }
  Result<uint64_t> Rebuild() override;

 private:
  const std::shared_ptr<MipmappedArrayRecord> mipmap_;
  const unsigned level_;
};

// ---- For the hooks: what the driver has just made in the current context gets a record, and its handle
// becomes the visible one.

void NoteArray(const CUDA_ARRAY3D_DESCRIPTOR& desc, CUarray* array);
void NoteMipmappedArray(const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned levels, CUmipmappedArray* mipmap);
// `mipmap`: visible.
void NoteArrayLevel(CUmipmappedArray mipmap, unsigned level, CUarray* array);

}  // namespace stasis::replay

#endif  // REPLAY_ARRAY_RECORD_H_

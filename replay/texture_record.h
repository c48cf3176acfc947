// Texture and surface objects.
//
// Their handles are numbers that lie in parameters of kernels, in tables in device memory and in structures
// of the program: nobody can translate them where a kernel reads them. A rebuilt object must get its old
// number, or the rebuild fails and says so.
//
// That is possible because a new driver numbers the objects of a context as the old one did, from low to
// high: objects are made in the order of their numbers, and where the program has destroyed one, what is made
// in its place only fills the gap and is destroyed when all are there. A driver whose numbers are no such
// indices is refused at the pause, before anything is touched.
#ifndef REPLAY_TEXTURE_RECORD_H_
#define REPLAY_TEXTURE_RECORD_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replay/context_record.h"
#include "replay/object_table.h"

namespace stasis::replay {

enum class TextureSort : uint8_t { kTexture, kSurface };

// What an object was made from. Handles are visible ones.
struct TextureObject {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
  RecordPtr array;  // that it shows; null: of linear memory, or not tracked
  // At the last Save() what it showed was gone, and the program may only destroy it: anything stands in.
  bool dangling = false;
};
using TexturePtr = std::shared_ptr<TextureObject>;

// All objects of one context.
class TextureSet final : public Record {
 public:
  explicit TextureSet(ContextPtr context);

  void Add(uint64_t number, TextureSort sort, TexturePtr object);
  // Unless another object has its number by now.
  void Remove(uint64_t number, TextureSort sort, const TexturePtr& object);
  // Null when it has no such object.
  TexturePtr Find(uint64_t number, TextureSort sort) const;

  std::string Name() const override;
  Status Check() override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;

 private:
  using Key = std::pair<uint64_t, TextureSort>;

  Result<bool> CanBeMade(const TextureObject& object);
  Result<uint64_t> Make(TextureSort sort, const TextureObject& object);
  Result<CUDA_RESOURCE_DESC> RealResource(const TextureObject& object);
  Status Place(const Key& key, const TextureObject& object, std::vector<Key>* fillers);
  Status PlaceAll(std::vector<Key>* fillers);
  Status DestroyStandIn();

  const ContextPtr context_;
  mutable std::mutex mutex_;  // a leaf: guards objects_ while the gate is open
  std::map<Key, TexturePtr> objects_;
  CUarray stand_in_ = nullptr;  // the driver's
};

// ---- For the hooks.

// An object was made in the current context. False when that is none of ours, so that it cannot be rebuilt.
bool NoteTexture(uint64_t number, TextureSort sort, const CUDA_RESOURCE_DESC& visible,
                 const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view);
// Before and after an object is destroyed.
struct DyingTexture {
  std::shared_ptr<TextureSet> set;
  TexturePtr object;
};
DyingTexture PrepareTextureDestroy(uint64_t number, TextureSort sort);
void NoteTextureDestroyed(const DyingTexture& dying, uint64_t number, TextureSort sort);
// Of the current context. Null when it is not known.
TexturePtr FindTexture(uint64_t number, TextureSort sort);

}  // namespace stasis::replay

#endif  // REPLAY_TEXTURE_RECORD_H_

#include "replay/texture_record.h"

#include <unordered_map>

#include "replay/current_context.h"
#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

// Indices of descriptors are below this on every device so far; what is not is no index.
constexpr uint64_t kMaxNumber = 1 << 20;

const char* SortName(TextureSort sort) {
  return sort == TextureSort::kTexture ? "texture object" : "surface object";
}

CUresult DestroyObject(uint64_t number, TextureSort sort) {
  return sort == TextureSort::kTexture ? Driver().cuTexObjectDestroy(number)
                                       : Driver().cuSurfObjectDestroy(number);
}

// The handle of the array in a descriptor; null in those of linear memory.
uint64_t ArrayIn(const CUDA_RESOURCE_DESC& resource) {
  if (resource.resType == CU_RESOURCE_TYPE_ARRAY)
    return reinterpret_cast<uint64_t>(resource.res.array.hArray);
  if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    return reinterpret_cast<uint64_t>(resource.res.mipmap.hMipmappedArray);
  return 0;
}

bool IsInTable(const RecordPtr& record) { return ObjectTable::Get().Find(record->visible()) == record; }

// The sets by context. The object table owns them; one that left it with its context expires.
struct Sets {
  std::mutex mutex;  // a leaf but for the object table's
  std::unordered_map<const ContextRecord*, std::weak_ptr<TextureSet>> by_context;
};

Sets& All() {
  static Sets* const sets = new Sets;
  return *sets;
}

std::shared_ptr<TextureSet> FindSetLocked(const ContextPtr& context) {
  const auto found = All().by_context.find(context.get());
  std::shared_ptr<TextureSet> set = found == All().by_context.end() ? nullptr : found->second.lock();
  return set != nullptr && IsInTable(set) ? set : nullptr;
}

std::shared_ptr<TextureSet> FindSet(const ContextPtr& context) {
  if (context == nullptr) return nullptr;
  std::lock_guard lock(All().mutex);
  return FindSetLocked(context);
}

std::shared_ptr<TextureSet> FindOrMakeSet(const ContextPtr& context) {
  std::lock_guard lock(All().mutex);
  std::shared_ptr<TextureSet> set = FindSetLocked(context);
  if (set != nullptr) return set;
  set = std::make_shared<TextureSet>(context);
  // No handle of the driver: its own address stands for it.
  ObjectTable::Get().Add(set, reinterpret_cast<uint64_t>(set.get()));
  std::erase_if(All().by_context, [](const auto& entry) { return entry.second.expired(); });
  All().by_context[context.get()] = set;
  return set;
}

std::vector<std::shared_ptr<TextureSet>> EverySet() {
  std::vector<std::shared_ptr<TextureSet>> sets;
  std::lock_guard lock(All().mutex);
  for (const auto& [context, weak] : All().by_context) {
    if (std::shared_ptr<TextureSet> set = weak.lock()) sets.push_back(std::move(set));
  }
  return sets;
}

}  // namespace

TextureSet::TextureSet(ContextPtr context)
    : Record(ObjectKind::kTexture, {context}), context_(std::move(context)) {}

std::string TextureSet::Name() const { return "texture and surface objects of " + context_->Name(); }

void TextureSet::Add(uint64_t number, TextureSort sort, TexturePtr object) {
  std::lock_guard lock(mutex_);
  objects_[{number, sort}] = std::move(object);
}

void TextureSet::Remove(uint64_t number, TextureSort sort, const TexturePtr& object) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find({number, sort});
  if (found != objects_.end() && found->second == object) objects_.erase(found);
}

TexturePtr TextureSet::Find(uint64_t number, TextureSort sort) const {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find({number, sort});
  return found == objects_.end() ? nullptr : found->second;
}

Status TextureSet::Check() {
  for (const auto& [key, object] : objects_) {
    const auto refuse = [sort = key.second, number = key.first](const char* why) {
      return Errorf(StatusCode::kUnsupported, "%s %llu %s (%s)", SortName(sort),
                    static_cast<unsigned long long>(number), why,
                    sort == TextureSort::kTexture ? "cuTexObjectCreate" : "cuSurfObjectCreate");
    };
    if (key.first > kMaxNumber) return refuse("has a number that no new driver would give again");
    if (ArrayIn(object->resource) != 0 && object->array == nullptr)
      return refuse("shows an array that is not tracked");
  }
  return {};
}

// Whether memory is still there, all of it and as the driver wants it, is for the driver to say.
Result<bool> TextureSet::CanBeMade(const TextureObject& object) {
  CUDA_RESOURCE_DESC resource = object.resource;
  unsigned long long number = 0;
  const CUDA_RESOURCE_VIEW_DESC* view = object.view ? &*object.view : nullptr;
  const CUresult result = Driver().cuTexObjectCreate(&number, &resource, &object.texture, view);
  if (result == CUDA_ERROR_INVALID_VALUE) return false;
  RETURN_IF_ERROR(DriverStatus(result, "cuTexObjectCreate"));
  RETURN_IF_ERROR(DriverStatus(Driver().cuTexObjectDestroy(number), "cuTexObjectDestroy"));
  return true;
}

Status TextureSet::Save() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  for (auto& [key, object] : objects_) {
    if (object->array != nullptr) {
      object->dangling = !IsInTable(object->array);
    } else {
      ASSIGN_OR_RETURN(const bool alive, CanBeMade(*object));
      object->dangling = !alive;
    }
  }
  return {};
}

Status TextureSet::DestroyStandIn() {
  if (stand_in_ == nullptr) return {};
  return DriverStatus(Driver().cuArrayDestroy(std::exchange(stand_in_, nullptr)), "cuArrayDestroy");
}

Status TextureSet::Destroy() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  Status first;
  for (const auto& [key, object] : objects_) {
    Status status = DriverStatus(DestroyObject(key.first, key.second), "cuTexObjectDestroy");
    if (first.ok()) first = std::move(status);
  }
  Status status = DestroyStandIn();
  return first.ok() ? status : first;
}

Result<CUDA_RESOURCE_DESC> TextureSet::RealResource(const TextureObject& object) {
  CUDA_RESOURCE_DESC resource = object.resource;
  if (object.dangling) {
    CUDA_ARRAY3D_DESCRIPTOR desc{};
    desc.Width = desc.Height = 1;
    desc.Format = CU_AD_FORMAT_FLOAT;
    desc.NumChannels = 1;
    desc.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    if (stand_in_ == nullptr)
      RETURN_IF_ERROR(DriverStatus(Driver().cuArray3DCreate_v2(&stand_in_, &desc), "cuArray3DCreate"));
    resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = stand_in_;
  } else if (resource.resType == CU_RESOURCE_TYPE_ARRAY) {
    resource.res.array.hArray = ToReal(resource.res.array.hArray);
  } else if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    resource.res.mipmap.hMipmappedArray = ToReal(resource.res.mipmap.hMipmappedArray);
  }
  return resource;
}

Result<uint64_t> TextureSet::Make(TextureSort sort, const TextureObject& object) {
  ASSIGN_OR_RETURN(const CUDA_RESOURCE_DESC resource, RealResource(object));
  unsigned long long number = 0;
  if (sort == TextureSort::kSurface) {
    RETURN_IF_ERROR(DriverStatus(Driver().cuSurfObjectCreate(&number, &resource), "cuSurfObjectCreate"));
    return uint64_t{number};
  }
  const CUDA_TEXTURE_DESC plain{};
  const CUDA_RESOURCE_VIEW_DESC* view = object.view && !object.dangling ? &*object.view : nullptr;
  RETURN_IF_ERROR(DriverStatus(
      Driver().cuTexObjectCreate(&number, &resource, object.dangling ? &plain : &object.texture, view),
      "cuTexObjectCreate"));
  return uint64_t{number};
}

// All objects with smaller numbers are there, so what comes out instead fills a gap.
Status TextureSet::Place(const Key& key, const TextureObject& object, std::vector<Key>* fillers) {
  uint64_t number = 0;
  for (uint64_t tries = 0; tries <= key.first; ++tries) {
    ASSIGN_OR_RETURN(number, Make(key.second, object));
    if (number == key.first) return {};
    fillers->emplace_back(number, key.second);
    if (number > key.first) break;
  }
  return Errorf(StatusCode::kFailedPrecondition,
                "%s %llu would come back as %llu, and kernels know it by its number", SortName(key.second),
                static_cast<unsigned long long>(key.first), static_cast<unsigned long long>(number));
}

Status TextureSet::PlaceAll(std::vector<Key>* fillers) {
  for (auto object = objects_.begin(); object != objects_.end(); ++object) {
    Status status = Place(object->first, *object->second, fillers);
    if (status.ok()) continue;
    // The next try begins with none of them.
    for (auto made = objects_.begin(); made != object; ++made)
      (void)DestroyObject(made->first.first, made->first.second);
    return status;
  }
  return {};
}

Result<uint64_t> TextureSet::Rebuild() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  std::vector<Key> fillers;
  Status status = PlaceAll(&fillers);
  for (const Key& filler : fillers) (void)DestroyObject(filler.first, filler.second);
  if (status.ok()) return visible();
  (void)DestroyStandIn();
  return status;
}

bool NoteTexture(uint64_t number, TextureSort sort, const CUDA_RESOURCE_DESC& visible,
                 const CUDA_TEXTURE_DESC* texture, const CUDA_RESOURCE_VIEW_DESC* view) {
  const ContextPtr context = CurrentContextRecord();
  if (context == nullptr) return false;
  const auto object = std::make_shared<TextureObject>();
  object->resource = visible;
  if (texture != nullptr) object->texture = *texture;
  if (view != nullptr) object->view = *view;
  if (const uint64_t array = ArrayIn(visible)) object->array = ObjectTable::Get().Find(array);
  FindOrMakeSet(context)->Add(number, sort, object);
  return true;
}

// A driver may know the numbers of all contexts in each of them.
DyingTexture PrepareTextureDestroy(uint64_t number, TextureSort sort) {
  DyingTexture dying;
  dying.set = FindSet(CurrentContextRecord());
  if (dying.set != nullptr) dying.object = dying.set->Find(number, sort);
  if (dying.object != nullptr) return dying;
  for (const std::shared_ptr<TextureSet>& other : EverySet()) {
    TexturePtr object = other->Find(number, sort);
    if (object != nullptr) return {other, std::move(object)};
  }
  return {};
}

void NoteTextureDestroyed(const DyingTexture& dying, uint64_t number, TextureSort sort) {
  if (dying.object != nullptr) dying.set->Remove(number, sort, dying.object);
}

TexturePtr FindTexture(uint64_t number, TextureSort sort) {
  const std::shared_ptr<TextureSet> set = FindSet(CurrentContextRecord());
  return set == nullptr ? nullptr : set->Find(number, sort);
}

}  // namespace stasis::replay

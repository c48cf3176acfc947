#include "intercept/libraries/handle_library.h"

#include <algorithm>
#include <utility>

#include "intercept/libraries/handles.h"
#include "intercept/libraries/library_gate.h"
#include "vmm/real_driver.h"

namespace stasis::libraries {
namespace {

constinit std::mutex g_libraries_mutex;
constinit std::vector<HandleLibrary*>* g_libraries = nullptr;  // guarded by g_libraries_mutex

std::vector<HandleLibrary*> HandleLibraries() {
  std::lock_guard<std::mutex> lock(g_libraries_mutex);
  return g_libraries == nullptr ? std::vector<HandleLibrary*>() : *g_libraries;
}

// The program's context, made current in the control thread by our own wrappers: they and the library's calls
// then agree on it.
class ContextOf {
 public:
  explicit ContextOf(CUcontext visible) : pushed_(visible != nullptr) {
    if (pushed_) status_ = DriverStatus(::cuCtxPushCurrent_v2(visible), "cuCtxPushCurrent");
  }
  ~ContextOf() {
    CUcontext popped = nullptr;
    if (pushed_ && status_.ok()) (void)::cuCtxPopCurrent_v2(&popped);
  }
  ContextOf(const ContextOf&) = delete;
  ContextOf& operator=(const ContextOf&) = delete;
  const Status& status() const { return status_; }

 private:
  const bool pushed_;
  Status status_;
};

}  // namespace

void* HandleLibrary::Made(void* real, HandleObjectPtr object) {
  (void)::cuCtxGetCurrent(&object->context_);
  void* const visible = AddHandle(real);
  object->visible_ = visible;
  std::lock_guard<std::mutex> lock(mutex_);
  object->sequence_ = next_sequence_++;
  objects_[visible] = std::move(object);
  return visible;
}

void HandleLibrary::Keep(const void* visible) {
  With(visible, [](HandleObject& object) { object.kept_ = true; });
}

HandleObjectPtr HandleLibrary::Take(void* visible) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = objects_.find(visible);
  if (found == objects_.end()) return nullptr;
  const HandleObjectPtr object = found->second;
  objects_.erase(found);
  return object;
}

void* HandleLibrary::Forget(void* visible) { return ForgetHandle(visible); }
void HandleLibrary::End(void* visible) { EndHandle(visible); }

void HandleLibrary::PutBack(void* visible, void* real, const HandleObjectPtr& object) {
  if (object == nullptr) return;
  RestoreHandle(visible, real);
  std::lock_guard<std::mutex> lock(mutex_);
  objects_[visible] = object;
}

void HandleLibrary::ContextGone(CUcontext visible) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [handle, object] : objects_)
    if (object->context_ == visible) object->kept_ = true;
}

std::vector<HandleObjectPtr> HandleLibrary::Objects() {
  std::vector<HandleObjectPtr> objects;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [handle, object] : objects_) objects.push_back(object);
  std::sort(objects.begin(), objects.end(),
            [](const HandleObjectPtr& a, const HandleObjectPtr& b) { return a->sequence_ < b->sequence_; });
  return objects;
}

Status HandleLibrary::GiveUp() {
  for (const HandleObjectPtr& object : Objects())
    if (object->there_ && !object->kept_) RETURN_IF_ERROR(GiveUpOne(*object));
  return {};
}

Status HandleLibrary::GiveUpOne(HandleObject& object) {
  const ContextOf current(object.context_);
  RETURN_IF_ERROR(current.status());
  void* const real = ToReal(object.visible_);
  object.Read(real);
  RETURN_IF_ERROR(Destroy(real));
  object.there_ = false;
  SetReal<void>(object.visible_, nullptr);
  return {};
}

Status HandleLibrary::Rebuild() {
  std::vector<HandleObject*> made;
  for (const HandleObjectPtr& object : Objects()) {
    if (object->there_) continue;
    Status status = RebuildOne(*object);
    if (status.ok()) {
      made.push_back(object.get());
      continue;
    }
    for (HandleObject* other : made) (void)GiveUpOne(*other);
    return status;
  }
  return {};
}

Status HandleLibrary::RebuildOne(HandleObject& object) {
  const ContextOf current(object.context_);
  RETURN_IF_ERROR(current.status());
  ASSIGN_OR_RETURN(void* const real, Create());
  if (Status status = object.Apply(real); !status.ok()) {
    (void)Destroy(real);
    return status;
  }
  object.there_ = true;
  SetReal(object.visible_, real);
  return {};
}

void RegisterHandles(HandleLibrary* library) {
  Register(library);
  std::lock_guard<std::mutex> lock(g_libraries_mutex);
  if (g_libraries == nullptr) g_libraries = new std::vector<HandleLibrary*>;
  g_libraries->push_back(library);
}

// Whichever stream is captured: to ask for the handle's own would take a call.
void internal::KeepUsedInCapture(const void* handle) {
  for (HandleLibrary* library : HandleLibraries()) library->Keep(handle);
}

void ContextGone(CUcontext visible) {
  for (HandleLibrary* library : HandleLibraries()) library->ContextGone(visible);
}

void ResetHandleLibrariesAfterFork() {
  new (&g_libraries_mutex) std::mutex;
  for (HandleLibrary* library : HandleLibraries()) library->ResetAfterFork();
}

}  // namespace stasis::libraries

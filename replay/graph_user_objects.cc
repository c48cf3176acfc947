#include "replay/graph_user_objects.h"

#include <algorithm>
#include <climits>
#include <mutex>

#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {
// Guards the counts of all user objects; a leaf.
constinit std::mutex g_mutex;
}  // namespace

struct UserObjectRecord::Token {
  std::shared_ptr<UserObjectRecord> record;
};

// True when the caller must run the program's destructor.
bool UserObjectRecord::TakeDestructor(bool only_if_unreferenced) {
  std::lock_guard lock(g_mutex);
  if (destroyed_ || (only_if_unreferenced && references_ + by_graphs_ != 0)) return false;
  return destroyed_ = true;
}

// Runs in a thread of the driver, or in the one that gave the last reference back.
void UserObjectRecord::LastReferenceGone(void* data) {
  const std::unique_ptr<Token> token(static_cast<Token*>(data));
  const std::shared_ptr<UserObjectRecord>& record = token->record;
  bool suspended;
  {
    std::lock_guard lock(g_mutex);
    suspended = record->suspended_;
  }
  if (!record->TakeDestructor(suspended)) return;
  ObjectTable::Get().Remove(record);
  record->destroy_(record->object_);
}

void UserObjectRecord::Retain(uint64_t count) {
  std::lock_guard lock(g_mutex);
  references_ += count;
}
void UserObjectRecord::Release(uint64_t count) {
  std::lock_guard lock(g_mutex);
  references_ -= std::min(count, references_);
}
void UserObjectRecord::RetainByGraph(uint64_t count) {
  std::lock_guard lock(g_mutex);
  by_graphs_ += count;
}
void UserObjectRecord::ReleaseByGraph(uint64_t count) {
  std::lock_guard lock(g_mutex);
  by_graphs_ -= std::min(count, by_graphs_);
}
void UserObjectRecord::Suspend() {
  std::lock_guard lock(g_mutex);
  suspended_ = true;
}

// The graphs are gone already: what is left is the program's.
Status UserObjectRecord::Destroy() {
  Suspend();
  const uint64_t left = references_ + (surplus_ ? 1 : 0);
  surplus_ = false;
  if (left == 0) return {};
  return DriverStatus(Driver().cuUserObjectRelease(handle(), static_cast<unsigned>(left)),
                      "cuUserObjectRelease");
}

Result<uint64_t> UserObjectRecord::Rebuild() {
  if (references_ + by_graphs_ == 0) {
    // The old driver was closed before it had called the destructor.
    if (TakeDestructor(true)) destroy_(object_);
    return uint64_t{0};
  }
  surplus_ = references_ == 0;
  auto token = std::make_unique<Token>();
  token->record = std::static_pointer_cast<UserObjectRecord>(ObjectTable::Get().Find(visible()));
  CUuserObject made = nullptr;
  const auto first = static_cast<unsigned>(references_ + (surplus_ ? 1 : 0));
  const CUresult result = Driver().cuUserObjectCreate(&made, token.get(), &LastReferenceGone, first,
                                                      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  RETURN_IF_ERROR(DriverStatus(result, "cuUserObjectCreate"));
  token.release();
  std::lock_guard lock(g_mutex);
  suspended_ = false;
  return reinterpret_cast<uint64_t>(made);
}

void UserObjectRecord::Rebuilt() {
  if (surplus_) Driver().cuUserObjectRelease(handle(), 1);
  surplus_ = false;
}

CUresult CreateUserObject(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned references,
                          unsigned flags) {
  // The driver refuses a null destructor; ours must not hide that.
  if (object == nullptr || destroy == nullptr)
    return Driver().cuUserObjectCreate(object, pointer, destroy, references, flags);
  auto token = std::make_unique<UserObjectRecord::Token>();
  token->record = std::make_shared<UserObjectRecord>(pointer, destroy, references);
  const std::shared_ptr<UserObjectRecord> record = token->record;
  const CUresult result = Driver().cuUserObjectCreate(
      object, token.get(), &UserObjectRecord::LastReferenceGone, references, flags);
  if (result != CUDA_SUCCESS) return result;
  token.release();
  AddRecord(record, object);
  return result;
}

void UserReferences::Add(const std::shared_ptr<UserObjectRecord>& object, uint64_t count) {
  object->RetainByGraph(count);
  std::lock_guard lock(g_mutex);
  counts_[object] += count;
}

void UserReferences::Remove(const std::shared_ptr<UserObjectRecord>& object, uint64_t count) {
  object->ReleaseByGraph(count);
  std::lock_guard lock(g_mutex);
  const auto found = counts_.find(object);
  if (found == counts_.end()) return;
  found->second -= std::min(count, found->second);
  if (found->second == 0) counts_.erase(found);
}

std::map<std::shared_ptr<UserObjectRecord>, uint64_t> UserReferences::Copy() const {
  std::lock_guard lock(g_mutex);
  return counts_;
}

void UserReferences::CopyFrom(const UserReferences& other) {
  untracked_ = untracked_ || other.untracked_;
  for (const auto& [object, count] : other.Copy()) Add(object, count);
}

void UserReferences::Clear() {
  for (const auto& [object, count] : Copy()) Remove(object, count);
}

bool UserReferences::empty() const {
  std::lock_guard lock(g_mutex);
  return counts_.empty();
}

void UserReferences::Suspend() const {
  for (const auto& [object, count] : Copy()) object->Suspend();
}

Status UserReferences::RetainIn(CUgraph graph) const {
  for (const auto& [object, count] : Copy()) {
    const CUresult result =
        Driver().cuGraphRetainUserObject(graph, object->handle(), static_cast<unsigned>(count), 0);
    RETURN_IF_ERROR(DriverStatus(result, "cuGraphRetainUserObject"));
  }
  return {};
}

void UserReferences::ReleaseFrom(CUgraph graph) const {
  for (const auto& [object, count] : Copy())
    Driver().cuGraphReleaseUserObject(graph, object->handle(), static_cast<unsigned>(count));
}

}  // namespace stasis::replay

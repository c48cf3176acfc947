#include "replay/object_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "replay/handle_map.h"
#include "replay/translate.h"

namespace stasis::replay {

namespace internal {

constinit std::atomic<bool> g_translating{false};

namespace {
constinit HandleMap g_to_real;
constinit HandleMap g_to_visible;
}  // namespace

uint64_t LookUpReal(uint64_t visible) {
  const uint64_t real = g_to_real.Get(visible);
  return real != 0 ? real : visible;
}

uint64_t LookUpVisible(uint64_t real) {
  const uint64_t visible = g_to_visible.Get(real);
  return visible != 0 ? visible : real;
}

}  // namespace internal

namespace {

// Visible handles of our own making: addresses that nobody else has, since they lie in inaccessible pages.
class SyntheticHandles {
 public:
  uint64_t Take() {
    if (free_.empty()) Refill();
    const uint64_t handle = free_.back();
    free_.pop_back();
    taken_.insert(handle);
    return handle;
  }
  void GiveBack(uint64_t handle) {
    if (taken_.erase(handle) != 0) free_.push_back(handle);
  }

 private:
  static constexpr size_t kBytes = 1 << 16;
  static constexpr size_t kStep = 16;
  void Refill() {
    void* got = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    STASIS_CHECK(got != MAP_FAILED);
    for (size_t at = kBytes; at > 0; at -= kStep)
      free_.push_back(reinterpret_cast<uint64_t>(got) + at - kStep);
  }
  std::vector<uint64_t> free_;
  std::unordered_set<uint64_t> taken_;
};

struct Table {
  std::mutex mutex;  // a leaf: guards all below, and is the one writer of the handle maps
  std::unordered_map<uint64_t, RecordPtr> records;  // by visible handle
  SyntheticHandles synthetic;
  uint64_t next_sequence = 1;
};

Table& State() {
  static Table* const table = new Table;  // programs call in from exit handlers
  return *table;
}

bool Before(const RecordPtr& a, const RecordPtr& b) {
  return a->kind() != b->kind() ? a->kind() < b->kind() : a->sequence() < b->sequence();
}

void Map(uint64_t visible, uint64_t real) {
  internal::g_to_real.Put(visible, real);
  internal::g_to_visible.Put(real, visible);
}

void Unmap(uint64_t visible, uint64_t real) {
  if (internal::g_to_real.Get(visible) != 0) internal::g_to_real.Put(visible, 0);
  if (real != 0 && internal::g_to_visible.Get(real) == visible) internal::g_to_visible.Put(real, 0);
}

RecordPtr FindLocked(uint64_t visible) {
  auto found = State().records.find(visible);
  return found == State().records.end() ? nullptr : found->second;
}

RecordPtr FindRealLocked(uint64_t real) {
  RecordPtr found = FindLocked(Translating() ? internal::LookUpVisible(real) : real);
  return found != nullptr && found->real() == real ? found : nullptr;
}

// Erases it; its handles mean nothing from now on.
void EraseLocked(const Record& record) {
  State().records.erase(record.visible());
  Unmap(record.visible(), record.real());
  State().synthetic.GiveBack(record.visible());
}

bool DependsOnAny(const Record& record, const std::unordered_set<const Record*>& gone) {
  return std::any_of(record.parents().begin(), record.parents().end(),
                     [&](const RecordPtr& parent) { return gone.count(parent.get()) != 0; });
}

// Parents are of smaller kinds or older, so one pass in order finds what depends indirectly as well.
void EraseDependentsLocked(const Record& record) {
  std::vector<RecordPtr> candidates;
  for (const auto& [visible, candidate] : State().records) {
    if (candidate->kind() >= record.kind() && !candidate->parents().empty()) candidates.push_back(candidate);
  }
  std::sort(candidates.begin(), candidates.end(), Before);
  std::unordered_set<const Record*> gone = {&record};
  for (const RecordPtr& candidate : candidates) {
    if (!DependsOnAny(*candidate, gone)) continue;
    gone.insert(candidate.get());
    EraseLocked(*candidate);
  }
}

bool CanHaveDependents(ObjectKind kind) {
  return kind <= ObjectKind::kFunction || kind == ObjectKind::kMipmappedArray;
}

}  // namespace

const char* ObjectKindName(ObjectKind kind) {
  switch (kind) {
#define STASIS_OBJECT_KIND(id, name, makers, restored, refused) \
  case ObjectKind::id:                                          \
    return name;
#include "base/object_kinds.inc"
  }
  return "object";
}

std::string Record::Name() const {
  char text[64];
  std::snprintf(text, sizeof text, "%s 0x%llx", ObjectKindName(kind_),
                static_cast<unsigned long long>(visible_));
  return text;
}

ObjectTable& ObjectTable::Get() {
  static ObjectTable* const table = new ObjectTable;
  return *table;
}

uint64_t ObjectTable::AddLocked(const RecordPtr& record, uint64_t real) {
  RecordPtr same = FindLocked(real);
  // Before the first rebuild a known value can only be the record of an object that died a moment ago.
  if (same != nullptr && !Translating()) EraseLocked(*same);
  const bool taken = same != nullptr && Translating();
  record->real_ = real;
  record->visible_ = taken ? State().synthetic.Take() : real;
  record->sequence_ = State().next_sequence++;
  if (taken) Map(record->visible_, real);
  State().records[record->visible_] = record;
  return record->visible_;
}

uint64_t ObjectTable::Add(const RecordPtr& record, uint64_t real) {
  std::lock_guard lock(State().mutex);
  return AddLocked(record, real);
}

uint64_t ObjectTable::AddShared(const RecordPtr& record, uint64_t real) {
  std::lock_guard lock(State().mutex);
  RecordPtr known = FindRealLocked(real);
  if (known != nullptr && known->kind() == record->kind()) return known->visible();
  return AddLocked(record, real);
}

RecordPtr ObjectTable::Find(uint64_t visible) const {
  std::lock_guard lock(State().mutex);
  return FindLocked(visible);
}

RecordPtr ObjectTable::FindReal(uint64_t real) const {
  std::lock_guard lock(State().mutex);
  return FindRealLocked(real);
}

void ObjectTable::Remove(const RecordPtr& record) {
  std::lock_guard lock(State().mutex);
  if (FindLocked(record->visible()) == record) EraseLocked(*record);
  if (CanHaveDependents(record->kind())) EraseDependentsLocked(*record);
}

void ObjectTable::RemoveDependents(const Record& record) {
  std::lock_guard lock(State().mutex);
  EraseDependentsLocked(record);
}

std::vector<RecordPtr> ObjectTable::InOrder() const {
  std::vector<RecordPtr> all;
  std::lock_guard lock(State().mutex);
  all.reserve(State().records.size());
  for (const auto& [visible, record] : State().records) all.push_back(record);
  std::sort(all.begin(), all.end(), Before);
  return all;
}

std::vector<RecordPtr> ObjectTable::InOrder(ObjectKind kind) const {
  std::vector<RecordPtr> all = InOrder();
  std::erase_if(all, [kind](const RecordPtr& record) { return record->kind() != kind; });
  return all;
}

size_t ObjectTable::size() const {
  std::lock_guard lock(State().mutex);
  return State().records.size();
}

void ObjectTable::SetReal(Record& record, uint64_t real) {
  std::lock_guard lock(State().mutex);
  Unmap(record.visible(), record.real());
  record.real_ = real;
  if (real == 0) return;
  internal::g_translating.store(true, std::memory_order_relaxed);
  Map(record.visible(), real);
}

void ObjectTable::ForgetReal() {
  std::lock_guard lock(State().mutex);
  for (const auto& [visible, record] : State().records) record->real_ = 0;
  internal::g_to_real.Reset();
  internal::g_to_visible.Reset();
}

}  // namespace stasis::replay

#include "intercept/libraries/handles.h"

#include <sys/mman.h>

#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "replay/handle_map.h"

namespace stasis::libraries {

namespace {

// In the lock-free map, of objects that are not there; a forgotten one has 0.
constexpr uint64_t kGone = 1;

// Visible handles of our own making: addresses that nobody else has, since they lie in inaccessible pages.
class SyntheticHandles {
 public:
  uint64_t Take() {
    if (free_.empty()) Refill();
    const uint64_t handle = free_.back();
    free_.pop_back();
    return handle;
  }
  void GiveBack(uint64_t handle) {
    for (const uint64_t page : pages_)
      if (handle - page < kBytes) free_.push_back(handle);
  }

 private:
  static constexpr size_t kBytes = 1 << 14;
  static constexpr size_t kStep = 16;
  void Refill() {
    void* got = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    STASIS_CHECK(got != MAP_FAILED);
    pages_.push_back(reinterpret_cast<uint64_t>(got));
    for (size_t at = kBytes; at > 0; at -= kStep) free_.push_back(pages_.back() + at - kStep);
  }
  std::vector<uint64_t> pages_;
  std::vector<uint64_t> free_;
};

struct Table {
  std::mutex mutex;                             // a leaf, and the one writer's of the map of real handles
  std::unordered_map<uint64_t, uint64_t> real;  // by visible; 0: not there
  std::unordered_map<uint64_t, uint64_t> visible;
  SyntheticHandles synthetic;
};

constinit replay::HandleMap g_to_real;

Table& State() {
  static Table* const table = new Table;  // programs call in from exit handlers
  return *table;
}

// Handles that are what they seem stay out of the map, so that it holds no more of them than were ever
// remade.
void MapLocked(uint64_t visible, uint64_t real) {
  Table& table = State();
  table.real[visible] = real;
  if (real != 0) table.visible[real] = visible;
  if (visible == real && g_to_real.Get(visible) == 0) return;
  g_to_real.Put(visible, real != 0 ? real : kGone);
  internal::g_translating.store(true, std::memory_order_release);
}

uint64_t UnmapLocked(uint64_t visible) {
  Table& table = State();
  const auto found = table.real.find(visible);
  if (found == table.real.end()) return visible;
  const uint64_t real = found->second;
  table.real.erase(found);
  table.visible.erase(real);
  if (g_to_real.Get(visible) != 0) g_to_real.Put(visible, 0);
  return real;
}

}  // namespace

namespace internal {

constinit std::atomic<bool> g_translating{false};

uint64_t LookUpReal(uint64_t visible) {
  const uint64_t real = g_to_real.Get(visible);
  if (real == kGone) return 0;
  return real != 0 ? real : visible;
}

uint64_t LookUpVisible(uint64_t real) {
  std::lock_guard<std::mutex> lock(State().mutex);
  const auto found = State().visible.find(real);
  return found == State().visible.end() ? real : found->second;
}

uint64_t AddHandle(uint64_t real) {
  std::lock_guard<std::mutex> lock(State().mutex);
  const uint64_t visible = State().real.count(real) == 0 ? real : State().synthetic.Take();
  MapLocked(visible, real);
  return visible;
}

void SetRealHandle(uint64_t visible, uint64_t real) {
  std::lock_guard<std::mutex> lock(State().mutex);
  (void)UnmapLocked(visible);
  MapLocked(visible, real);
}

uint64_t ForgetHandle(uint64_t visible) {
  std::lock_guard<std::mutex> lock(State().mutex);
  return UnmapLocked(visible);
}

void RestoreHandle(uint64_t visible, uint64_t real) {
  std::lock_guard<std::mutex> lock(State().mutex);
  MapLocked(visible, real);
}

void EndHandle(uint64_t visible) {
  std::lock_guard<std::mutex> lock(State().mutex);
  State().synthetic.GiveBack(visible);
}

}  // namespace internal

// What is mapped stays mapped; the other threads' half-done changes are of no use to a child.
void ResetHandlesAfterFork() { new (&State().mutex) std::mutex; }

}  // namespace stasis::libraries

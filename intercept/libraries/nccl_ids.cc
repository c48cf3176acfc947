#include "intercept/libraries/nccl_ids.h"

#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "intercept/libraries/nccl_comms.h"
#include "intercept/libraries/nccl_ledger.h"

namespace stasis::nccl {
namespace {

constinit std::mutex g_mutex;  // a leaf
std::set<uint64_t>& Waiting() {
  static std::set<uint64_t>* const waiting = new std::set<uint64_t>;
  return *waiting;
}
constinit std::atomic<uint32_t> g_local{0};

// Ids of other processes. Whoever has given one out asks at its next pause; one of so long ago is not asked
// for any more.
constexpr size_t kMaxUsed = 65536;
struct UsedIds {
  std::set<uint64_t> keys;
  std::deque<uint64_t> order;  // oldest first
};
UsedIds& Used() {
  static UsedIds* const used = new UsedIds;
  return *used;
}

// With g_mutex held.
void NoteUsed(uint64_t key) {
  UsedIds& used = Used();
  if (!used.keys.insert(key).second) return;
  used.order.push_back(key);
  if (used.order.size() <= kMaxUsed) return;
  used.keys.erase(used.order.front());
  used.order.pop_front();
}

void Close(const std::vector<uint64_t>& keys) {
  for (const uint64_t key : keys) NcclLedger::Get().CloseMeeting(key);
}

}  // namespace

void NoteIdMade(const ncclUniqueId& id) {
  const uint64_t key = CliqueKey(&id, 1);
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    if (!Waiting().insert(key).second) return;
  }
  NcclLedger::Get().OpenMeeting(key, "ncclCommInitRank with an id of ncclGetUniqueId");
}

void NoteIdsUsed(const ncclUniqueId* ids, int count) {
  std::vector<uint64_t> ours;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    for (int i = 0; i < count; ++i) {
      const uint64_t key = CliqueKey(&ids[i], 1);
      if (Waiting().erase(key) != 0) {
        ours.push_back(key);
      } else {
        NoteUsed(key);
      }
    }
  }
  Close(ours);
}

std::vector<uint64_t> UsedAmong(const std::vector<uint64_t>& keys) {
  std::vector<uint64_t> used;
  std::lock_guard<std::mutex> lock(g_mutex);
  for (const uint64_t key : keys)
    if (Used().keys.count(key) != 0) used.push_back(key);
  return used;
}

void NoteUsedElsewhere(const std::vector<uint64_t>& keys) {
  std::vector<uint64_t> ours;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    for (const uint64_t key : keys)
      if (Waiting().erase(key) != 0) ours.push_back(key);
  }
  Close(ours);
}

void ResetIdsAfterFork() { new (&g_mutex) std::mutex; }

uint64_t LocalKey() {
  return CliqueKey(0, "ncclCommInitAll", g_local.fetch_add(1, std::memory_order_relaxed), 0);
}

}  // namespace stasis::nccl

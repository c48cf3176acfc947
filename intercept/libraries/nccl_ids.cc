#include "intercept/libraries/nccl_ids.h"

#include <atomic>
#include <mutex>
#include <new>
#include <set>

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
  for (int i = 0; i < count; ++i) {
    const uint64_t key = CliqueKey(&ids[i], 1);
    {
      std::lock_guard<std::mutex> lock(g_mutex);
      if (Waiting().erase(key) == 0) continue;
    }
    NcclLedger::Get().CloseMeeting(key);
  }
}

void ResetIdsAfterFork() { new (&g_mutex) std::mutex; }

uint64_t LocalKey() {
  return CliqueKey(0, "ncclCommInitAll", g_local.fetch_add(1, std::memory_order_relaxed), 0);
}

}  // namespace stasis::nccl

#include "replay/handle_map.h"

#include <cstdlib>

#include "base/status.h"

namespace stasis::replay {

namespace {
constexpr size_t kFirstSlots = 256;
}

HandleMap::Table* HandleMap::NewTable(size_t slots, Table* older) {
  void* memory = std::calloc(1, sizeof(Table) + slots * sizeof(Slot));
  STASIS_CHECK(memory != nullptr);
  Table* table = static_cast<Table*>(memory);
  table->mask = slots - 1;
  table->older = older;
  return table;
}

HandleMap::Slot& HandleMap::SlotOf(Table& table, uint64_t key) {
  size_t i = Hash(key) & table.mask;
  for (;; i = (i + 1) & table.mask) {
    const uint64_t found = table.slots[i].key.load(std::memory_order_relaxed);
    if (found == key || found == 0) return table.slots[i];
  }
}

HandleMap::Table* HandleMap::Grow(Table* full) {
  Table* larger = NewTable(full == nullptr ? kFirstSlots : (full->mask + 1) * 2, full);
  for (size_t i = 0; full != nullptr && i <= full->mask; ++i) {
    const uint64_t key = full->slots[i].key.load(std::memory_order_relaxed);
    if (key == 0) continue;
    Slot& slot = SlotOf(*larger, key);
    slot.key.store(key, std::memory_order_relaxed);
    slot.value.store(full->slots[i].value.load(std::memory_order_relaxed), std::memory_order_relaxed);
    ++larger->used;
  }
  table_.store(larger, std::memory_order_release);
  return larger;
}

void HandleMap::Put(uint64_t key, uint64_t value) {
  STASIS_CHECK(key != 0);
  Table* table = table_.load(std::memory_order_relaxed);
  if (table == nullptr || table->used * 2 > table->mask) table = Grow(table);
  Slot& slot = SlotOf(*table, key);
  slot.value.store(value, std::memory_order_release);
  if (slot.key.load(std::memory_order_relaxed) == key) return;
  slot.key.store(key, std::memory_order_release);
  ++table->used;
}

void HandleMap::Reset() {
  Table* table = table_.exchange(nullptr, std::memory_order_acq_rel);
  while (table != nullptr) {
    Table* older = table->older;
    std::free(table);
    table = older;
  }
}

size_t HandleMap::keys() const {
  const Table* table = table_.load(std::memory_order_acquire);
  return table == nullptr ? 0 : table->used;
}

}  // namespace stasis::replay

// From one 64-bit number to another, with lookups that take no lock.
//
// Keys stay for ever once put (a forgotten one keeps its slot and answers 0), so a reader never meets a slot
// that changes its key. Who uses it keeps the number of different keys bounded.
#ifndef REPLAY_HANDLE_MAP_H_
#define REPLAY_HANDLE_MAP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stasis::replay {

class HandleMap {
 public:
  constexpr HandleMap() = default;
  HandleMap(const HandleMap&) = delete;
  HandleMap& operator=(const HandleMap&) = delete;
  ~HandleMap() = default;  // leaks: readers may outlive the end of main

  // The value of `key`, 0 when it has none. Any thread, at any time.
  uint64_t Get(uint64_t key) const {
    const Table* table = table_.load(std::memory_order_acquire);
    if (table == nullptr) return 0;
    for (size_t i = Hash(key) & table->mask;; i = (i + 1) & table->mask) {
      const uint64_t found = table->slots[i].key.load(std::memory_order_acquire);
      if (found == key) return table->slots[i].value.load(std::memory_order_acquire);
      if (found == 0) return 0;
    }
  }
  // `key` is not 0; a `value` of 0 forgets it. One writer at a time.
  void Put(uint64_t key, uint64_t value);
  // Forgets everything and frees the tables. No reader and no other writer may be inside.
  void Reset();
  // Different keys ever put since the last Reset().
  size_t keys() const;

 private:
  struct Slot {
    std::atomic<uint64_t> key;
    std::atomic<uint64_t> value;
  };
  struct Table {
    size_t mask;
    size_t used;
    Table* older;  // replaced by this one; readers may still be in it
    Slot slots[];
  };
  // Handles are addresses of the heap: their low bits say little.
  static size_t Hash(uint64_t key) { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20); }
  static Table* NewTable(size_t slots, Table* older);
  static Slot& SlotOf(Table& table, uint64_t key);
  Table* Grow(Table* full);

  std::atomic<Table*> table_{nullptr};
};

}  // namespace stasis::replay

#endif  // REPLAY_HANDLE_MAP_H_

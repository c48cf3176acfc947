#include "replay/handle_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace stasis::replay {
namespace {

TEST(HandleMap, AgreesWithAModelOverRandomWrites) {
  HandleMap map;
  std::unordered_map<uint64_t, uint64_t> model;
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t key = random() % 5000 + 1, value = random() % 3;
    map.Put(key, value);
    model[key] = value;
    const uint64_t asked = random() % 6000 + 1;
    auto found = model.find(asked);
    ASSERT_EQ(map.Get(asked), found == model.end() ? 0 : found->second);
  }
  EXPECT_EQ(map.keys(), model.size());
  map.Reset();
  EXPECT_EQ(map.Get(1), 0u);
  EXPECT_EQ(map.keys(), 0u);
}

TEST(HandleMap, AForgottenKeyKeepsItsSlot) {
  HandleMap map;
  for (int i = 0; i < 1000000; ++i) {
    map.Put(0x1000 + i % 10 * 16, 1 + i);
    map.Put(0x1000 + i % 10 * 16, 0);
  }
  EXPECT_EQ(map.keys(), 10u);
  map.Reset();
}

// Keys that are never touched answer rightly while a writer makes the table grow under the readers.
TEST(HandleMap, ReadersNeedNoLock) {
  HandleMap map;
  for (uint64_t key = 16; key <= 16 * 100; key += 16) map.Put(key, key + 1);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        for (uint64_t key = 16; key <= 16 * 100; key += 16) wrong += map.Get(key) != key + 1;
      }
    });
  }
  for (uint64_t key = 1 << 20; key < (1 << 20) + 50000; ++key) map.Put(key, key);
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u);
  map.Reset();
}

}  // namespace
}  // namespace stasis::replay

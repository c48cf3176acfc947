#include "stubs/torch/allocator_notes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace stasis::torch_stub {
namespace {

struct Entry {
  enum Action {
    ALLOC,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SNAPSHOT,
    OOM
  };
  Action action_;
  size_t addr_;
  size_t size_;
  std::pair<unsigned long long, unsigned long long> mempool_ = {0, 0};
};

std::vector<std::string> g_taken;

std::string Number(const void* address) { return std::to_string(reinterpret_cast<uintptr_t>(address)); }

std::vector<std::string> NotesOf(const std::vector<Entry>& entries) {
  g_taken.clear();
  AllocatorNotes<Entry> notes({[](const void* address, size_t bytes) {
                                 g_taken.push_back("+" + Number(address) + ":" + std::to_string(bytes));
                               },
                               [](const void* address) { g_taken.push_back("-" + Number(address)); }});
  for (const Entry& entry : entries) notes.Take(entry);
  return g_taken;
}

using Taken = std::vector<std::string>;

TEST(AllocatorNotesTest, BlocksOfTracedSegmentsAreNoted) {
  EXPECT_EQ(NotesOf({{Entry::SEGMENT_ALLOC, 1000, 100},
                     {Entry::ALLOC, 1000, 40},
                     {Entry::ALLOC, 1099, 1},
                     {Entry::FREE_REQUESTED, 1000, 40},
                     {Entry::FREE_COMPLETED, 1000, 40}}),
            (Taken{"+1000:100", "-1000", "+1000:40", "+1099:1", "-1000"}));
}

TEST(AllocatorNotesTest, SegmentsFromBeforeStayActiveAsAWhole) {
  EXPECT_EQ(NotesOf({{Entry::ALLOC, 500, 10},
                     {Entry::SEGMENT_ALLOC, 1000, 100},
                     {Entry::FREE_REQUESTED, 500, 10},
                     {Entry::ALLOC, 999, 1},
                     {Entry::ALLOC, 1100, 1}}),
            (Taken{"+1000:100", "-1000"}));
}

TEST(AllocatorNotesTest, ASegmentThatHasGoneIsForgotten) {
  EXPECT_EQ(
      NotesOf(
          {{Entry::SEGMENT_ALLOC, 1000, 100}, {Entry::SEGMENT_FREE, 1000, 100}, {Entry::ALLOC, 1000, 10}}),
      (Taken{"+1000:100", "-1000"}));
}

TEST(AllocatorNotesTest, PrivatePoolsAndAllElseAreLeftAlone) {
  EXPECT_EQ(NotesOf({{Entry::SEGMENT_ALLOC, 1000, 100, {0, 1}},
                     {Entry::ALLOC, 1000, 10, {0, 1}},
                     {Entry::SEGMENT_ALLOC, 2000, 100, {1, 0}},
                     {Entry::SEGMENT_MAP, 3000, 100},
                     {Entry::SNAPSHOT, 0, 0},
                     {Entry::OOM, 4000, 1}}),
            Taken{});
}

}  // namespace
}  // namespace stasis::torch_stub

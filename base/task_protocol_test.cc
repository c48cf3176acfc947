#include "base/task_protocol.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

// Every shorter payload must be refused, and none may be read beyond its end.
template <typename T, typename Decode>
void ExpectEveryPrefixRefused(const T& value, Decode decode) {
  const std::vector<std::byte> whole = Encode(value);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode(part).ok()) << size;
  }
}

TaskHello SomeHello() {
  TaskHello hello;
  hello.pid = 7;
  hello.state = TaskState::kReleased;
  hello.strategy = TaskStrategy::kDriverCheckpoint;
  hello.driver_path = "/lib/libcuda.so.1";
  hello.driver_version = 13000;
  hello.generation = 3;
  hello.failed = "CUDA_ERROR_ILLEGAL_ADDRESS";
  hello.taints = {{"cuImportExternalMemory", true}, {"cuGetExportTable", false}};
  hello.devices = {{1, 0, std::string(16, 'u'), "device", 1u << 30, 90, true}};
  return hello;
}

TEST(TaskProtocolTest, HelloComesBackWhole) {
  const TaskHello sent = SomeHello();
  Result<TaskHello> got = DecodeTaskHello(Encode(sent));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->pid, 7);
  EXPECT_EQ(got->state, sent.state);
  EXPECT_EQ(got->strategy, sent.strategy);
  EXPECT_EQ(got->driver_path, sent.driver_path);
  EXPECT_EQ(got->driver_version, 13000);
  EXPECT_EQ(got->generation, 3u);
  EXPECT_EQ(got->failed, sent.failed);
  ASSERT_EQ(got->taints.size(), 2u);
  EXPECT_EQ(got->taints[1].call, "cuGetExportTable");
  EXPECT_FALSE(got->taints[1].both);
  ASSERT_EQ(got->devices.size(), 1u);
  EXPECT_EQ(got->devices[0].uuid, std::string(16, 'u'));
  EXPECT_EQ(got->devices[0].compute_capability, 90u);
  EXPECT_TRUE(got->devices[0].used);
  ExpectEveryPrefixRefused(sent, DecodeTaskHello);
}

TEST(TaskProtocolTest, AnotherVersionIsRefusedByNumber) {
  std::vector<std::byte> bytes = Encode(SomeHello());
  bytes[0] = std::byte{9};
  const Status status = DecodeTaskHello(bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("version 9"), std::string_view::npos);
}

TEST(TaskProtocolTest, ErrorComesBackWhole) {
  TaskError sent;
  sent.status = Status(StatusCode::kTimeout, "still busy");
  sent.blockers = {{12, "cuStreamSynchronize"}};
  Result<TaskError> got = DecodeTaskError(Encode(sent));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->status.code(), StatusCode::kTimeout);
  EXPECT_EQ(got->status.message(), "still busy");
  ASSERT_EQ(got->blockers.size(), 1u);
  EXPECT_EQ(got->blockers[0].tid, 12);
  EXPECT_EQ(got->blockers[0].call, "cuStreamSynchronize");
  ExpectEveryPrefixRefused(sent, DecodeTaskError);
}

TEST(TaskProtocolTest, AnErrorThatSaysOkIsCorrupt) {
  TaskError sent;
  EXPECT_EQ(DecodeTaskError(Encode(sent)).status().code(), StatusCode::kCorrupt);
}

TEST(TaskProtocolTest, StatusExtentsAndAttachComeBackWhole) {
  const TaskStatus status{TaskState::kQuiesced, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  Result<TaskStatus> got_status = DecodeTaskStatus(Encode(status));
  ASSERT_TRUE(got_status.ok());
  EXPECT_EQ(got_status->host_bytes, 8u);
  EXPECT_EQ(got_status->records, 3u);
  EXPECT_EQ(got_status->active_bytes, 9u);
  EXPECT_EQ(got_status->ignored_notes, 13u);
  ExpectEveryPrefixRefused(status, DecodeTaskStatus);

  const std::vector<TaskExtent> extents = {{1, 0, 0x1000, 4096}, {2, 1, 0x200000, 1u << 21}};
  Result<std::vector<TaskExtent>> got_extents = DecodeTaskExtents(Encode(extents));
  ASSERT_TRUE(got_extents.ok());
  ASSERT_EQ(got_extents->size(), 2u);
  EXPECT_EQ((*got_extents)[1].address, 0x200000u);
  ExpectEveryPrefixRefused(extents, DecodeTaskExtents);

  const TaskAttach attach{true, "/lib/libcuda.so.1", {{0, 1}, {1, 0}}};
  Result<TaskAttach> got_attach = DecodeTaskAttach(Encode(attach));
  ASSERT_TRUE(got_attach.ok());
  EXPECT_TRUE(got_attach->restored);
  ASSERT_EQ(got_attach->placements.size(), 2u);
  EXPECT_EQ(got_attach->placements[0].physical_ordinal, 1);
  ExpectEveryPrefixRefused(attach, DecodeTaskAttach);
}

TEST(TaskProtocolTest, RangesComeBackWhole) {
  const std::vector<TaskRange> ranges = {{0x1000, 512}, {0x1200, 1}, {~0ull - 99, 99}};
  Result<std::vector<TaskRange>> got = DecodeTaskRanges(Encode(ranges));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, ranges);
  ExpectEveryPrefixRefused(ranges, DecodeTaskRanges);
}

TEST(TaskProtocolTest, EmptyUnsortedAndOverlappingRangesAreCorrupt) {
  using Ranges = std::vector<TaskRange>;
  for (const Ranges& bad : {Ranges{{0x1000, 0}}, Ranges{{~0ull - 10, 4096}}, Ranges{{0x2000, 1}, {0x1000, 1}},
                            Ranges{{0x1000, 513}, {0x1200, 512}}})
    EXPECT_EQ(DecodeTaskRanges(Encode(bad)).status().code(), StatusCode::kCorrupt);
}

TEST(TaskProtocolTest, CloseQuiescedAndResumeComeBackWhole) {
  const TaskProgress progress{17, 1ull << 40};
  Result<TaskProgress> got_progress = DecodeTaskProgress(Encode(progress));
  ASSERT_TRUE(got_progress.ok());
  EXPECT_EQ(*got_progress, progress);
  ExpectEveryPrefixRefused(progress, DecodeTaskProgress);

  const TaskClose close{20000, 500};
  Result<TaskClose> got_close = DecodeTaskClose(Encode(close));
  ASSERT_TRUE(got_close.ok());
  EXPECT_EQ(got_close->deadline_ms, 20000u);
  EXPECT_EQ(got_close->wait_low_ms, 500u);
  ExpectEveryPrefixRefused(close, DecodeTaskClose);

  const TaskQuiesced quiesced{1, 2, 3, 4, true};
  Result<TaskQuiesced> got_quiesced = DecodeTaskQuiesced(Encode(quiesced));
  ASSERT_TRUE(got_quiesced.ok());
  EXPECT_EQ(got_quiesced->active_bytes, 1u);
  EXPECT_EQ(got_quiesced->low_bytes, 2u);
  EXPECT_EQ(got_quiesced->high_bytes, 3u);
  EXPECT_EQ(got_quiesced->waited_ms, 4u);
  EXPECT_TRUE(got_quiesced->at_low);
  ExpectEveryPrefixRefused(quiesced, DecodeTaskQuiesced);

  const TaskResume resume{{{0, 1ull << 40}, {1, 7}}};
  Result<TaskResume> got_resume = DecodeTaskResume(Encode(resume));
  ASSERT_TRUE(got_resume.ok());
  ASSERT_EQ(got_resume->held.size(), 2u);
  EXPECT_EQ(got_resume->held[0].bytes, 1ull << 40);
  EXPECT_EQ(got_resume->held[1].virtual_ordinal, 1);
  ExpectEveryPrefixRefused(resume, DecodeTaskResume);
}

TEST(TaskProtocolTest, ImpossibleExtentsAreCorrupt) {
  for (const TaskExtent& bad :
       {TaskExtent{1, 0, 0x1000, 0}, TaskExtent{1, 0, ~0ull - 10, 4096}, TaskExtent{1, -1, 0x1000, 4096}})
    EXPECT_EQ(DecodeTaskExtents(Encode(std::vector<TaskExtent>{bad})).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stasis

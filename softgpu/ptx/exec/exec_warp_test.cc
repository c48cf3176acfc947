// Warp-wide operations against scalar models of the manual's text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>

#include "softgpu/ptx/exec/exec_testing.h"

namespace softgpu::exec {
namespace {

std::vector<uint32_t> RunKernel(const std::string& body, uint32_t threads, std::vector<uint32_t> in = {}) {
  TestDevice device;
  device.Load(SimpleKernel(body));
  if (testing::Test::HasFatalFailure()) return {};
  uint32_t* out = device.Alloc<uint32_t>(threads);
  uint32_t* input = device.Alloc<uint32_t>(in.size() + 1);
  std::copy(in.begin(), in.end(), input);
  Fault fault = device.Launch("k", {1}, {threads}, Pass(out, input));
  EXPECT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  return std::vector<uint32_t>(out, out + threads);
}

struct ShuffleResult {
  uint32_t value;
  bool in_range;
};

// shfl.sync as the manual's pseudo-code has it, on values a[lane].
ShuffleResult Shuffle(const std::string& mode, uint32_t lane, uint32_t b, uint32_t c,
                      const std::function<uint32_t(uint32_t)>& a) {
  uint32_t segmask = c >> 8 & 31, bval = b & 31, cval = c & 31;
  uint32_t max = (lane & segmask) | (cval & ~segmask), min = lane & segmask;
  int j;
  bool p;
  if (mode == "up") {
    j = static_cast<int>(lane) - static_cast<int>(bval);
    p = j >= static_cast<int>(max);
  } else if (mode == "down") {
    j = static_cast<int>(lane + bval);
    p = j <= static_cast<int>(max);
  } else if (mode == "bfly") {
    j = static_cast<int>(lane ^ bval);
    p = j <= static_cast<int>(max);
  } else {
    j = static_cast<int>(min | (bval & ~segmask));
    p = j <= static_cast<int>(max);
  }
  return {a(p ? static_cast<uint32_t>(j) : lane), p};
}

TEST(ExecWarpTest, ShufflesOfAllModesWidthsAndDistances) {
  for (std::string mode : {"up", "down", "bfly", "idx"}) {
    TestDevice device;
    device.Load(SimpleKernel(R"(
  ld.global.u32 %r2, [%rd1];
  ld.global.u32 %r3, [%rd1+4];
  mul.lo.u32 %r4, %r0, 7;
  shfl.sync.)" + mode + R"(.b32 %r5|%p1, %r4, %r2, %r3, -1;
  selp.u32 %r6, 1000, 0, %p1;
  add.u32 %r7, %r5, %r6;
  st.global.u32 [%rd0], %r7;
)"));
    uint32_t* out = device.Alloc<uint32_t>(32);
    uint32_t* in = device.Alloc<uint32_t>(2);
    for (uint32_t width : {32u, 16u, 8u, 4u, 2u}) {
      for (uint32_t distance = 0; distance < 32; distance += 3) {
        in[0] = distance;
        in[1] = (32 - width) << 8 | (mode == "up" ? 0 : 31);
        Fault fault = device.Launch("k", {1}, {32}, Pass(out, in));
        ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
        for (uint32_t lane = 0; lane < 32; ++lane) {
          ShuffleResult want = Shuffle(mode, lane, in[0], in[1], [](uint32_t l) { return 7 * l; });
          ASSERT_EQ(out[lane], want.value + (want.in_range ? 1000 : 0)) << mode << width << distance << lane;
        }
      }
    }
  }
}

TEST(ExecWarpTest, VotesCountOnlyTheMembers) {
  auto out = RunKernel(R"(
  setp.gt.u32 %p1, %r0, 3;
  vote.sync.all.pred %p2, %p1, -1;
  vote.sync.any.pred %p3, %p1, -1;
  vote.sync.ballot.b32 %r2, %p1, -1;
  vote.ballot.sync.b32 %r3, !%p1, -1;
  vote.sync.uni.pred %p4, %p1, -1;
  selp.u32 %r4, 1, 0, %p2;
  selp.u32 %r5, 2, 0, %p3;
  selp.u32 %r6, 4, 0, %p4;
  add.u32 %r4, %r4, %r5;
  add.u32 %r4, %r4, %r6;
  popc.b32 %r7, %r2;
  popc.b32 %r8, %r3;
  shl.b32 %r7, %r7, 8;
  shl.b32 %r8, %r8, 16;
  add.u32 %r4, %r4, %r7;
  add.u32 %r4, %r4, %r8;
  st.global.u32 [%rd0], %r4;
)",
                       32);
  for (uint32_t v : out) EXPECT_EQ(v, 2u | 28 << 8 | 4 << 16);
}

TEST(ExecWarpTest, HalvesWithTheirOwnMasksAtOneInstruction) {
  auto out = RunKernel(R"(
  setp.lt.u32 %p1, %r0, 16;
  selp.b32 %r2, 0x0000ffff, 0xffff0000, %p1;
  rem.u32 %r3, %r0, 3;
  setp.eq.u32 %p2, %r3, 0;
  vote.sync.ballot.b32 %r4, %p2, %r2;
  st.global.u32 [%rd0], %r4;
)",
                       32);
  uint32_t ballot = 0;
  for (uint32_t l = 0; l < 32; l += 3) ballot |= 1u << l;
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], ballot & (l < 16 ? 0xffffu : 0xffff0000u)) << l;
}

// The lanes come to the operation in two branches: it waits for all of them.
TEST(ExecWarpTest, MembersMayArriveAtDifferentInstructions) {
  auto out = RunKernel(R"(
  setp.lt.u32 %p1, %r0, 10;
  mul.lo.u32 %r2, %r0, 3;
  @%p1 bra A;
  shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
  bra.uni B;
A:
  shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
B:
  st.global.u32 [%rd0], %r3;
)",
                       32);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 3 * (l ^ 1)) << l;
}

TEST(ExecWarpTest, ExitedLanesAreNotWaitedFor) {
  auto out = RunKernel(R"(
  setp.ge.u32 %p1, %r0, 20;
  @%p1 exit;
  setp.eq.u32 %p2, %r0, %r0;
  vote.sync.ballot.b32 %r3, %p2, -1;
  st.global.u32 [%rd0], %r3;
)",
                       32);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l < 20 ? 0xfffffu : 0u) << l;
}

// Lanes wait in bar.warp.sync in both branches; shared memory written before is seen behind it.
TEST(ExecWarpTest, WarpSyncOrdersBranches) {
  auto out = RunKernel(R"(
  .shared .align 4 .b8 slots[128];
  mov.u32 %r2, slots;
  shl.b32 %r3, %r0, 2;
  add.u32 %r4, %r2, %r3;
  xor.b32 %r5, %r3, 64;
  add.u32 %r6, %r2, %r5;
  setp.lt.u32 %p1, %r0, 16;
  @%p1 bra A;
  add.u32 %r7, %r0, 100;
  st.shared.u32 [%r4], %r7;
  bar.warp.sync -1;
  ld.shared.u32 %r8, [%r6];
  bra.uni B;
A:
  add.u32 %r7, %r0, 200;
  st.shared.u32 [%r4], %r7;
  bar.warp.sync -1;
  ld.shared.u32 %r8, [%r6];
B:
  st.global.u32 [%rd0], %r8;
)",
                       32);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l < 16 ? l + 16 + 100 : l - 16 + 200) << l;
}

TEST(ExecWarpTest, MatchAnyAndAll) {
  auto out = RunKernel(R"(
  and.b32 %r2, %r0, 3;
  match.any.sync.b32 %r3, %r2, -1;
  cvt.u64.u32 %rd2, %r2;
  match.any.sync.b64 %r4, %rd2, -1;
  setp.ne.u32 %p3, %r3, %r4;
  @%p3 mov.u32 %r3, 0;
  match.all.sync.b32 %r5|%p1, %r2, -1;
  mov.u32 %r6, 5;
  match.all.sync.b32 %r7|%p2, %r6, -1;
  @%p1 mov.u32 %r3, 1;
  @!%p2 mov.u32 %r3, 2;
  setp.ne.u32 %p3, %r5, 0;
  @%p3 mov.u32 %r3, 3;
  setp.ne.u32 %p3, %r7, -1;
  @%p3 mov.u32 %r3, 4;
  st.global.u32 [%rd0], %r3;
)",
                       32);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 0x11111111u << (l & 3)) << l;
}

TEST(ExecWarpTest, ReductionsOfTheWarp) {
  struct Case {
    const char* op;
    uint32_t want;
  };
  // Values are lane - 16.
  for (Case c : {Case{"add.s32", static_cast<uint32_t>(-16)}, Case{"min.s32", static_cast<uint32_t>(-16)},
                 Case{"max.s32", 15}, Case{"min.u32", 0}, Case{"max.u32", 0xffffffff}, Case{"and.b32", 0},
                 Case{"or.b32", 0xffffffff}, Case{"xor.b32", 0}}) {
    auto out = RunKernel(std::string(R"(
  sub.u32 %r2, %r0, 16;
  redux.sync.)") + c.op + R"( %r3, %r2, -1;
  st.global.u32 [%rd0], %r3;
)",
                         32);
    for (uint32_t v : out) EXPECT_EQ(v, c.want) << c.op;
  }
}

TEST(ExecWarpTest, ElectChoosesOneLeader) {
  auto out = RunKernel(R"(
  elect.sync %r2|%p1, -1;
  selp.u32 %r3, 1, 0, %p1;
  shl.b32 %r2, %r2, 8;
  add.u32 %r3, %r3, %r2;
  st.global.u32 [%rd0], %r3;
)",
                       32);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l == 0 ? 1u : 0u);
}

TEST(ExecWarpTest, SpecialRegisters) {
  auto out = RunKernel(R"(
  mov.u32 %r2, %laneid;
  mov.u32 %r3, %warpid;
  mov.u32 %r4, %lanemask_lt;
  mov.u32 %r5, %lanemask_ge;
  xor.b32 %r6, %r4, %r5;
  setp.ne.u32 %p1, %r6, -1;
  mov.u32 %r7, %nwarpid;
  mad.lo.u32 %r8, %r3, 1000, %r2;
  mad.lo.u32 %r8, %r7, 100000, %r8;
  popc.b32 %r9, %r4;
  setp.ne.u32 %p2, %r9, %r2;
  @%p1 mov.u32 %r8, 1;
  @%p2 mov.u32 %r8, 2;
  mov.u64 %rd2, %clock64;
  mov.u64 %rd3, %globaltimer;
  setp.eq.u64 %p3, %rd2, 0;
  setp.eq.u64 %p4, %rd3, 0;
  @%p3 mov.u32 %r8, 3;
  @%p4 mov.u32 %r8, 4;
  st.global.u32 [%rd0], %r8;
)",
                       80);
  for (uint32_t i = 0; i < 80; ++i) EXPECT_EQ(out[i], 300000 + i / 32 * 1000 + i % 32) << i;
}

// ---- block-wide barriers ----

TEST(ExecBarrierTest, ReductionsOverTheBlock) {
  auto out = RunKernel(R"(
  setp.lt.u32 %p1, %r0, 70;
  bar.red.popc.u32 %r2, 0, %p1;
  bar.red.and.pred %p2, 0, %p1;
  bar.red.or.pred %p3, 0, !%p1;
  barrier.red.or.pred %p4, 1, %p1;
  selp.u32 %r3, 1000, 0, %p2;
  selp.u32 %r4, 2000, 0, %p3;
  selp.u32 %r5, 4000, 0, %p4;
  add.u32 %r2, %r2, %r3;
  add.u32 %r2, %r2, %r4;
  add.u32 %r2, %r2, %r5;
  st.global.u32 [%rd0], %r2;
)",
                       100);
  for (uint32_t v : out) EXPECT_EQ(v, 70u + 2000 + 4000);
}

// Producer warps arrive, consumer warps wait: barrier 1 with 64 threads.
TEST(ExecBarrierTest, ArriveAndSyncWithThreadCounts) {
  auto out = RunKernel(R"(
  .shared .align 4 .b8 box[128];
  mov.u32 %r2, box;
  and.b32 %r3, %r0, 31;
  shl.b32 %r3, %r3, 2;
  add.u32 %r4, %r2, %r3;
  setp.ge.u32 %p1, %r0, 32;
  @%p1 bra CONSUMER;
  add.u32 %r5, %r0, 500;
  st.shared.u32 [%r4], %r5;
  bar.arrive 1, 64;
  mov.u32 %r6, 1;
  bra.uni OUT;
CONSUMER:
  bar.sync 1, 64;
  ld.shared.u32 %r6, [%r4];
OUT:
  st.global.u32 [%rd0], %r6;
)",
                       64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i < 32 ? 1 : i - 32 + 500) << i;
}

TEST(ExecBarrierTest, ExitedThreadsDoNotHoldTheOthers) {
  auto out = RunKernel(R"(
  setp.ge.u32 %p1, %r0, 40;
  @%p1 bra OUT;
  bar.sync 0;
  mov.u32 %r2, 9;
  st.global.u32 [%rd0], %r2;
OUT:
)",
                       128);
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i < 40 ? 9u : 0u) << i;
}

TEST(ExecBarrierTest, DivergedLanesArriveOneAfterTheOther) {
  auto out = RunKernel(R"(
  and.b32 %r2, %r0, 1;
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra A;
  bar.sync 0;
  mov.u32 %r3, 1;
  bra.uni B;
A:
  bar.sync 0;
  mov.u32 %r3, 2;
B:
  st.global.u32 [%rd0], %r3;
)",
                       64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 2 ? 1u : 2u);
}

TEST(ExecBarrierTest, ABarrierNumberOutOfRangeIsAFault) {
  TestDevice device;
  device.Load(SimpleKernel("  mov.u32 %r2, 16;\n  barrier.sync %r2;\n"));
  Fault fault = device.Launch("k", {1}, {32}, Pass(uint64_t{0}, uint64_t{0}));
  EXPECT_EQ(fault.kind, FaultKind::kIllegalInstruction);
}

}  // namespace
}  // namespace softgpu::exec

// Scheduling of blocks: spinning on other blocks and on the host, yield, cancel, cooperative launches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "softgpu/ptx/exec/exec_testing.h"

namespace softgpu::exec {
namespace {

// Block b waits for the flag of block b-1 (forward) or b+1 (backward), adds one and raises its own.
std::string ChainKernel(bool forward) {
  return SimpleKernel(std::string(R"(
  setp.ne.u32 %p1, %r59, 0;
  @%p1 bra OUT;
  mov.u32 %r2, %nctaid.x;
  sub.u32 %r3, %r2, 1;
  mul.wide.u32 %rd2, %r57, 4;
  add.u64 %rd3, %rd1, %rd2;
  mov.u32 %r4, 0;
)") +
                      (forward ? "  setp.eq.u32 %p2, %r57, 0;\n  add.u64 %rd4, %rd3, -4;\n"
                               : "  setp.eq.u32 %p2, %r57, %r3;\n  add.u64 %rd4, %rd3, 4;\n") +
                      R"(
  @%p2 bra FIRST;
WAIT:
  ld.acquire.gpu.global.u32 %r4, [%rd4];
  setp.eq.u32 %p3, %r4, 0;
  @%p3 bra WAIT;
FIRST:
  add.u32 %r5, %r4, 1;
  st.release.gpu.global.u32 [%rd3], %r5;
OUT:
)");
}

TEST(ExecGridTest, BlocksWaitForEarlierOnes) {
  for (unsigned workers : {1u, 2u, 4u}) {
    TestDevice device;
    device.workers = workers;
    device.Load(ChainKernel(true));
    uint32_t* flags = device.Alloc<uint32_t>(200);
    Fault fault = device.Launch("k", {200}, {64}, Pass(uint64_t{0}, flags));
    ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
    for (uint32_t b = 0; b < 200; ++b) ASSERT_EQ(flags[b], b + 1);
  }
}

TEST(ExecGridTest, ResidentBlocksWaitForLaterOnes) {
  TestDevice device;
  device.Load(ChainKernel(false));
  uint32_t* flags = device.Alloc<uint32_t>(8);
  LaunchConfig config = device.Config("k", {8}, {64}, Pass(uint64_t{0}, flags));
  config.max_resident = 8;
  Fault fault = device.Run(config);
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t b = 0; b < 8; ++b) EXPECT_EQ(flags[b], 8 - b);
}

// Each warp waits for the next one of its block.
TEST(ExecGridTest, WarpsOfABlockWaitForEachOther) {
  TestDevice device;
  device.Load(SimpleKernel(R"(
  .shared .align 4 .b8 flags[132];
  shr.u32 %r2, %r59, 5;
  mov.u32 %r3, flags;
  shl.b32 %r4, %r2, 2;
  add.u32 %r5, %r3, %r4;
  mov.u32 %r6, 0;
  st.shared.u32 [%r5], %r6;
  setp.eq.u32 %p1, %r2, 7;
  bar.sync 0;
  @%p1 bra LAST;
WAIT:
  ld.volatile.shared.u32 %r6, [%r5+4];
  setp.eq.u32 %p2, %r6, 0;
  @%p2 bra WAIT;
LAST:
  add.u32 %r7, %r6, 1;
  st.volatile.shared.u32 [%r5], %r7;
  st.global.u32 [%rd0], %r7;
)"));
  uint32_t* out = device.Alloc<uint32_t>(256);
  Fault fault = device.Launch("k", {1}, {256}, Pass(out, uint64_t{0}));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 256; ++i) EXPECT_EQ(out[i], 8 - i / 32);
}

constexpr const char* kWaitForHost = R"(
  st.volatile.global.u32 [%rd1+4], 1;
WAIT:
  ld.volatile.global.u32 %r2, [%rd1];
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra WAIT;
  add.u32 %r3, %r2, %r0;
  st.global.u32 [%rd0], %r3;
)";

TEST(ExecGridTest, SpinsOnHostMemoryUntilTheHostWrites) {
  TestDevice device;
  device.Load(SimpleKernel(kWaitForHost));
  uint32_t* out = device.Alloc<uint32_t>(64);
  uint32_t* flag = device.Alloc<uint32_t>(2);
  std::thread host([flag] {
    while (__atomic_load_n(flag + 1, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
    __atomic_store_n(flag, 100, __ATOMIC_RELEASE);
  });
  Fault fault = device.Launch("k", {1}, {64}, Pass(out, flag));
  host.join();
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 100 + i);
}

TEST(ExecGridTest, YieldKeepsTheStateOfBegunBlocks) {
  TestDevice device;
  device.Load(SimpleKernel(kWaitForHost));
  uint32_t* out = device.Alloc<uint32_t>(128);
  uint32_t* flag = device.Alloc<uint32_t>(2);
  std::unique_ptr<Grid> grid = Grid::Create(device.Config("k", {2}, {64}, Pass(out, flag)));
  for (int round = 0; round < 5; ++round) {
    std::atomic<bool> yield{false};
    std::thread switcher([&] {
      while (__atomic_load_n(flag + 1, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
      yield = true;
    });
    EXPECT_EQ(grid->Run(0, yield), Grid::Outcome::kYielded);
    switcher.join();
    EXPECT_FALSE(grid->done());
  }
  __atomic_store_n(flag, 7, __ATOMIC_RELEASE);
  std::atomic<bool> go_on{false};
  EXPECT_EQ(grid->Run(0, go_on), Grid::Outcome::kNoMoreBlocks);
  EXPECT_TRUE(grid->done());
  EXPECT_EQ(grid->fault().kind, FaultKind::kNone);
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], 7 + i);
}

TEST(ExecGridTest, CancelEndsAKernelThatNeverWould) {
  // One block spins for ever, one waits at a barrier that nobody completes.
  for (const char* body :
       {"L: bra L;", "  setp.lt.u32 %p1, %r0, 32;\n  @%p1 bra A;\n  bar.sync 1, 64;\nA: bar.sync 2, 64;\n"}) {
    TestDevice device;
    device.Load(SimpleKernel(std::string("  st.volatile.global.u32 [%rd1], 1;\n") + body));
    uint32_t* flag = device.Alloc<uint32_t>(2);
    std::unique_ptr<Grid> grid = Grid::Create(device.Config("k", {1}, {64}, Pass(uint64_t{0}, flag)));
    std::thread canceller([&] {
      while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) std::this_thread::yield();
      grid->Cancel();
    });
    std::atomic<bool> yield{false};
    EXPECT_EQ(grid->Run(0, yield), Grid::Outcome::kYielded);
    canceller.join();
    EXPECT_TRUE(grid->done());
    EXPECT_EQ(grid->fault().kind, FaultKind::kNone);
  }
}

// The grid barrier as cooperative groups write it, on the workspace of envreg1 and envreg2.
TEST(ExecGridTest, CooperativeBlocksMeetAtAGridBarrier) {
  for (unsigned workers : {1u, 3u}) {
    TestDevice device;
    device.Load(SimpleKernel(R"(
  mov.u32 %r2, %envreg1;
  mov.u32 %r3, %envreg2;
  mov.b64 %rd2, {%r3, %r2};
  setp.eq.u64 %p1, %rd2, 0;
  @%p1 trap;
  mul.wide.u32 %rd3, %r57, 4;
  add.u64 %rd4, %rd1, %rd3;
  mov.u32 %r20, 0;
ROUND:
  setp.ne.u32 %p2, %r59, 0;
  @%p2 bra MEET;
  add.u32 %r4, %r57, %r20;
  // A block may be a round ahead of the one that reads this: the accesses race, and are volatile for that.
  st.volatile.global.u32 [%rd4], %r4;
MEET:
  barrier.sync 0;
  @%p2 bra WAIT_BLOCK;
  mov.u32 %r5, %nctaid.x;
  setp.eq.u32 %p3, %r57, 0;
  sub.u32 %r6, 0x80000000, %r5;
  add.u32 %r6, %r6, 1;
  selp.b32 %r7, %r6, 1, %p3;
  membar.gl;
  atom.add.release.gpu.u32 %r8, [%rd2+4], %r7;
SPIN:
  ld.acquire.gpu.u32 %r9, [%rd2+4];
  xor.b32 %r10, %r8, %r9;
  setp.ge.s32 %p4, %r10, 0;
  @%p4 bra SPIN;
WAIT_BLOCK:
  barrier.sync 0;
  // Read what the next block wrote.
  add.u32 %r11, %r57, 1;
  mov.u32 %r12, %nctaid.x;
  setp.eq.u32 %p5, %r11, %r12;
  @%p5 mov.u32 %r11, 0;
  mul.wide.u32 %rd5, %r11, 4;
  add.u64 %rd6, %rd1, %rd5;
  ld.volatile.global.u32 %r13, [%rd6];
  add.u32 %r14, %r11, %r20;
  setp.lt.u32 %p6, %r13, %r14;
  @%p6 trap;
  add.u32 %r20, %r20, 100;
  setp.lt.u32 %p7, %r20, 500;
  @%p7 bra ROUND;
  st.global.u32 [%rd0], %r13;
)"));
    constexpr uint32_t kBlocks = 12;
    uint32_t* out = device.Alloc<uint32_t>(kBlocks * 64);
    uint32_t* cells = device.Alloc<uint32_t>(kBlocks);
    uint32_t* workspace = device.Alloc<uint32_t>(2);
    workspace[0] = 8;
    LaunchConfig config = device.Config("k", {kBlocks}, {64}, Pass(out, cells));
    config.cooperative = true;
    config.grid_sync_workspace = reinterpret_cast<uint64_t>(workspace);
    config.workers = workers;
    config.max_resident = 1;
    EXPECT_TRUE(InfoOf(*config.kernel).uses_grid_sync);
    Fault fault = device.Run(config);
    ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
    for (uint32_t b = 0; b < kBlocks; ++b) EXPECT_EQ(out[b * 64], (b + 1) % kBlocks + 400) << b;
  }
}

TEST(ExecGridTest, NanosleepLetsOthersRun) {
  TestDevice device;
  device.Load(SimpleKernel(R"(
  .shared .align 4 .u32 flag;
  setp.ge.u32 %p1, %r59, 32;
  mov.u32 %r2, 0;
  st.shared.u32 [flag], %r2;
  bar.sync 0;
  @%p1 bra SETTER;
WAIT:
  nanosleep.u32 1000;
  ld.volatile.shared.u32 %r2, [flag];
  setp.eq.u32 %p2, %r2, 0;
  @%p2 bra WAIT;
  bra.uni OUT;
SETTER:
  nanosleep.u32 20000;
  mov.u32 %r2, 5;
  st.volatile.shared.u32 [flag], %r2;
OUT:
  st.global.u32 [%rd0], %r2;
)"));
  uint32_t* out = device.Alloc<uint32_t>(64);
  Fault fault = device.Launch("k", {1}, {64}, Pass(out, uint64_t{0}));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 5u);
}

TEST(ExecGridTest, AFaultStopsAllWorkers) {
  TestDevice device;
  device.workers = 3;
  device.Load(SimpleKernel(R"(
  setp.ne.u32 %p1, %r57, 2;
L: @%p1 bra L;
  trap;
)"));
  LaunchConfig config = device.Config("k", {3}, {32}, Pass(uint64_t{0}, uint64_t{0}));
  Fault fault = device.Run(config);
  EXPECT_EQ(fault.kind, FaultKind::kTrap);
}

TEST(ExecGridTest, KernelInfoTellsWhatTheDirectivesSay) {
  TestDevice device;
  device.Load(Ptx(R"(
.visible .entry small() .maxntid 128, 2, 1 .pragma "mark"; { ret; }
.visible .entry exact() .reqntid 64, 1, 1 .maxnreg 16 { ret; }
.visible .entry plain(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20]) { ret; }
)"));
  const KernelInfo& small = InfoOf(*device.program()->FindKernel("small"));
  EXPECT_EQ(small.max_threads, 256u);
  EXPECT_EQ(small.maxntid[0], 128u);
  EXPECT_EQ(small.pragmas, std::vector<std::string>{"mark"});
  EXPECT_EQ(InfoOf(*device.program()->FindKernel("exact")).max_threads, 64u);
  EXPECT_LE(InfoOf(*device.program()->FindKernel("exact")).registers, 16u);
  const KernelInfo& plain = InfoOf(*device.program()->FindKernel("plain"));
  EXPECT_EQ(plain.max_threads, 1024u);
  ASSERT_EQ(plain.params.size(), 3u);
  EXPECT_EQ(plain.params[1].offset, 8u);
  EXPECT_EQ(plain.params[2].offset, 16u);
  EXPECT_EQ(plain.params[2].size, 20u);
  EXPECT_EQ(plain.param_bytes, 36u);
  EXPECT_EQ(device.program()->ptx_version(), 88);
  EXPECT_EQ(device.program()->target_sm(), 90);
  EXPECT_EQ(device.program()->FindKernel("none"), nullptr);
}

}  // namespace
}  // namespace softgpu::exec

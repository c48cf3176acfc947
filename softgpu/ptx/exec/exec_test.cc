// Whole kernels: arithmetic on memory, loops, divergence, shared memory and barriers.
#include <gtest/gtest.h>

#include <numeric>

#include "softgpu/ptx/exec/exec_testing.h"

namespace softgpu::exec {
namespace {

constexpr const char* kVectorAdd = R"(
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r1, %r3, %r4, %r5;
  setp.ge.s32 %p1, %r1, %r2;
  @%p1 bra $L__BB0_2;
  cvta.to.global.u64 %rd4, %rd1;
  mul.wide.s32 %rd5, %r1, 4;
  add.s64 %rd6, %rd4, %rd5;
  cvta.to.global.u64 %rd7, %rd2;
  add.s64 %rd8, %rd7, %rd5;
  ld.global.f32 %f1, [%rd8];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f2, %f1;
  cvta.to.global.u64 %rd9, %rd3;
  add.s64 %rd10, %rd9, %rd5;
  st.global.f32 [%rd10], %f3;
$L__BB0_2:
  ret;
}
)";

TEST(ExecTest, VectorAddOfAnyLengthAndWorkerCount) {
  for (unsigned workers : {1u, 3u}) {
    for (uint32_t n : {1u, 31u, 32u, 33u, 1000u, 5000u}) {
      TestDevice device;
      device.workers = workers;
      device.Load(Ptx(kVectorAdd));
      float* a = device.Alloc<float>(n);
      float* b = device.Alloc<float>(n);
      float* c = device.Alloc<float>(n);
      for (uint32_t i = 0; i < n; ++i) a[i] = 0.5f * i, b[i] = 1000.0f - i;
      Fault fault = device.Launch("add", {(n + 127) / 128}, {128}, Pass(a, b, c, n));
      ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
      for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(c[i], a[i] + b[i]) << i;
    }
  }
}

TEST(ExecTest, TwoDimensionalIndicesCoverTheGrid) {
  TestDevice device;
  device.Load(Ptx(R"(
.visible .entry k(.param .u64 out, .param .u32 width)
{
  .reg .b32 %r<20>;
  .reg .b64 %rd<5>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ntid.y; mov.u32 %r7, %tid.y;
  mad.lo.s32 %r8, %r5, %r6, %r7;
  ld.param.u32 %r9, [width];
  mad.lo.s32 %r10, %r8, %r9, %r4;
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r10, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r10;
  ret;
}
)"));
  uint32_t* out = device.Alloc<uint32_t>(24 * 15);
  Fault fault = device.Launch("k", {4, 3}, {6, 5}, Pass(out, 24u));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 24 * 15; ++i) ASSERT_EQ(out[i], i);
}

// Each thread runs a loop of its own length, with an inner condition.
TEST(ExecTest, LoopsOfDifferentLengthMeetAgain) {
  TestDevice device;
  device.Load(Ptx(R"(
.visible .entry collatz(.param .u64 out)
{
  .reg .pred %p<4>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<5>;
  mov.u32 %r1, %tid.x;
  add.u32 %r2, %r1, 1;
  mov.u32 %r3, 0;
loop:
  setp.eq.u32 %p1, %r2, 1;
  @%p1 bra done;
  add.u32 %r3, %r3, 1;
  and.b32 %r4, %r2, 1;
  setp.eq.u32 %p2, %r4, 0;
  @%p2 bra even;
  mad.lo.u32 %r2, %r2, 3, 1;
  bra.uni loop;
even:
  shr.u32 %r2, %r2, 1;
  bra.uni loop;
done:
  activemask.b32 %r5;
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r1, 8;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r3;
  st.global.u32 [%rd3+4], %r5;
  ret;
}
)"));
  uint32_t* out = device.Alloc<uint32_t>(2 * 100);
  Fault fault = device.Launch("collatz", {1}, {100}, Pass(out));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 100; ++i) {
    uint32_t steps = 0;
    for (uint32_t v = i + 1; v != 1; ++steps) v = v % 2 ? 3 * v + 1 : v / 2;
    ASSERT_EQ(out[2 * i], steps) << i;
    // All lanes of the warp left the loop together.
    ASSERT_EQ(out[2 * i + 1], i < 96 ? 0xffffffffu : 0xfu) << i;
  }
}

TEST(ExecTest, SharedMemoryReductionWithBarriers) {
  TestDevice device;
  device.workers = 2;
  device.Load(Ptx(R"(
.visible .entry reduce(.param .u64 in, .param .u64 out)
{
  .reg .pred %p<4>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<8>;
  .shared .align 4 .b8 tile[1024];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r4, %r2, %r3, %r1;
  ld.param.u64 %rd1, [in];
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  mov.u32 %r6, tile;
  shl.b32 %r7, %r1, 2;
  add.u32 %r8, %r6, %r7;
  st.shared.u32 [%r8], %r5;
  shr.u32 %r9, %r3, 1;
loop:
  bar.sync 0;
  setp.ge.u32 %p1, %r1, %r9;
  @%p1 bra skip;
  shl.b32 %r10, %r9, 2;
  add.u32 %r11, %r8, %r10;
  ld.shared.u32 %r12, [%r11];
  ld.shared.u32 %r13, [%r8];
  add.u32 %r14, %r12, %r13;
  st.shared.u32 [%r8], %r14;
skip:
  shr.u32 %r9, %r9, 1;
  setp.ne.u32 %p2, %r9, 0;
  @%p2 bra loop;
  setp.ne.u32 %p3, %r1, 0;
  @%p3 bra end;
  ld.shared.u32 %r15, [tile];
  ld.param.u64 %rd4, [out];
  mul.wide.u32 %rd5, %r2, 4;
  add.s64 %rd6, %rd4, %rd5;
  st.global.u32 [%rd6], %r15;
end:
  ret;
}
)"));
  constexpr uint32_t kBlocks = 7, kThreads = 256;
  uint32_t* in = device.Alloc<uint32_t>(kBlocks * kThreads);
  uint32_t* out = device.Alloc<uint32_t>(kBlocks);
  for (uint32_t i = 0; i < kBlocks * kThreads; ++i) in[i] = i * i + 7;
  Fault fault = device.Launch("reduce", {kBlocks}, {kThreads}, Pass(in, out));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(InfoOf(*device.program()->FindKernel("reduce")).static_shared, 1024u);
  for (uint32_t b = 0; b < kBlocks; ++b) {
    EXPECT_EQ(out[b], std::accumulate(in + b * kThreads, in + (b + 1) * kThreads, 0u)) << b;
  }
}

}  // namespace
}  // namespace softgpu::exec

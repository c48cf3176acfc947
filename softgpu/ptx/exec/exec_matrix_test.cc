// Matrix instructions against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "softgpu/ptx/exec/exec_testing.h"
#include "softgpu/ptx/exec/half.h"

namespace softgpu::exec {
namespace {

TEST(HalfTest, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    float f = HalfToFloat(static_cast<uint16_t>(h));
    if (std::isnan(f)) continue;
    ASSERT_EQ(FloatToHalf(f), h);
  }
  EXPECT_EQ(FloatToHalf(2049.0f), FloatToHalf(2048.0f));  // ties to even
  EXPECT_EQ(FloatToHalf(2051.0f), FloatToHalf(2052.0f));
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-1e-9f), 0x8000);
}

class ExecMatrixTest : public testing::Test {
 protected:
  float A(int r, int c) const { return static_cast<float>((3 * r + 5 * c) % 17 - 8) / 4; }
  float B(int r, int c) const { return static_cast<float>((7 * r + 2 * c) % 13 - 6) / 2; }
  float Product(int m, int n, int k) const {
    float sum = static_cast<float>(m - n);
    for (int i = 0; i < k; ++i) sum += A(m, i) * B(i, n);
    return sum;
  }

  TestDevice device_;
};

TEST_F(ExecMatrixTest, WmmaLoadsMultipliesAndStores) {
  device_.Load(SimpleKernel(R"(
  wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1], 16;
  add.u64 %rd2, %rd1, 512;
  mov.u32 %r40, 16;
  wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {%r9,%r10,%r11,%r12,%r13,%r14,%r15,%r16}, [%rd2], %r40;
  add.u64 %rd3, %rd1, 1024;
  wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, [%rd3], 16;
  wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f9,%f10,%f11,%f12,%f13,%f14,%f15,%f16},
    {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, {%r9,%r10,%r11,%r12,%r13,%r14,%r15,%r16}, {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8};
  wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd58], {%f9,%f10,%f11,%f12,%f13,%f14,%f15,%f16}, 16;
)"));
  auto* in = device_.Alloc<uint8_t>(2048);
  float* out = device_.Alloc<float>(256);
  auto* a = reinterpret_cast<uint16_t*>(in);
  auto* b = reinterpret_cast<uint16_t*>(in + 512);
  auto* c = reinterpret_cast<float*>(in + 1024);
  for (int r = 0; r < 16; ++r) {
    for (int k = 0; k < 16; ++k) {
      a[16 * r + k] = FloatToHalf(A(r, k));
      b[16 * k + r] = FloatToHalf(B(r, k));  // column-major
      c[16 * r + k] = static_cast<float>(r - k);
    }
  }
  Fault fault = device_.Launch("k", {1}, {32}, Pass(out, in));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (int r = 0; r < 16; ++r) {
    for (int n = 0; n < 16; ++n) ASSERT_EQ(out[16 * r + n], Product(r, n, 16)) << r << ' ' << n;
  }
}

// mma.m16n8k16 with registers filled by the manual's layout, and ldmatrix for the first operand.
TEST_F(ExecMatrixTest, MmaUsesTheManualsLayouts) {
  device_.Load(SimpleKernel(R"(
  .shared .align 16 .b8 tile[512];
  // The 16x16 matrix A lies row by row in shared memory.
  mov.u32 %r20, tile;
  shl.b32 %r21, %r0, 4;
  add.u32 %r22, %r20, %r21;
  mul.wide.u32 %rd2, %r0, 16;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.v4.u32 {%r23, %r24, %r25, %r26}, [%rd3];
  st.shared.v4.u32 [%r22], {%r23, %r24, %r25, %r26};
  bar.warp.sync -1;
  // Lane l gives row l % 16, half l / 16.
  and.b32 %r27, %r0, 15;
  shl.b32 %r27, %r27, 5;
  shr.u32 %r28, %r0, 4;
  shl.b32 %r28, %r28, 4;
  add.u32 %r29, %r20, %r27;
  add.u32 %r29, %r29, %r28;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r29];
  // B and C come from memory as the lane holds them.
  mul.wide.u32 %rd4, %r0, 8;
  add.u64 %rd5, %rd1, %rd4;
  ld.global.v2.u32 {%r5, %r6}, [%rd5+512];
  mul.wide.u32 %rd6, %r0, 16;
  add.u64 %rd7, %rd1, %rd6;
  ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd7+768];
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f5,%f6,%f7,%f8}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
  add.u64 %rd8, %rd58, %rd6;
  st.global.v4.f32 [%rd8], {%f5, %f6, %f7, %f8};
)"));
  auto* in = device_.Alloc<uint8_t>(2048);
  float* out = device_.Alloc<float>(128);
  auto* a = reinterpret_cast<uint16_t*>(in);
  auto* b = reinterpret_cast<uint16_t*>(in + 512);
  auto* c = reinterpret_cast<float*>(in + 768);
  for (int r = 0; r < 16; ++r) {
    for (int k = 0; k < 16; ++k) a[16 * r + k] = FloatToHalf(A(r, k));
  }
  for (int lane = 0; lane < 32; ++lane) {
    int group = lane / 4, member = lane % 4;
    for (int i = 0; i < 4; ++i) {
      int k = 2 * member + (i & 1) + (i >= 2 ? 8 : 0);
      b[4 * lane + i] = FloatToHalf(B(k, group));
      c[4 * lane + i] = static_cast<float>((group + (i >= 2 ? 8 : 0)) - (2 * member + (i & 1)));
    }
  }
  Fault fault = device_.Launch("k", {1}, {32}, Pass(out, in));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      int row = lane / 4 + (i >= 2 ? 8 : 0), column = 2 * (lane % 4) + (i & 1);
      ASSERT_EQ(out[4 * lane + i], Product(row, column, 16)) << lane << ' ' << i;
    }
  }
}

TEST_F(ExecMatrixTest, PartOfAWarpAndBadShapesAreRefused) {
  device_.Load(SimpleKernel(R"(
  wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1], 16;
)"));
  uint32_t* in = device_.Alloc<uint32_t>(128);
  EXPECT_EQ(device_.Launch("k", {1}, {16}, Pass(in, in)).kind, FaultKind::kIllegalInstruction);
  EXPECT_EQ(device_.Launch("k", {1}, {32}, Pass(in, uint64_t{64})).kind, FaultKind::kIllegalAddress);
  stasis::Status shape =
      TestDevice::TryLoad(SimpleKernel("  mma.sync.aligned.m7n8k9.row.col.f32.f16.f16.f32 {%f5,%f6,%f7,%f8}, "
                                       "{%r1,%r2}, {%r5}, {%f1,%f2,%f3,%f4};"));
  EXPECT_EQ(shape.code(), stasis::StatusCode::kUnsupported);
  EXPECT_THAT(std::string(shape.message()), testing::HasSubstr("unknown opcode 'mma.sync.aligned.m7n8k9"));
}

}  // namespace
}  // namespace softgpu::exec

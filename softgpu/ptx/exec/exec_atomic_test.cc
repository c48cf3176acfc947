// Atomic operations: each operation and type on its own, and many blocks at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "softgpu/ptx/exec/exec_testing.h"

namespace softgpu::exec {
namespace {

template <typename T>
struct Case {
  const char* op;
  T before, operand, after;
};

// Lane 0 applies the operation to [in] and stores the old value to [in + 16].
template <typename T>
void CheckOne(const std::string& words, const std::string& space, T before, T operand, T after) {
  std::string width = sizeof(T) == 8 ? "%rd" : sizeof(T) == 4 ? "%r" : "%h";
  std::string bits = std::to_string(8 * sizeof(T));
  TestDevice device;
  bool shared = space == "shared";
  std::string body = "  setp.ne.u32 %p1, %r0, 0;\n  @%p1 exit;\n  .shared .align 16 .b8 s[16];\n";
  body += "  ld.global.b" + bits + " " + width + "5, [%rd1+32];\n";
  if (shared) {
    body +=
        "  ld.global.b" + bits + " " + width + "6, [%rd1];\n  st.shared.b" + bits + " [s], " + width + "6;\n";
    body += "  atom.shared." + words + " " + width + "7, [s], " + width + "5;\n";
    body +=
        "  ld.shared.b" + bits + " " + width + "6, [s];\n  st.global.b" + bits + " [%rd1], " + width + "6;\n";
  } else {
    body += "  atom" + (space.empty() ? "" : "." + space) + "." + words + " " + width + "7, [%rd1], " +
            width + "5;\n";
  }
  body += "  st.global.b" + bits + " [%rd1+16], " + width + "7;\n";
  device.Load(SimpleKernel(body));
  if (testing::Test::HasFatalFailure()) return;
  auto* in = device.Alloc<uint8_t>(64);
  uint32_t* out = device.Alloc<uint32_t>(32);
  std::memcpy(in, &before, sizeof before);
  std::memcpy(in + 32, &operand, sizeof operand);
  Fault fault = device.Launch("k", {1}, {32}, Pass(out, in));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(std::memcmp(in, &after, sizeof after), 0) << words << " in " << space;
  EXPECT_EQ(std::memcmp(in + 16, &before, sizeof before), 0) << words << " old value";
}

template <typename T>
void CheckAll(std::initializer_list<Case<T>> cases) {
  for (const Case<T>& c : cases) {
    for (const char* space : {"global", "shared", ""}) CheckOne<T>(c.op, space, c.before, c.operand, c.after);
  }
}

TEST(ExecAtomicTest, Unsigned32) {
  CheckAll<uint32_t>({{"add.u32", 0xfffffff0, 0x20, 0x10},
                      {"min.u32", 7, 5, 5},
                      {"min.u32", 5, 0xffffffff, 5},
                      {"max.u32", 5, 0xffffffff, 0xffffffff},
                      {"and.b32", 0xff00ff00, 0x0ff00ff0, 0x0f000f00},
                      {"or.b32", 0xff00ff00, 0x0ff00ff0, 0xfff0fff0},
                      {"xor.b32", 0xff00ff00, 0x0ff00ff0, 0xf0f0f0f0},
                      {"exch.b32", 1, 2, 2},
                      {"inc.u32", 4, 5, 5},
                      {"inc.u32", 5, 5, 0},
                      {"inc.u32", 9, 5, 0},
                      {"dec.u32", 4, 5, 3},
                      {"dec.u32", 0, 5, 5},
                      {"dec.u32", 9, 5, 5}});
}

TEST(ExecAtomicTest, Signed32And64) {
  CheckAll<int32_t>({{"min.s32", 5, -3, -3}, {"max.s32", -5, -3, -3}, {"add.s32", -5, 3, -2}});
  CheckAll<int64_t>({{"min.s64", 5, -3, -3}, {"max.s64", -5, -3, -3}});
  CheckAll<uint64_t>({{"add.u64", 0xffffffffull, 1, 0x100000000ull},
                      {"min.u64", 1ull << 63, 5, 5},
                      {"max.u64", 5, 1ull << 63, 1ull << 63},
                      {"exch.b64", 5, 6, 6},
                      {"and.b64", 0xff00ff00ff00ff00, 0x0f0f0f0f0f0f0f0f, 0x0f000f000f000f00},
                      {"or.b64", 1ull << 40, 1, 1 | 1ull << 40},
                      {"xor.b64", 1ull << 40, 3ull << 40, 2ull << 40}});
}

TEST(ExecAtomicTest, FloatingAdds) {
  CheckAll<float>({{"add.f32", 1.5f, 2.25f, 3.75f}, {"add.f32", 1e30f, -1e30f, 0.0f}});
  // Only shared memory keeps subnormal numbers.
  CheckOne<float>("add.f32", "global", 1e-40f, 2e-40f, 0.0f);
  CheckOne<float>("add.f32", "", -1e-40f, -2e-40f, -0.0f);
  CheckOne<float>("add.f32", "shared", 1e-40f, 2e-40f, 1e-40f + 2e-40f);
  CheckAll<double>({{"add.f64", 1.5, 2.25, 3.75}});
}

TEST(ExecAtomicTest, HalfPrecisionAdds) {
  // 1.5 + 2.0 = 3.5; pairs keep their halves apart.
  CheckAll<uint16_t>({{"add.noftz.f16", 0x3e00, 0x4000, 0x4300}, {"add.noftz.bf16", 0x3fc0, 0x4000, 0x4060}});
  CheckAll<uint32_t>({{"add.noftz.f16x2", 0x3e003c00, 0x40003c00, 0x43004000},
                      {"add.noftz.bf16x2", 0x3fc03f80, 0x40003f80, 0x40604000}});
}

TEST(ExecAtomicTest, CompareAndSwapOfAllWidths) {
  TestDevice device;
  device.Load(SimpleKernel(R"(
  setp.ne.u32 %p1, %r0, 0;
  @%p1 exit;
  .reg .b128 %q<4>;
  mov.u16 %h1, 7;
  mov.u16 %h2, 8;
  atom.global.cas.b16 %h3, [%rd1], %h1, %h2;
  atom.global.cas.b32 %r3, [%rd1+4], 70, 80;
  atom.global.cas.b32 %r4, [%rd1+4], 70, 90;
  atom.global.cas.b64 %rd3, [%rd1+8], 700, 800;
  mov.u64 %rd4, 1;
  mov.u64 %rd5, 2;
  mov.u64 %rd6, 3;
  mov.b128 %q1, {%rd4, %rd5};
  mov.b128 %q2, {%rd5, %rd6};
  atom.global.cas.b128 %q3, [%rd1+16], %q1, %q2;
  mov.b128 {%rd7, %rd8}, %q3;
  st.global.u16 [%rd1+32], %h3;
  st.global.u32 [%rd1+36], %r3;
  st.global.u32 [%rd1+40], %r4;
  st.global.u64 [%rd1+48], %rd3;
  st.global.v2.u64 [%rd1+64], {%rd7, %rd8};
)"));
  auto* in = device.Alloc<uint64_t>(16);
  in[0] = 7 | 70ull << 32;
  in[1] = 700;
  in[2] = 1;
  in[3] = 2;
  uint32_t* out = device.Alloc<uint32_t>(32);
  Fault fault = device.Launch("k", {1}, {32}, Pass(out, in));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(in[0], 8 | 80ull << 32);
  EXPECT_EQ(in[1], 800u);
  EXPECT_EQ(in[2], 2u);
  EXPECT_EQ(in[3], 3u);
  EXPECT_EQ(in[4], 7 | 70ull << 32);
  EXPECT_EQ(in[5], 80u);
  EXPECT_EQ(in[6], 700u);
  EXPECT_EQ(in[8], 1u);
  EXPECT_EQ(in[9], 2u);
}

TEST(ExecAtomicTest, ManyBlocksContend) {
  constexpr uint32_t kThreads = 64 * 96;
  TestDevice device;
  device.workers = 4;
  device.Load(SimpleKernel(R"(
  add.u32 %r2, %r0, 1;
  atom.global.add.u32 %r3, [%rd1], 1;
  st.global.u32 [%rd0], %r3;
  red.global.max.u32 [%rd1+4], %r2;
  red.relaxed.gpu.global.add.u64 [%rd1+8], 3;
  mov.f32 %f1, 0f3F800000;
  atom.add.f32 %f2, [%rd1+16], %f1;
  atom.global.inc.u32 %r4, [%rd1+20], 999;
  .shared .align 4 .u32 total;
  mov.u32 %r5, 0;
  setp.eq.u32 %p1, %r59, 0;
  @%p1 st.shared.u32 [total], %r5;
  bar.sync 0;
  atom.shared.add.u32 %r6, [total], %r59;
  bar.sync 0;
  ld.shared.u32 %r7, [total];
  @%p1 red.global.add.u32 [%rd1+24], %r7;
)"));
  auto* in = device.Alloc<uint32_t>(16);
  uint32_t* out = device.Alloc<uint32_t>(kThreads);
  Fault fault = device.Launch("k", {64}, {96}, Pass(out, in));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  std::sort(out, out + kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) ASSERT_EQ(out[i], i);
  EXPECT_EQ(in[0], kThreads);
  EXPECT_EQ(in[1], kThreads);
  EXPECT_EQ(in[2], 3 * kThreads);
  float f;
  std::memcpy(&f, in + 4, 4);
  EXPECT_EQ(f, static_cast<float>(kThreads));
  EXPECT_EQ(in[5], kThreads % 1000);
  EXPECT_EQ(in[6], 64u * 95 * 96 / 2);
}

}  // namespace
}  // namespace softgpu::exec

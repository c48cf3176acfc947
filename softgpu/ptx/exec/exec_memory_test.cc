// Loads and stores of every width and space, generic addresses, variables and faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "softgpu/ptx/exec/exec_testing.h"

namespace softgpu::exec {
namespace {

using testing::HasSubstr;

class ExecMemoryTest : public testing::Test {
 protected:
  // One launch of SimpleKernel(body) with `threads` threads on out (8 bytes a thread) and in.
  Fault Run(const std::string& body, const std::string& before = "", uint32_t threads = 32) {
    device_.Load(SimpleKernel(body, before));
    return device_.Launch("k", {1}, {threads}, Pass(out_, in_));
  }

  TestDevice device_;
  uint64_t* out_ = device_.Alloc<uint64_t>(512);
  uint8_t* in_ = device_.Alloc<uint8_t>(4096);
};

TEST_F(ExecMemoryTest, NarrowLoadsExtendByTheirType) {
  for (int i = 0; i < 256; ++i) in_[i] = static_cast<uint8_t>(7 * i + 128);
  Fault fault = Run(R"(
  mul.wide.u32 %rd2, %r0, 8;
  add.u64 %rd3, %rd58, %rd2;
  mul.wide.u32 %rd4, %r0, 4;
  add.u64 %rd5, %rd1, %rd4;
  ld.global.s8 %rd6, [%rd5];
  ld.global.u8 %r3, [%rd5+1];
  ld.global.s16 %r4, [%rd5+2];
  ld.global.u16 %h1, [%rd5];
  ld.global.s8 %h2, [%rd5+3];
  cvt.u32.u16 %r5, %h1;
  cvt.u32.u16 %r6, %h2;
  cvt.u32.u64 %r7, %rd6;
  add.u32 %r8, %r3, %r4;
  add.u32 %r8, %r8, %r5;
  add.u32 %r8, %r8, %r6;
  st.global.v2.u32 [%rd3], {%r7, %r8};
)");
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (int i = 0; i < 32; ++i) {
    const uint8_t* p = in_ + 4 * i;
    int16_t word;
    uint16_t half;
    std::memcpy(&word, p + 2, 2);
    std::memcpy(&half, p, 2);
    uint32_t want_low = static_cast<uint32_t>(static_cast<int8_t>(p[0]));
    uint32_t want_high =
        p[1] + static_cast<uint32_t>(word) + half + static_cast<uint16_t>(static_cast<int8_t>(p[3]));
    EXPECT_EQ(out_[i], (uint64_t{want_high} << 32 | want_low)) << i;
  }
}

TEST_F(ExecMemoryTest, VectorsOfAllShapes) {
  for (int i = 0; i < 4096; ++i) in_[i] = static_cast<uint8_t>(i * 37);
  uint8_t* copy = device_.Alloc<uint8_t>(4096);
  device_.Load(SimpleKernel(R"(
  mul.wide.u32 %rd2, %r0, 64;
  add.u64 %rd3, %rd1, %rd2;
  add.u64 %rd4, %rd58, %rd2;
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3];
  st.global.v4.u32 [%rd4], {%r1, %r2, %r3, %r4};
  ld.global.nc.v2.u64 {%rd5, %rd6}, [%rd3+16];
  st.global.cs.v2.u64 [%rd4+16], {%rd5, %rd6};
  ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%rd3+32];
  st.global.v4.u8 [%rd4+32], {%h1, %h2, %h3, %h4};
  ld.global.v4.u16 {%h1, %h2, %h3, %h4}, [%rd3+40];
  st.global.v4.u16 [%rd4+40], {%h1, %h2, %h3, %h4};
  ld.global.v2.f32 {%f1, %f2}, [%rd3+48];
  st.global.v2.f32 [%rd4+48], {%f1, %f2};
  ld.relaxed.gpu.global.v2.u32 {%r5, %r6}, [%rd3+56];
  st.relaxed.gpu.global.v2.u32 [%rd4+56], {%r5, %r6};
  ld.global.u32 %r7, [%rd3+36];
  st.global.u32 [%rd4+36], %r7;
)"));
  Fault fault = device_.Launch("k", {1}, {64}, Pass(copy, in_));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(std::memcmp(copy, in_, 4096), 0);
}

TEST_F(ExecMemoryTest, SharedMemoryPatterns) {
  // Uniform, contiguous, strided, scattered, by part of a warp; with 32- and 64-bit addresses.
  Fault fault = Run(R"(
  .shared .align 16 .b8 s[4096];
  mov.u32 %r2, s;
  shl.b32 %r3, %r0, 4;
  add.u32 %r4, %r2, %r3;
  mul.lo.u32 %r5, %r0, 3;
  add.u32 %r6, %r0, 1000;
  st.shared.v2.u32 [%r4], {%r5, %r6};
  st.shared.v2.u32 [%r4+8], {%r6, %r5};
  bar.sync 0;
  ld.shared.u32 %r7, [s+16];
  mov.u64 %rd2, s;
  xor.b32 %r8, %r0, 21;
  mul.wide.u32 %rd3, %r8, 16;
  add.u64 %rd4, %rd2, %rd3;
  ld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [%rd4];
  setp.gt.u32 %p1, %r0, 12;
  mov.u32 %r13, 0;
  @%p1 ld.shared.u32 %r13, [%r4+4];
  add.u32 %r14, %r7, %r9;
  add.u32 %r14, %r14, %r10;
  sub.u32 %r14, %r14, %r11;
  add.u32 %r14, %r14, %r12;
  add.u32 %r14, %r14, %r13;
  st.global.u32 [%rd0], %r14;
)");
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  auto* out = reinterpret_cast<uint32_t*>(out_);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], 3 + 6 * (i ^ 21) + (i > 12 ? i + 1000 : 0)) << i;
}

TEST_F(ExecMemoryTest, DynamicSharedMemoryLiesBehindTheStatic) {
  device_.dynamic_shared = 256;
  Fault fault = Run(R"(
  .shared .align 4 .b8 fixed[20];
  mov.u32 %r2, dyn;
  mov.u32 %r3, fixed;
  sub.u32 %r4, %r2, %r3;
  mov.u32 %r5, %dynamic_smem_size;
  shl.b32 %r6, %r0, 2;
  add.u32 %r7, %r2, %r6;
  st.shared.u32 [%r7], %r0;
  bar.sync 0;
  ld.shared.u32 %r8, [dyn+124];
  mad.lo.u32 %r9, %r4, 1000, %r5;
  add.u32 %r9, %r9, %r8;
  st.global.u32 [%rd0], %r9;
)",
                    ".extern .shared .align 16 .b8 dyn[];\n");
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(reinterpret_cast<uint32_t*>(out_)[5], 32 * 1000 + 256 + 31u);
}

constexpr const char* kGenericBody = R"(
  .local .align 8 .b8 depot[16];
  .shared .align 8 .b8 s[256];
  // Local, shared and global by generic addresses.
  mov.u64 %rd2, depot;
  cvta.local.u64 %rd3, %rd2;
  st.u32 [%rd3+4], %r0;
  ld.local.u32 %r2, [depot+4];
  mov.u64 %rd4, s;
  cvta.shared.u64 %rd5, %rd4;
  mul.wide.u32 %rd6, %r0, 4;
  add.u64 %rd7, %rd5, %rd6;
  add.u32 %r3, %r0, 100;
  st.u32 [%rd7], %r3;
  cvta.to.shared.u64 %rd8, %rd7;
  ld.shared.u32 %r4, [%rd8];
  // A different space in each lane.
  rem.u32 %r5, %r0, 3;
  setp.eq.u32 %p1, %r5, 0;
  setp.eq.u32 %p2, %r5, 1;
  selp.b64 %rd9, %rd3, %rd7, %p1;
  @%p2 mov.u64 %rd9, %rd1;
  @%p1 add.u64 %rd9, %rd9, 4;
  ld.u32 %r6, [%rd9];
  isspacep.local %p3, %rd9;
  isspacep.shared %p4, %rd9;
  isspacep.global %p5, %rd9;
  @%p3 add.u32 %r6, %r6, 10000;
  @%p4 add.u32 %r6, %r6, 20000;
  @%p5 add.u32 %r6, %r6, 30000;
  add.u32 %r7, %r2, %r4;
  mad.lo.u32 %r7, %r7, 100000, %r6;
  st.global.u32 [%rd0], %r7;
)";

TEST_F(ExecMemoryTest, GenericAddressesOfEverySpace) {
  std::memset(in_, 0, 8);
  in_[0] = 77;
  Fault fault = Run(kGenericBody);
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 32; ++i) {
    uint32_t value = i % 3 == 0 ? i + 10000 : i % 3 == 1 ? 77 + 30000 : i + 100 + 20000;
    EXPECT_EQ(reinterpret_cast<uint32_t*>(out_)[i], (2 * i + 100) * 100000 + value) << i;
  }
}

TEST_F(ExecMemoryTest, LocalArraysArePrivateAndMayBeIndexed) {
  Fault fault = Run(R"(
  .local .align 4 .b8 a[64];
  mov.u32 %r2, 0;
L: mul.lo.u32 %r3, %r2, %r0;
  mov.u32 %r4, a;
  shl.b32 %r5, %r2, 2;
  add.u32 %r6, %r4, %r5;
  st.local.u32 [%r6], %r3;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, 16;
  @%p1 bra L;
  and.b32 %r7, %r0, 15;
  shl.b32 %r7, %r7, 2;
  add.u32 %r8, %r4, %r7;
  ld.local.u32 %r9, [%r8];
  st.global.u32 [%rd0], %r9;
)");
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(reinterpret_cast<uint32_t*>(out_)[i], (i & 15) * i) << i;
  EXPECT_EQ(InfoOf(*device_.program()->FindKernel("k")).local_bytes, 64u);
}

TEST_F(ExecMemoryTest, AllocaGivesEachCallItsOwnMemory) {
  Fault fault = Run(R"(
  add.u32 %r2, %r0, 1;
  mul.wide.u32 %rd2, %r2, 8;
  alloca.u64 %rd3, %rd2;
  alloca.u64 %rd4, 16, 16;
  mul.wide.u32 %rd5, %r0, 8;
  add.u64 %rd6, %rd3, %rd5;
  st.local.u32 [%rd6], %r0;
  st.local.u32 [%rd4], 1000;
  ld.local.u32 %r3, [%rd6];
  ld.local.u32 %r4, [%rd4];
  add.u32 %r3, %r3, %r4;
  st.global.u32 [%rd0], %r3;
)");
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(reinterpret_cast<uint32_t*>(out_)[i], 1000 + i) << i;
}

TEST_F(ExecMemoryTest, ModuleVariablesConstantsAndInitialisers) {
  Fault fault = Run(R"(
  ld.const.u32 %r2, [factors+4];
  ld.global.u32 %r3, [counter];
  ld.global.u64 %rd2, [pointer];
  ld.u32 %r4, [%rd2];
  mov.u64 %rd3, factors;
  cvta.const.u64 %rd4, %rd3;
  ld.u32 %r5, [%rd4+8];
  ld.global.u32 %r6, [shared_with_host];
  add.u32 %r7, %r2, %r3;
  add.u32 %r7, %r7, %r4;
  add.u32 %r7, %r7, %r5;
  add.u32 %r7, %r7, %r6;
  st.global.u32 [%rd0], %r7;
  st.global.u32 [counter], 99;
)",
                    R"(
.const .align 4 .u32 factors[4] = {1, 20, 300};
.visible .global .align 4 .u32 counter = 4000;
.global .align 4 .u32 cells[3] = {0, 50000, 0};
.global .align 8 .u64 pointer = generic(cells)+4;
.visible .global .attribute(.managed) .align 4 .u32 shared_with_host = 600000;
)");
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(reinterpret_cast<uint32_t*>(out_)[0], 654320u);
  EXPECT_EQ(*static_cast<uint32_t*>(device_.Global("counter")), 99u);
  const GlobalInfo* managed = device_.program()->FindGlobal("shared_with_host");
  ASSERT_NE(managed, nullptr);
  EXPECT_TRUE(managed->managed);
  EXPECT_TRUE(device_.program()->FindGlobal("factors")->constant);
  EXPECT_EQ(device_.program()->FindGlobal("factors")->size, 16u);
}

TEST_F(ExecMemoryTest, KernelParametersOfEveryKind) {
  device_.Load(Ptx(R"(
.visible .entry k(.param .u64 out, .param .u8 flag, .param .u16 small, .param .f32 f, .param .f64 d,
                  .param .align 8 .b8 s[24])
{
  .reg .b16 %h<5>; .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .f32 %f<4>; .reg .f64 %fd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.s8 %h1, [flag];
  ld.param.u16 %h2, [small];
  ld.param.f32 %f1, [f];
  ld.param.f64 %fd1, [d];
  ld.param.v2.u32 {%r1, %r2}, [s+8];
  st.global.u16 [%rd1], %h1;
  st.global.u16 [%rd1+2], %h2;
  st.global.f32 [%rd1+4], %f1;
  st.global.f64 [%rd1+8], %fd1;
  st.global.v2.u32 [%rd1+16], {%r1, %r2};
  // A part of the parameter chosen at run time.
  mov.u64 %rd2, s;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %rd3, %r3, 8;
  add.u64 %rd4, %rd2, %rd3;
  ld.param.u64 %rd5, [%rd4];
  cvta.param.u64 %rd6, %rd4;
  ld.u64 %rd7, [%rd6];
  add.u64 %rd8, %rd5, %rd7;
  add.u64 %rd9, %rd1, %rd3;
  st.global.u64 [%rd9+24], %rd8;
  ret;
}
)"));
  struct Struct {
    uint64_t a, b, c;
  };
  Fault fault = device_.Launch(
      "k", {1}, {3}, Pass(out_, uint8_t{0xfe}, uint16_t{1234}, 1.5f, 2.25, Struct{10, 20 | 30ull << 32, 40}));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(out_[0] & 0xffffffff, 0xfffeu | 1234u << 16);
  float f;
  std::memcpy(&f, reinterpret_cast<char*>(out_) + 4, 4);
  EXPECT_EQ(f, 1.5f);
  double d;
  std::memcpy(&d, out_ + 1, 8);
  EXPECT_EQ(d, 2.25);
  EXPECT_EQ(out_[2], 20 | 30ull << 32);
  EXPECT_EQ(out_[3], 20u);
  EXPECT_EQ(out_[4], (20 | 30ull << 32) * 2);
  EXPECT_EQ(out_[5], 80u);
}

TEST_F(ExecMemoryTest, PackAndUnpack) {
  Fault fault = Run(R"(
  mov.b32 {%h1, %h2}, %r0;
  add.u32 %r2, %r0, 5;
  cvt.u16.u32 %h3, %r2;
  mov.b32 %r3, {%h3, %h1};
  mov.b64 %rd2, {%r3, %r0};
  mov.b64 {%r4, %r5}, %rd2;
  mov.b64 {%h4, %h5, %h6, %h7}, %rd2;
  mov.b64 {_, %r6}, %rd2;
  cvt.u32.u16 %r7, %h5;
  add.u32 %r8, %r4, %r5;
  add.u32 %r8, %r8, %r6;
  add.u32 %r8, %r8, %r7;
  st.global.u32 [%rd0], %r8;
)");
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(reinterpret_cast<uint32_t*>(out_)[i], ((i + 5) | i << 16) + 2 * i + i) << i;
  }
}

TEST_F(ExecMemoryTest, AsynchronousCopies) {
  for (int i = 0; i < 4096; ++i) in_[i] = static_cast<uint8_t>(i * 5 + 1);
  Fault fault = Run(R"(
  .shared .align 16 .b8 s[512];
  mov.u32 %r2, s;
  shl.b32 %r3, %r0, 4;
  add.u32 %r4, %r2, %r3;
  mul.wide.u32 %rd2, %r0, 16;
  add.u64 %rd3, %rd1, %rd2;
  cp.async.cg.shared.global [%r4], [%rd3], 16;
  cp.async.ca.shared.global [%r4+8], [%rd3], 8, 4;
  cp.async.commit_group;
  cp.async.wait_group 0;
  ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
  add.u32 %r9, %r5, %r7;
  add.u32 %r9, %r9, %r8;
  st.global.u32 [%rd0], %r9;
)");
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 32; ++i) {
    uint32_t first;
    std::memcpy(&first, in_ + 16 * i, 4);
    EXPECT_EQ(reinterpret_cast<uint32_t*>(out_)[i], 2 * first) << i;
  }
}

// ---- faults ----

struct FaultCase {
  const char* name;
  const char* body;
  FaultKind kind;
  const char* text;
};

class ExecFaultTest : public testing::TestWithParam<FaultCase> {};

TEST_P(ExecFaultTest, IsReportedWithPlaceAndAddress) {
  TestDevice device;
  device.Load(SimpleKernel(GetParam().body));
  uint8_t* readable = device.Alloc<uint8_t>(4096, Access::kRead);
  uint32_t* out = device.Alloc<uint32_t>(64);
  Fault fault = device.Launch("k", {1}, {64}, Pass(out, readable));
  EXPECT_EQ(fault.kind, GetParam().kind) << fault.message;
  EXPECT_THAT(fault.message, HasSubstr("kernel 'k', block (0,0,0), thread ("));
  EXPECT_THAT(fault.message, HasSubstr("PTX line "));
  EXPECT_THAT(fault.message, HasSubstr(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ExecFaultTest,
    testing::Values(
        FaultCase{"null", "  mov.u64 %rd2, 0;\n  ld.global.u32 %r2, [%rd2];", FaultKind::kIllegalAddress,
                  "illegal global read of 4 bytes at 0x0"},
        FaultCase{"nullgeneric", "  mov.u64 %rd2, 0;\n  st.u32 [%rd2+16], %r0;", FaultKind::kIllegalAddress,
                  "illegal generic write of 4 bytes at 0x10"},
        FaultCase{"onelane",
                  "  setp.eq.u32 %p1, %r0, 37;\n  @%p1 mov.u64 %rd0, 4096;\n  st.global.u32 [%rd0], %r0;",
                  FaultKind::kIllegalAddress, "thread (37,0,0)"},
        FaultCase{"behind", "  ld.global.u32 %r2, [%rd1+4096];", FaultKind::kIllegalAddress,
                  "illegal global read"},
        FaultCase{"readonly", "  st.global.u32 [%rd1], %r0;", FaultKind::kIllegalAddress,
                  "illegal global write"},
        FaultCase{"atomicreadonly", "  atom.global.add.u32 %r2, [%rd1], 1;", FaultKind::kIllegalAddress,
                  "illegal global write"},
        FaultCase{"misaligned", "  ld.global.u32 %r2, [%rd1+2];", FaultKind::kMisalignedAddress,
                  "misaligned global read of 4 bytes"},
        FaultCase{"misalignedvector", "  ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd1+8];",
                  FaultKind::kMisalignedAddress, "of 16 bytes"},
        FaultCase{"kernelspace", "  mov.u64 %rd2, 0xffffffff80000000;\n  ld.global.u32 %r2, [%rd2];",
                  FaultKind::kIllegalAddress, "0xffffffff80000000"},
        FaultCase{"wrap", "  mov.u64 %rd2, 0xfffffffffffffffc;\n  ld.u64 %rd3, [%rd2+4];",
                  FaultKind::kIllegalAddress, "at 0x0"},
        FaultCase{"badtag", "  mov.u64 %rd2, 0x0900000000000000;\n  ld.u32 %r2, [%rd2];",
                  FaultKind::kIllegalAddress, "illegal generic read"},
        FaultCase{"sharedbeyond", "  .shared .b8 s[64];\n  mov.u32 %r2, s;\n  ld.shared.u32 %r3, [%r2+64];",
                  FaultKind::kIllegalAddress, "illegal shared read of 4 bytes at 0x40"},
        FaultCase{"sharednegative", "  .shared .b8 s[64];\n  mov.u32 %r2, s;\n  ld.shared.u32 %r3, [%r2+-4];",
                  FaultKind::kIllegalAddress, "0xfffffffc"},
        FaultCase{"sharedmisaligned", "  .shared .align 8 .b8 s[64];\n  ld.shared.u64 %rd3, [s+4];",
                  FaultKind::kMisalignedAddress, "misaligned shared read"},
        FaultCase{"localbeyond",
                  "  .local .b8 s[64];\n  mov.u64 %rd2, s;\n  st.local.u32 [%rd2+70000000], %r0;",
                  FaultKind::kIllegalAddress, "illegal local write"},
        FaultCase{"genericsharedbeyond",
                  "  mov.u64 %rd2, 100000;\n  cvta.shared.u64 %rd3, %rd2;\n  ld.u32 %r2, [%rd3];",
                  FaultKind::kIllegalAddress, "illegal generic read"},
        FaultCase{"cpasync",
                  "  .shared .align 16 .b8 s[64];\n  mov.u32 %r2, s;\n"
                  "  cp.async.ca.shared.global [%r2], [%rd1+4096], 4;",
                  FaultKind::kIllegalAddress, "illegal global read"}),
    [](const testing::TestParamInfo<FaultCase>& info) { return info.param.name; });

TEST(AccessMapTest, WholeAndPartialPages) {
  auto map = std::move(AccessMap::Create()).value();
  constexpr uint64_t kPage = 2 << 20, kBase = 100 * kPage;
  EXPECT_FALSE(map->Allows(kBase, 4, false));
  map->Set(kBase, 2 * kPage, Access::kReadWrite);
  EXPECT_TRUE(map->Allows(kBase, 4, true));
  EXPECT_TRUE(map->Allows(kBase + kPage - 2, 4, true));
  EXPECT_FALSE(map->Allows(kBase + 2 * kPage - 2, 4, true));
  EXPECT_FALSE(map->Allows(kBase - 1, 2, false));
  // A hole, then a read-only part, then all of it again.
  map->Set(kBase + 100, 50, Access::kNone);
  EXPECT_TRUE(map->Allows(kBase + 96, 4, true));
  EXPECT_FALSE(map->Allows(kBase + 97, 4, true));
  EXPECT_FALSE(map->Allows(kBase + 149, 1, false));
  EXPECT_TRUE(map->Allows(kBase + 150, 1, true));
  map->Set(kBase + 110, 20, Access::kRead);
  EXPECT_TRUE(map->Allows(kBase + 110, 20, false));
  EXPECT_FALSE(map->Allows(kBase + 110, 20, true));
  EXPECT_FALSE(map->Allows(kBase + 129, 2, false));
  map->Set(kBase + 100, 50, Access::kReadWrite);
  EXPECT_TRUE(map->Allows(kBase + 90, 64, true));
  // Neighbours with rights of their own: an access may cross them when both allow it.
  map->Set(kBase + 1000, 8, Access::kRead);
  EXPECT_TRUE(map->Allows(kBase + 996, 16, false));
  EXPECT_FALSE(map->Allows(kBase + 996, 16, true));
  map->Set(kBase, 2 * kPage, Access::kNone);
  EXPECT_FALSE(map->Allows(kBase + 1000, 1, false));
  EXPECT_FALSE(map->Allows(uint64_t{1} << 47, 1, false));
  EXPECT_FALSE(map->Allows(~uint64_t{0}, 8, false));
  map->Set((uint64_t{1} << 47) - 4096, 1 << 20, Access::kRead);
  EXPECT_TRUE(map->Allows((uint64_t{1} << 47) - 8, 8, false));
  EXPECT_FALSE(map->Allows((uint64_t{1} << 47) - 4, 8, false));
}

}  // namespace
}  // namespace softgpu::exec

// Control flow: divergence, loops, early exit, tables, calls, guards, and what loading refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "softgpu/ptx/exec/exec_testing.h"

namespace softgpu::exec {
namespace {

using testing::HasSubstr;

// Runs the kernel over `threads` threads in blocks of 64 and compares with what each thread should write.
void Check(const std::string& ptx, uint32_t threads, const std::function<uint32_t(uint32_t)>& expected) {
  TestDevice device;
  device.Load(ptx);
  uint32_t* out = device.Alloc<uint32_t>(threads);
  Fault fault = device.Launch("k", {(threads + 63) / 64}, {std::min(threads, 64u)}, Pass(out, uint64_t{0}));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < threads; ++i) ASSERT_EQ(out[i], expected(i)) << "thread " << i;
}

TEST(ExecControlTest, NestedDivergence) {
  Check(SimpleKernel(R"(
  mov.u32 %r2, 0;
  and.b32 %r3, %r0, 1;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra A;
  and.b32 %r4, %r0, 2;
  setp.ne.u32 %p2, %r4, 0;
  @!%p2 bra B;
  add.u32 %r2, %r2, 10;
  bra.uni C;
B: add.u32 %r2, %r2, 20;
C: add.u32 %r2, %r2, 100;
  bra.uni D;
A: setp.gt.u32 %p3, %r0, 15;
  @%p3 bra D;
  add.u32 %r2, %r2, 1000;
D: activemask.b32 %r5;
  popc.b32 %r6, %r5;
  shl.b32 %r6, %r6, 16;
  add.u32 %r2, %r2, %r6;
  st.global.u32 [%rd0], %r2;
)"),
        128, [](uint32_t i) {
          uint32_t v = i % 2 == 0 ? (i > 15 ? 0 : 1000) : (i & 2 ? 110 : 120);
          return v + (32u << 16);
        });
}

TEST(ExecControlTest, BreakAndContinueMeetBehindTheLoop) {
  Check(SimpleKernel(R"(
  mov.u32 %r2, 0;
  mov.u32 %r3, 0;
  rem.u32 %r9, %r0, 7;
LOOP:
  add.u32 %r3, %r3, 1;
  setp.gt.u32 %p1, %r3, 20;
  @%p1 bra END;
  rem.u32 %r4, %r3, 3;
  setp.eq.u32 %p2, %r4, 0;
  @%p2 bra LOOP;
  add.u32 %r5, %r9, 10;
  setp.eq.u32 %p3, %r3, %r5;
  @%p3 bra END;
  add.u32 %r2, %r2, %r3;
  bra.uni LOOP;
END:
  activemask.b32 %r6;
  setp.ne.u32 %p4, %r6, -1;
  @%p4 add.u32 %r2, %r2, 100000;
  st.global.u32 [%rd0], %r2;
)"),
        64, [](uint32_t i) {
          uint32_t sum = 0;
          for (uint32_t n = 1; n <= 20; ++n) {
            if (n % 3 == 0) continue;
            if (n == i % 7 + 10) break;
            sum += n;
          }
          return sum;
        });
}

TEST(ExecControlTest, EarlyExitOfSomeThreads) {
  Check(SimpleKernel(R"(
  mov.u32 %r2, 7;
  st.global.u32 [%rd0], %r2;
  rem.u32 %r3, %r0, 3;
  setp.eq.u32 %p1, %r3, 1;
  @%p1 exit;
  setp.eq.u32 %p2, %r3, 2;
  @%p2 ret;
  bar.sync 0;
  activemask.b32 %r4;
  st.global.u32 [%rd0], %r4;
)"),
        32, [](uint32_t i) {
          uint32_t mask = 0;
          for (uint32_t l = 0; l < 32; l += 3) mask |= 1u << l;
          return i % 3 == 0 ? mask : 7;
        });
}

TEST(ExecControlTest, GuardsOnOrdinaryInstructions) {
  Check(SimpleKernel(R"(
  rem.u32 %r2, %r0, 3;
  setp.eq.u32 %p1, %r2, 0;
  setp.eq.u32 %p2, %r2, 1;
  not.pred %p3, %p1;
  and.pred %p3, %p3, !%p2;
  mov.u32 %r3, 5;
  @%p1 mov.u32 %r3, 50;
  @%p2 add.u32 %r3, %r3, %r0;
  @!%p3 st.global.u32 [%rd0], %r3;
  mov.u32 %r4, 9;
  @%p3 st.global.u32 [%rd0], %r4;
)"),
        64, [](uint32_t i) { return i % 3 == 0   ? 50
                                    : i % 3 == 1 ? 5 + i
                                                 : 9; });
}

TEST(ExecControlTest, BranchTable) {
  Check(SimpleKernel(R"(
  and.b32 %r2, %r0, 3;
TABLE: .branchtargets L0, L1, L2, L3;
  brx.idx %r2, TABLE;
L0: mov.u32 %r3, 100; bra.uni OUT;
L1: mov.u32 %r3, 101; bra.uni OUT;
L2: mov.u32 %r3, 102; bra.uni OUT;
L3: mov.u32 %r3, 103;
OUT:
  activemask.b32 %r4;
  setp.ne.u32 %p1, %r4, -1;
  @%p1 mov.u32 %r3, 0;
  st.global.u32 [%rd0], %r3;
)"),
        64, [](uint32_t i) { return 100 + i % 4; });
}

constexpr const char* kFibonacci = R"(
.func (.param .b32 result) fib(.param .b32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  ld.param.u32 %r1, [n];
  setp.gt.u32 %p1, %r1, 1;
  @%p1 bra MORE;
  st.param.b32 [result], %r1;
  ret;
MORE:
  sub.u32 %r2, %r1, 1;
  {
    .param .b32 param0;
    st.param.b32 [param0], %r2;
    .param .b32 retval0;
    call.uni (retval0), fib, (param0);
    ld.param.b32 %r3, [retval0];
  }
  sub.u32 %r4, %r1, 2;
  {
    .param .b32 param0;
    st.param.b32 [param0], %r4;
    .param .b32 retval0;
    call.uni (retval0), fib, (param0);
    ld.param.b32 %r5, [retval0];
  }
  add.u32 %r6, %r3, %r5;
  st.param.b32 [result], %r6;
  ret;
}
)";

TEST(ExecControlTest, RecursionWithDivergentDepth) {
  Check(SimpleKernel(R"(
  rem.u32 %r2, %r0, 12;
  .param .b32 a;
  .param .b32 r;
  st.param.b32 [a], %r2;
  call.uni (r), fib, (a);
  ld.param.b32 %r3, [r];
  activemask.b32 %r4;
  setp.ne.u32 %p1, %r4, -1;
  @%p1 mov.u32 %r3, -1;
  st.global.u32 [%rd0], %r3;
)",
                     kFibonacci),
        64, [](uint32_t i) {
          uint32_t a = 0, b = 1;
          for (uint32_t n = 0; n < i % 12; ++n) {
            uint32_t c = a + b;
            a = b;
            b = c;
          }
          return a;
        });
}

TEST(ExecControlTest, EndlessRecursionOverflowsTheStack) {
  TestDevice device;
  device.Load(SimpleKernel("  call.uni deep, ();\n", R"(
.func deep()
{
  .local .align 8 .b8 frame[64];
  call.uni deep, ();
  ret;
}
)"));
  Fault fault = device.Launch("k", {1}, {32}, Pass(uint64_t{0}, uint64_t{0}));
  EXPECT_EQ(fault.kind, FaultKind::kStackOverflow);
  EXPECT_THAT(fault.message, HasSubstr("stack overflow"));
}

constexpr const char* kOperations = R"(
.func (.param .b32 result) twice(.param .b32 n)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [n];
  shl.b32 %r2, %r1, 1;
  st.param.b32 [result], %r2;
  ret;
}
.func (.param .b32 result) square(.param .b32 n)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [n];
  mul.lo.u32 %r2, %r1, %r1;
  st.param.b32 [result], %r2;
  ret;
}
.global .align 8 .u64 table[2] = {twice, square};
)";

constexpr const char* kIndirectCall = R"(
  .param .b32 a;
  .param .b32 r;
  st.param.b32 [a], %r0;
  call (r), %rd3, (a), PROTO;
PROTO: .callprototype (.param .b32 _) _ (.param .b32 _);
  ld.param.b32 %r3, [r];
  activemask.b32 %r4;
  setp.ne.u32 %p1, %r4, -1;
  @%p1 mov.u32 %r3, -1;
  st.global.u32 [%rd0], %r3;
)";

TEST(ExecControlTest, IndirectCallsToDifferentFunctions) {
  Check(SimpleKernel(std::string(R"(
  and.b32 %r2, %r0, 1;
  mul.wide.u32 %rd2, %r2, 8;
  mov.u64 %rd4, table;
  add.u64 %rd4, %rd4, %rd2;
  ld.global.u64 %rd3, [%rd4];
)") + kIndirectCall,
                     kOperations),
        64, [](uint32_t i) { return i % 2 ? i * i : 2 * i; });
}

TEST(ExecControlTest, BadFunctionPointersAreCaught) {
  for (uint64_t bad : {uint64_t{0}, uint64_t{0x400000000000063}, uint64_t{0x7fff12345678}}) {
    TestDevice device;
    device.Load(SimpleKernel(std::string("  mov.u64 %rd3, %rd1;\n") + kIndirectCall, kOperations));
    Fault fault = device.Launch("k", {1}, {32}, Pass(uint64_t{0}, bad));
    EXPECT_EQ(fault.kind, FaultKind::kInvalidPc) << fault.message;
  }
}

TEST(ExecControlTest, RegisterParametersAndStructsByValue) {
  Check(SimpleKernel(R"(
  .param .align 8 .b8 s[16];
  .param .align 8 .b8 t[16];
  mov.u64 %rd3, 5;
  st.param.b32 [s], %r0;
  st.param.b32 [s+4], 3;
  st.param.b64 [s+8], %rd3;
  call.uni (t), change, (s);
  ld.param.b32 %r3, [t];
  ld.param.b64 %rd4, [t+8];
  cvt.u32.u64 %r4, %rd4;
  add.u32 %r5, %r3, %r4;
  call (%r6), plus, (%r5, 7);
  st.global.u32 [%rd0], %r6;
)",
                     R"(
.func (.param .align 8 .b8 r[16]) change(.param .align 8 .b8 a[16])
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<5>;
  ld.param.v2.u32 {%r1, %r2}, [a];
  ld.param.u64 %rd1, [a+8];
  mul.lo.u32 %r3, %r1, %r2;
  st.param.b32 [r], %r3;
  add.u64 %rd2, %rd1, 1000;
  st.param.b64 [r+8], %rd2;
  ret;
}
.func (.reg .b32 sum) plus(.reg .b32 x, .reg .b32 y)
{
  add.u32 sum, x, y;
  ret;
}
)"),
        64, [](uint32_t i) { return 3 * i + 1005 + 7; });
}

TEST(ExecControlTest, CallsByPartOfAWarpMeetAgain) {
  Check(SimpleKernel(R"(
  mov.u32 %r3, 1;
  setp.lt.u32 %p1, %r0, 20;
  @!%p1 bra OUT;
  .param .b32 a;
  .param .b32 r;
  st.param.b32 [a], %r0;
  call.uni (r), square, (a);
  ld.param.b32 %r3, [r];
OUT:
  activemask.b32 %r4;
  setp.ne.u32 %p2, %r4, -1;
  @%p2 mov.u32 %r3, -1;
  st.global.u32 [%rd0], %r3;
)",
                     kOperations),
        32, [](uint32_t i) { return i < 20 ? i * i : 1; });
}

TEST(ExecControlTest, LoadRefusesByLineAndName) {
  auto message = [](const std::string& ptx) { return std::string(TestDevice::TryLoad(ptx).message()); };
  stasis::Status unknown = TestDevice::TryLoad(SimpleKernel("  frobnicate.rn.u32 %r1, %r2;"));
  EXPECT_EQ(unknown.code(), stasis::StatusCode::kUnsupported);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("unknown opcode 'frobnicate.rn.u32'"));
  EXPECT_THAT(std::string(unknown.message()), testing::MatchesRegex("line [0-9]+: .*"));
  EXPECT_THAT(message(SimpleKernel("  ld.global.strange.u32 %r1, [%rd0];")),
              HasSubstr("ld.global.strange.u32"));
  EXPECT_THAT(message(SimpleKernel("  add.u32.strange %r1, %r2, %r3;")), HasSubstr("unknown opcode"));
  EXPECT_THAT(message(SimpleKernel("  barrier.cluster.arrive;")), HasSubstr("unknown opcode"));
  stasis::Status unresolved =
      TestDevice::TryLoad(SimpleKernel("  call.uni nowhere, ();", ".extern .func nowhere();"));
  EXPECT_EQ(unresolved.code(), stasis::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unresolved.message()), HasSubstr("nowhere"));
  EXPECT_EQ(TestDevice::TryLoad(SimpleKernel("", ".extern .func never_called();")).code(),
            stasis::StatusCode::kOk);
  EXPECT_EQ(TestDevice::TryLoad(SimpleKernel("", ".const .b8 big[70000];")).code(),
            stasis::StatusCode::kInvalidArgument);
  EXPECT_EQ(TestDevice::TryLoad(SimpleKernel("  .shared .b8 big[50000];\n  mov.u32 %r1, big;")).code(),
            stasis::StatusCode::kInvalidArgument);
}

TEST(ExecControlTest, TrapStopsTheLaunch) {
  TestDevice device;
  device.workers = 2;
  device.Load(SimpleKernel("  setp.eq.u32 %p1, %r0, 100;\n  @%p1 trap;\n"));
  uint32_t* out = device.Alloc<uint32_t>(256);
  Fault fault = device.Launch("k", {4}, {64}, Pass(out, uint64_t{0}));
  EXPECT_EQ(fault.kind, FaultKind::kTrap);
  EXPECT_THAT(fault.message, HasSubstr("kernel 'k', block (1,0,0), thread (36,0,0)"));
}

// A lock taken by one lane after the other: lanes that spin must let the owner go on.
TEST(ExecControlTest, SpinLockBetweenLanesOfAWarp) {
  TestDevice device;
  device.Load(SimpleKernel(R"(
SPIN:
  atom.global.cas.b32 %r2, [%rd1], 0, 1;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra SPIN;
  ld.volatile.global.u32 %r3, [%rd1+4];
  add.u32 %r3, %r3, 1;
  st.volatile.global.u32 [%rd1+4], %r3;
  membar.gl;
  atom.global.exch.b32 %r4, [%rd1], 0;
  st.global.u32 [%rd0], %r3;
)"));
  uint32_t* out = device.Alloc<uint32_t>(64);
  uint32_t* lock = device.Alloc<uint32_t>(2);
  device.workers = 2;
  Fault fault = device.Launch("k", {2}, {32}, Pass(out, lock));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(lock[1], 64u);
  std::vector<uint32_t> tickets(out, out + 64);
  std::sort(tickets.begin(), tickets.end());
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(tickets[i], i + 1);
}

// The owner of the lock is in a branch behind the spinning loop's address.
TEST(ExecControlTest, LanesWaitForALaterLane) {
  Check(SimpleKernel(R"(
  .shared .align 4 .u32 flag;
  mov.u32 %r5, 0;
  st.shared.u32 [flag], %r5;
  bar.sync 0;
  setp.eq.u32 %p1, %r59, 31;
  @%p1 bra SET;
WAIT:
  ld.volatile.shared.u32 %r2, [flag];
  setp.eq.u32 %p2, %r2, 0;
  @%p2 bra WAIT;
  bra.uni OUT;
SET:
  mov.u32 %r3, 42;
  st.volatile.shared.u32 [flag], %r3;
  mov.u32 %r2, 42;
OUT:
  st.global.u32 [%rd0], %r2;
)"),
        32, [](uint32_t) { return 42u; });
}

}  // namespace
}  // namespace softgpu::exec

// printf, malloc and assert from kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "softgpu/ptx/exec/exec_testing.h"
#include "softgpu/ptx/exec/format.h"

namespace softgpu::exec {
namespace {

using testing::HasSubstr;

// Arguments laid out as a kernel lays them out.
class Packed final : public FormatArguments {
 public:
  Packed& Int(int value) { return Put(&value, 4); }
  Packed& Wide(long long value) { return Put(&value, 8); }
  Packed& Double(double value) { return Put(&value, 8); }
  Packed& String(const char* text) {
    uint64_t key = text ? 1000 + strings_.size() : 0;
    if (text) strings_[key] = text;
    return Put(&key, 8);
  }
  bool Read(uint64_t offset, unsigned bytes, uint64_t* value) override {
    if (offset + bytes > buffer_.size()) return false;
    *value = 0;
    std::memcpy(value, buffer_.data() + offset, bytes);
    return true;
  }
  bool ReadString(uint64_t address, std::string* text) override {
    if (!strings_.count(address)) return false;
    *text = strings_[address];
    return true;
  }

 private:
  Packed& Put(const void* value, size_t bytes) {
    buffer_.resize((buffer_.size() + bytes - 1) / bytes * bytes);
    buffer_.insert(buffer_.end(), static_cast<const uint8_t*>(value),
                   static_cast<const uint8_t*>(value) + bytes);
    return *this;
  }
  std::vector<uint8_t> buffer_;
  std::map<uint64_t, std::string> strings_;
};

std::string Format(const char* format, Packed arguments, unsigned want_count) {
  std::string text;
  unsigned count = 99;
  EXPECT_TRUE(FormatText(format, &arguments, &text, &count)) << format;
  EXPECT_EQ(count, want_count) << format;
  return text;
}

template <typename... Args>
std::string Host(const char* format, Args... args) {
  char buffer[512];
  int size = std::snprintf(buffer, sizeof buffer, format, args...);
  return std::string(buffer, static_cast<size_t>(size));
}

TEST(FormatTest, AgreesWithTheHost) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  for (const char* f : {"%d", "%5d|", "%-5d|", "%+d", "% d", "%05d", "%.3d", "%i", "%u",    "%x",
                        "%X", "%#x",  "%o",    "%#o", "%hd", "%hhd", "%hu",  "%c", "%8.4d", "%-8.4x|"}) {
    for (int v : {0, 65, -1, 123456, -40000}) EXPECT_EQ(Format(f, Packed().Int(v), 1), Host(f, v)) << f;
  }
  for (const char* f : {"%lld", "%ld", "%llu", "%lu", "%llx", "%zu", "%jd", "%20lld|", "%-20llX|", "%#llo"}) {
    for (long long v : {0ll, -1ll, 1234567890123ll})
      EXPECT_EQ(Format(f, Packed().Wide(v), 1), Host(f, v)) << f;
  }
  for (const char* f :
       {"%f", "%.2f", "%10.3f|", "%-10.3f|", "%e", "%E", "%g", "%G", "%a", "%+.0f", "%#.0f", "%lf"}) {
    for (double v : {0.0, -1.5, 3.14159e10, 1e-300})
      EXPECT_EQ(Format(f, Packed().Double(v), 1), Host(f, v)) << f;
  }
  for (const char* f : {"%s", "%10s|", "%-10s|", "%.2s"}) {
    EXPECT_EQ(Format(f, Packed().String("hello"), 1), Host(f, "hello")) << f;
  }
#pragma GCC diagnostic pop
}

TEST(FormatTest, SeveralArgumentsStarsAndPercent) {
  EXPECT_EQ(Format("a %d b %f c %lld d %s e %%\n", Packed().Int(1).Double(2.5).Wide(-3).String("four"), 4),
            "a 1 b 2.500000 c -3 d four e %\n");
  EXPECT_EQ(Format("%*d|%-*d|%.*f", Packed().Int(6).Int(42).Int(6).Int(43).Int(2).Double(1.23456), 6),
            "    42|43    |1.23");
  EXPECT_EQ(Format("%*d|", Packed().Int(-6).Int(42), 2), "42    |");
  EXPECT_EQ(Format("%p %p", Packed().Wide(0x1234).Wide(0), 2), Host("%p %p", (void*)0x1234, (void*)nullptr));
  EXPECT_EQ(Format("%s", Packed().String(nullptr), 1), "(null)");
  EXPECT_EQ(Format("", Packed(), 0), "");
  EXPECT_EQ(Format("50%", Packed(), 0), "50%");
  EXPECT_EQ(Format("%y %", Packed(), 0), "%y %");
}

TEST(FormatTest, MissingArgumentsAreAnError) {
  Packed none;
  std::string text;
  unsigned count;
  EXPECT_FALSE(FormatText("%d", &none, &text, &count));
  EXPECT_FALSE(FormatText("%*d", &none, &text, &count));
  Packed bad;
  bad.Wide(5);
  EXPECT_FALSE(FormatText("%s", &bad, &text, &count));
}

TEST(FormatTest, HugeFieldsAreBounded) {
  std::string text = Format("%999999999d", Packed().Int(1), 1);
  EXPECT_LE(text.size(), 1u << 16);
  EXPECT_LE(Format("%*d", Packed().Int(INT32_MIN).Int(1), 2).size(), 1u << 16);
}

TEST(ExecBuiltinTest, PrintfFromTheLanesOfAWarp) {
  TestDevice device;
  device.Load(SimpleKernel(R"(
  .local .align 8 .b8 depot[32];
  mov.u64 %rd2, depot;
  cvta.local.u64 %rd3, %rd2;
  st.local.u32 [depot], %r0;
  mov.u64 %rd6, name;
  cvta.global.u64 %rd7, %rd6;
  st.local.u64 [depot+8], %rd7;
  mov.u64 %rd4, text;
  cvta.global.u64 %rd5, %rd4;
  setp.ge.u32 %p1, %r0, 3;
  @%p1 bra OUT;
  {
  .param .b64 param0;
  st.param.b64 [param0], %rd5;
  .param .b64 param1;
  st.param.b64 [param1], %rd3;
  .param .b32 retval0;
  call.uni (retval0), vprintf, (param0, param1);
  ld.param.b32 %r3, [retval0];
  }
  st.global.u32 [%rd0], %r3;
OUT:
)",
                           R"(
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.global .align 1 .b8 text[11] = {108, 97, 110, 101, 32, 37, 100, 37, 115, 10, 0};
.global .align 1 .b8 name[3] = {32, 120, 0};
)"));
  uint32_t* out = device.Alloc<uint32_t>(32);
  Fault fault = device.Launch("k", {1}, {32}, Pass(out, uint64_t{0}));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  EXPECT_EQ(device.services.printed(), "lane 0 x\nlane 1 x\nlane 2 x\n");
  EXPECT_EQ(out[0], 2u);
}

TEST(ExecBuiltinTest, MallocAndFree) {
  TestDevice device;
  device.Load(SimpleKernel(R"(
  .param .b64 size;
  .param .b64 result;
  .param .b64 old;
  mov.u64 %rd2, 64;
  st.param.b64 [size], %rd2;
  call.uni (result), malloc, (size);
  ld.param.b64 %rd3, [result];
  st.u32 [%rd3+60], %r0;
  ld.u32 %r2, [%rd3+60];
  st.global.u32 [%rd0], %r2;
  st.param.b64 [old], %rd3;
  setp.eq.u32 %p1, %r0, 5;
  @%p1 bra KEEP;
  call.uni free, (old);
KEEP:
  mov.u64 %rd2, 1000000000;
  st.param.b64 [size], %rd2;
  call.uni (result), malloc, (size);
  ld.param.b64 %rd3, [result];
  setp.ne.u64 %p2, %rd3, 0;
  @%p2 trap;
)",
                           R"(
.extern .func (.param .b64 r) malloc(.param .b64 a);
.extern .func free(.param .b64 a);
)"));
  uint32_t* out = device.Alloc<uint32_t>(32);
  Fault fault = device.Launch("k", {1}, {32}, Pass(out, uint64_t{0}));
  ASSERT_EQ(fault.kind, FaultKind::kNone) << fault.message;
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i);
  EXPECT_EQ(device.services.live_allocations(), 1u);
  EXPECT_TRUE(InfoOf(*device.program()->FindKernel("k")).uses_device_malloc);
}

TEST(ExecBuiltinTest, AssertionsPrintAsCudaDoes) {
  TestDevice device;
  device.Load(SimpleKernel(R"(
  setp.ne.u32 %p1, %r0, 33;
  @%p1 bra OK;
  .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4;
  mov.u64 %rd2, message; cvta.global.u64 %rd2, %rd2; st.param.b64 [p0], %rd2;
  mov.u64 %rd3, file; cvta.global.u64 %rd3, %rd3; st.param.b64 [p1], %rd3;
  st.param.b32 [p2], 12;
  mov.u64 %rd4, func; cvta.global.u64 %rd4, %rd4; st.param.b64 [p3], %rd4;
  mov.u64 %rd5, 1; st.param.b64 [p4], %rd5;
  call.uni __assertfail, (p0, p1, p2, p3, p4);
OK:
)",
                           R"(
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 message[4] = {97, 62, 98, 0};
.global .align 1 .b8 file[5] = {102, 46, 99, 117, 0};
.global .align 1 .b8 func[3] = {102, 110, 0};
)"));
  Fault fault = device.Launch("k", {2}, {32}, Pass(uint64_t{0}, uint64_t{0}));
  EXPECT_EQ(fault.kind, FaultKind::kAssert);
  EXPECT_EQ(device.services.printed(),
            "f.cu:12: fn: block: [1,0,0], thread: [1,0,0] Assertion `a>b` failed.\n");
}

}  // namespace
}  // namespace softgpu::exec

#include "replay/device_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "replay/code_image.h"
#include "replay/fatbin.h"

namespace stasis::replay {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::vector<char> Read(const std::string& name) {
  std::ifstream file(std::string(IMAGE_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> Bytes(const std::vector<char>& data) {
  return std::as_bytes(std::span<const char>(data));
}

std::vector<std::string> Variables(const std::string& name) {
  const std::vector<char> image = Read(name);
  Result<DeviceCodeFacts> facts = ReadDeviceCode(Bytes(image));
  EXPECT_TRUE(facts.ok()) << name << ": " << facts.status().ToString();
  return facts.ok() ? facts->variables : std::vector<std::string>{};
}

class Images : public testing::TestWithParam<const char*> {};

TEST_P(Images, NameAllVariables) {
  const std::vector<std::string> names = Variables(GetParam());
  for (const char* name : {"counter", "matrix", "weights", "shared_value", "address_of_counter"})
    EXPECT_THAT(names, Contains(name));
  for (const char* part : {"4deep4seenE", "6hidden", "5calls"}) EXPECT_THAT(names, Contains(HasSubstr(part)));
  EXPECT_THAT(names, Not(Contains("use")));
  EXPECT_THAT(names, Not(Contains("out")));
}

TEST_P(Images, SayTheirSize) {
  std::vector<char> image = Read(GetParam());
  const size_t size = image.size();
  image.resize(size + 64);  // what follows is not the image's, but for the NUL of text
  const bool text = std::string(GetParam()).ends_with(".ptx");
  EXPECT_EQ(DeviceCodeSize(image.data()), text ? size + 1 : size);
}

TEST_P(Images, DamageIsNoCrash) {
  const std::vector<char> image = Read(GetParam());
  for (size_t cut = 0; cut < image.size(); cut += 1 + image.size() / 300) {
    std::vector<char> part(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(cut));
    (void)ReadDeviceCode(Bytes(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Nvcc, Images,
                         testing::Values("plain.fatbin", "zstd.fatbin", "lz4.fatbin", "size.fatbin",
                                         "rdc.fatbin", "debug.fatbin", "ptx.fatbin", "elf.fatbin", "code.ptx",
                                         "code.cubin"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

TEST(DeviceCode, TheDriversHeapIsNamed) {
  for (const char* name : {"heap.fatbin", "heap.ptx"}) {
    const std::vector<char> image = Read(name);
    Result<DeviceCodeFacts> facts = ReadDeviceCode(Bytes(image));
    ASSERT_TRUE(facts.ok()) << facts.status().ToString();
    EXPECT_EQ(facts->hidden_state, "malloc") << name;
  }
  const std::vector<char> without = Read("zstd.fatbin");
  EXPECT_EQ(ReadDeviceCode(Bytes(without))->hidden_state, "");
}

TEST(Ptx, Declarations) {
  Result<DeviceCodeFacts> facts = ReadPtx(R"(
    .version 9.0 // .global .u32 comment;
    .target sm_75, debug
    .file 1 "a.cu;{ .global .u32 in_text;"
    /* .const .u32 comment2; */
    .visible .global .align 4 .u32 one = 5;
    .const .align 16 .b8 two[16] = {1, 2, {3}};
    .weak .global .attribute(.managed) .align 8 .u64 three[] = {generic(one)+4, four};
    .extern .global .v4 .f32 five;
    .global .u32 six, seven[2] = {1,2}, eight;
    .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
    .visible .func (.param .b32 r) f(.param .u64 .ptr .global .align 4 p) { .reg .u32 x; { ld.global.u32 x, [p]; } }
    .visible .entry k(.param .u64 .ptr .const .align 4 p)
    .maxntid 1, 2, 3
    { .shared .align 4 .u32 s; .global .u32 inner; ret; }
    .section .debug_info { .b8 1, 2 }
    .global .u32 $last$1;
  )");
  ASSERT_TRUE(facts.ok());
  EXPECT_THAT(facts->variables,
              ElementsAre("$last$1", "eight", "five", "one", "seven", "six", "three", "two"));
  EXPECT_EQ(facts->hidden_state, "");
  EXPECT_EQ(ReadPtx(".global .u32 x[").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ReadPtx(".entry k() {").status().code(), StatusCode::kCorrupt);
}

TEST(DeviceCode, OtherFormsAreRefused) {
  const char junk[] = "\177XYZjunkjunkjunkjunk";
  EXPECT_EQ(ReadDeviceCode(std::as_bytes(std::span(junk))).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(DeviceCodeSize(junk), 0u);
  EXPECT_EQ(CodeImage::Keep(junk)->Check().code(), StatusCode::kUnsupported);
}

TEST(DeviceCode, AWrapperLeadsToItsData) {
  const std::vector<char> image = Read("zstd.fatbin");
  const struct {
    uint32_t magic, version;
    const void *data, *parts;
  } wrapper = {0x466243B1, 1, image.data(), nullptr};
  EXPECT_EQ(UnwrapDeviceCode(&wrapper), image.data());
  EXPECT_EQ(UnwrapDeviceCode(image.data()), image.data());
}

TEST(CodeImage, CopiesWhatIsNotInALoadedObject) {
  static const char kText[] = ".version 8.0\n.target sm_75\n.address_size 64\n.global .u32 x;\n";
  EXPECT_EQ(CodeImage::Keep(kText)->data(), kText);
  std::string own = kText;
  const std::shared_ptr<CodeImage> kept = CodeImage::Keep(own.c_str());
  own.assign(own.size(), ' ');
  EXPECT_STREQ(static_cast<const char*>(kept->data()), kText);
  ASSERT_TRUE(kept->Check().ok());
  EXPECT_THAT(kept->variables(), ElementsAre("x"));
}

TEST(CodeImage, ALinkedImageHasTheVariablesOfItsParts) {
  std::string image = "\177OTHER form";
  image.push_back('\0');
  const std::string part = ".global .u32 in_part;\n";
  std::vector<std::byte> input(part.size());
  std::memcpy(input.data(), part.data(), part.size());
  EXPECT_FALSE(CodeImage::Keep(image.data())->Check().ok());
  RememberLinked(std::as_bytes(std::span(image)), {input});
  const std::string elsewhere = image;
  const std::shared_ptr<CodeImage> kept = CodeImage::Keep(elsewhere.data());
  ASSERT_TRUE(kept->Check().ok());
  EXPECT_THAT(kept->variables(), ElementsAre("in_part"));
}

}  // namespace
}  // namespace stasis::replay

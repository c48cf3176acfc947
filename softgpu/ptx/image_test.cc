#include "softgpu/ptx/image.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>

#include "softgpu/ptx/parser.h"
#include "softgpu/ptx/testdata_testing.h"

namespace softgpu::ptx {
namespace {

using stasis::Result;
using stasis::StatusCode;
using Bytes = std::span<const std::byte>;

Bytes AsBytes(const std::string& data) { return std::as_bytes(std::span(data.data(), data.size())); }

// Without comments and white space: the compiler strips both from embedded text.
std::string Essence(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) i = std::min(text.find('\n', i), text.size());
    if (text.compare(std::min(i, text.size()), 2, "/*") == 0)
      i = std::min(text.find("*/", i) + 2, text.size());
    if (i < text.size() && !std::isspace(static_cast<unsigned char>(text[i]))) out += text[i];
  }
  return out;
}

std::string OnlyText(const std::string& image, int major, int minor) {
  const Result<std::vector<std::string>> texts = ReadImage(AsBytes(image), major, minor);
  EXPECT_TRUE(texts.ok()) << texts.status().ToString();
  if (!texts.ok()) return "";
  EXPECT_EQ(texts->size(), 1u);
  return texts->at(0);
}

StatusCode CodeOf(const std::string& image, int major, int minor) {
  return ReadImage(AsBytes(image), major, minor).status().code();
}

TEST(ImageTest, EveryCompressionGivesTheCompilersText) {
  const std::string plain = Essence(ReadTestdata("tiny_75.ptx"));
  using Codec = FatbinEntry::Codec;
  const std::pair<const char*, Codec> cases[] = {{"tiny_default.fatbin", Codec::kZstd},
                                                 {"tiny_speed.fatbin", Codec::kLz4},
                                                 {"tiny_size.fatbin", Codec::kZstd},
                                                 {"tiny_none.fatbin", Codec::kPlain}};
  for (const auto& [name, codec] : cases) {
    SCOPED_TRACE(name);
    const std::string image = ReadTestdata(name);
    const Result<std::vector<FatbinEntry>> entries = ReadFatbin(AsBytes(image));
    ASSERT_TRUE(entries.ok()) << entries.status().ToString();
    ASSERT_EQ(entries->size(), 2u);
    EXPECT_EQ(entries->at(0).kind, FatbinEntry::Kind::kElf);
    EXPECT_EQ(entries->at(1).kind, FatbinEntry::Kind::kPtx);
    EXPECT_EQ(entries->at(1).sm, 75);
    EXPECT_EQ(entries->at(1).suffix, '\0');
    EXPECT_EQ(entries->at(1).codec, codec);
    EXPECT_EQ(Essence(OnlyText(image, 7, 5)), plain);
    EXPECT_EQ(Essence(OnlyText(image, 12, 1)), plain);
    EXPECT_EQ(PtxText(entries->at(0)).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(ImageTest, LargerProgramsAndExtraHeadersToo) {
  EXPECT_EQ(Essence(OnlyText(ReadTestdata("language_75.fatbin"), 9, 0)),
            Essence(ReadTestdata("language_75.ptx")));
  for (const char* name : {"tiny_debug.fatbin", "tiny_lineinfo.fatbin"}) {
    const std::string text = OnlyText(ReadTestdata(name), 7, 5);
    EXPECT_NE(text.find(".loc"), std::string::npos);
    EXPECT_TRUE(Parse(text).ok());
  }
}

TEST(ImageTest, TheBestEntryForTheDeviceIsChosen) {
  const std::string specific = ReadTestdata("tiny_90a.fatbin");
  EXPECT_NE(OnlyText(specific, 9, 0).find("sm_90a"), std::string::npos);
  EXPECT_EQ(OnlyText(specific, 10, 0).find("sm_90a"), std::string::npos);
  EXPECT_EQ(CodeOf(specific, 8, 9), StatusCode::kUnsupported);
  const std::string family = ReadTestdata("tiny_100f.fatbin");
  EXPECT_NE(OnlyText(family, 10, 3).find("sm_100f"), std::string::npos);
  EXPECT_EQ(OnlyText(family, 12, 0).find("sm_100f"), std::string::npos);
  const std::string two = ReadTestdata("tiny_two.fatbin");
  EXPECT_NE(OnlyText(two, 8, 9).find("sm_75"), std::string::npos);
  EXPECT_NE(OnlyText(two, 9, 0).find("sm_90"), std::string::npos);
  const std::string all = ReadTestdata("tiny_all.fatbin");
  EXPECT_EQ(Essence(OnlyText(all, 12, 0)), Essence(ReadTestdata("tiny_120.ptx")));
  EXPECT_EQ(CodeOf(all, 9, 0), StatusCode::kUnsupported);
}

TEST(ImageTest, MachineCodeAloneIsNotSupported) {
  EXPECT_EQ(CodeOf(ReadTestdata("tiny_machine.fatbin"), 7, 5), StatusCode::kUnsupported);
  EXPECT_EQ(CodeOf(ReadTestdata("tiny_75.cubin"), 7, 5), StatusCode::kUnsupported);
}

TEST(ImageTest, BareTextIsReadUpToItsNul) {
  const std::string text = ReadTestdata("tiny_90a.ptx");
  EXPECT_EQ(OnlyText(text + std::string("\0junk", 5), 9, 0), text);
  EXPECT_EQ(OnlyText(text, 9, 0), text);
  EXPECT_EQ(CodeOf(text, 10, 0), StatusCode::kUnsupported);
  EXPECT_EQ(CodeOf(ReadTestdata("tiny_120.ptx"), 9, 0), StatusCode::kUnsupported);
}

TEST(ImageTest, OtherBytesAreCorrupt) {
  for (const char* text :
       {"", "hello", ".version", ".version 9.0", ".version 9.0 .target debug", "// only"}) {
    EXPECT_EQ(CodeOf(text, 9, 0), StatusCode::kCorrupt) << text;
  }
}

// Every prefix and every changed byte of a real image, each in its own allocation so that a sanitizer sees
// any read beyond it.
TEST(ImageTest, DamageIsReportedAndNothingOutsideIsRead) {
  for (const char* name : {"tiny_default.fatbin", "tiny_speed.fatbin", "tiny_none.fatbin"}) {
    const std::string image = ReadTestdata(name);
    for (size_t size = 0; size < image.size(); ++size) {
      const std::unique_ptr<char[]> part(new char[size]);
      std::memcpy(part.get(), image.data(), size);
      EXPECT_FALSE(ReadImage(std::as_bytes(std::span(part.get(), size)), 7, 5).ok()) << size;
    }
    const Result<std::vector<FatbinEntry>> entries = ReadFatbin(AsBytes(image));
    const size_t ptx_header = image.size() - entries->at(1).payload.size() - 256;
    for (size_t at = 0; at < image.size(); at = at == 64 ? ptx_header : at + 1) {
      const std::unique_ptr<char[]> changed(new char[image.size()]);
      std::memcpy(changed.get(), image.data(), image.size());
      changed[at] = static_cast<char>(changed[at] ^ 0xff);
      const auto texts = ReadImage(std::as_bytes(std::span(changed.get(), image.size())), 7, 5);
      EXPECT_TRUE(!texts.ok() || texts->size() == 1);
    }
  }
}

TEST(ImageTest, SizesAreBounded) {
  std::string image = ReadTestdata("tiny_default.fatbin");
  const Result<std::vector<FatbinEntry>> entries = ReadFatbin(AsBytes(image));
  FatbinEntry entry = entries->at(1);
  entry.uncompressed_size = uint64_t{1} << 40;
  EXPECT_EQ(PtxText(entry).status().code(), StatusCode::kCorrupt);
  entry.uncompressed_size = entries->at(1).uncompressed_size + 1;
  EXPECT_EQ(PtxText(entry).status().code(), StatusCode::kCorrupt);
  entry.uncompressed_size = entries->at(1).uncompressed_size - 1;
  EXPECT_EQ(PtxText(entry).status().code(), StatusCode::kCorrupt);
  const uint64_t huge = ~uint64_t{0};
  std::memcpy(image.data() + 8, &huge, sizeof(huge));
  EXPECT_EQ(CodeOf(image, 7, 5), StatusCode::kCorrupt);
  EXPECT_EQ(SpanOfImage(image.data()).status().code(), StatusCode::kCorrupt);
}

TEST(ImageTest, ImagesTellTheirOwnSize) {
  for (const char* name : {"tiny_default.fatbin", "tiny_all.fatbin", "tiny_75.cubin"}) {
    const std::string image = ReadTestdata(name);
    const Result<Bytes> span = SpanOfImage(image.data());
    ASSERT_TRUE(span.ok()) << span.status().ToString();
    EXPECT_EQ(span->size(), image.size()) << name;
    EXPECT_EQ(static_cast<const void*>(span->data()), image.data());
  }
  const std::string text = "  // hello\n/* x */ .version 9.0\n.target sm_75\n";
  EXPECT_EQ(SpanOfImage(text.c_str())->size(), text.size() + 1);
  const std::vector<std::byte> packed = PackLinked({text, text});
  EXPECT_EQ(SpanOfImage(packed.data())->size(), packed.size());
}

TEST(ImageTest, WrappersLeadToTheirData) {
  const std::string image = ReadTestdata("tiny_default.fatbin");
  struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void* data = nullptr;
    const void* fourth = nullptr;
  } wrapper;
  EXPECT_EQ(SpanOfImage(&wrapper).status().code(), StatusCode::kCorrupt);
  wrapper.data = image.data();
  const Result<Bytes> span = SpanOfImage(&wrapper);
  ASSERT_TRUE(span.ok());
  EXPECT_EQ(span->size(), image.size());
  EXPECT_EQ(SpanOfImage(nullptr).status().code(), StatusCode::kInvalidArgument);
}

TEST(ImageTest, UnknownBytesHaveNoSize) {
  for (const char* text : {"", "P", "\x7f", "\x50\xed", "/", "/*", "// x", "/x", ".versio", "hello"}) {
    const size_t size = std::strlen(text) + 1;
    const std::unique_ptr<char[]> exact(new char[size]);
    std::memcpy(exact.get(), text, size);
    EXPECT_EQ(SpanOfImage(exact.get()).status().code(), StatusCode::kCorrupt) << text;
  }
}

TEST(ImageTest, LinkedContainersRoundTrip) {
  const std::vector<std::string> units = {ReadTestdata("unit_a_75.ptx"), ReadTestdata("unit_b_75.ptx")};
  const std::vector<std::byte> packed = PackLinked(units);
  const Result<std::vector<std::string>> texts = ReadImage(packed, 7, 5);
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  EXPECT_EQ(*texts, units);
  EXPECT_EQ(ReadImage(packed, 7, 0).status().code(), StatusCode::kUnsupported);
  for (size_t size = 8; size < packed.size(); size += 97) {
    EXPECT_EQ(ReadImage(Bytes(packed).first(size), 7, 5).status().code(), StatusCode::kCorrupt) << size;
  }
  for (size_t at = 8; at < packed.size(); at += at < 64 ? 1 : 97) {
    std::vector<std::byte> changed = packed;
    changed[at] ^= std::byte{0x40};
    EXPECT_EQ(ReadImage(changed, 7, 5).status().code(), StatusCode::kCorrupt) << at;
  }
  EXPECT_EQ(ReadImage(PackLinked({}), 7, 5).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace softgpu::ptx

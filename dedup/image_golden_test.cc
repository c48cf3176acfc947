// The bytes of format version 2, for as long as this program reads it. They change only with the version.
#include <gtest/gtest.h>

#include <cstdio>

#include "dedup/image.h"
#include "dedup/image_export.h"
#include "dedup/image_testing.h"

namespace stasis {
namespace {

// Nothing that compresses: what zstd makes of bytes may change.
Bytes Fixed(uint32_t seed, size_t size) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

Sample GoldenSample() {
  Sample sample;
  sample.streams["device 0"] = {{{0x7f0000000000 - 40, 100}, {0x7f0000100000, 4096}},
                                Joined({Fixed(1, 40), Fixed(2, 60), Bytes(4096)})};
  sample.streams["empty"] = {};
  sample.folders["criu"] = {{"core.img", Fixed(3, 50)}, {"copy.img", Fixed(3, 50)}, {"none.img", {}}};
  sample.meta = {{"program", "golden"}, {"number", 42}, {"nested", {{"flag", true}}}};
  return sample;
}

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x%s", static_cast<unsigned>(bytes[i]), i % 32 == 31 ? "\n" : "");
    text += digits;
  }
  if (!text.empty() && text.back() != '\n') text += '\n';
  return text;
}

Bytes Unhex(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += text[i] == '\n' ? 1 : 2) {
    if (text[i] != '\n') {
      bytes.push_back(static_cast<std::byte>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
    }
  }
  return bytes;
}

StoreOptions SmallChunks() {
  StoreOptions options;
  options.chunk_bytes = 4096;
  return options;
}

class ImageGoldenTest : public testing::Test {
 protected:
  std::string Golden(const std::string& name) {
    Result<std::string> text = ReadFile(std::string(STASIS_GOLDEN_FOLDER) + "/" + name);
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    return text.ok() ? *text : "";
  }
  TempFolder folder_;
};

TEST_F(ImageGoldenTest, WhatIsWrittenIsWhatWasWrittenThen) {
  std::shared_ptr<Store> store = OpenStore(folder_ / "store", SmallChunks());
  ASSERT_OK(WriteSample(store, "golden job", "000012", GoldenSample(), folder_.path()));
  EXPECT_EQ(Hex(ReadBytes(folder_ / "store/images/golden job/000012.image")), Golden("image_v2.hex"));
  Result<std::unique_ptr<ImageReader>> reader = ImageReader::Open(store, "golden job", "000012");
  ASSERT_TRUE(reader.ok());
  ASSERT_OK(ExportImage(**reader, folder_ / "export"));
  EXPECT_EQ(Hex(ReadBytes(folder_ / "export")), Golden("image_v2_export.hex"));
  EXPECT_EQ(kImageVersion, 2u);
  EXPECT_EQ(kExportVersion, 1u);
}

TEST_F(ImageGoldenTest, WhatWasWrittenThenIsRead) {
  WriteBytes(folder_ / "export", Unhex(Golden("image_v2_export.hex")));
  std::shared_ptr<Store> store = OpenStore(folder_ / "store");
  std::string task, id;
  ASSERT_OK(ImportImage(store, folder_ / "export", &task, &id));
  EXPECT_EQ(task + "/" + id, "golden job/000012");
  ASSERT_OK(ReadSample(store, task, id, GoldenSample(), folder_.path()));
  EXPECT_EQ(Hex(ReadBytes(folder_ / "store/images/golden job/000012.image")), Golden("image_v2.hex"));
}

}  // namespace
}  // namespace stasis

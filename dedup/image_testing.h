// What the tests of images share.
#ifndef DEDUP_IMAGE_TESTING_H_
#define DEDUP_IMAGE_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "base/testing.h"
#include "dedup/image.h"
#include "dedup/store.h"

namespace stasis {

using Bytes = std::vector<std::byte>;

inline bool FullTest() {
  const char* full = getenv("STASIS_TEST_FULL");
  return full && std::string_view(full) == "1";
}

inline Bytes Noise(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline Bytes Joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

inline Bytes ReadBytes(const std::string& path) {
  Result<std::string> text = ReadFile(path, 1 << 30);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  if (!text.ok()) return {};
  std::span<const std::byte> bytes = std::as_bytes(std::span(*text));
  return Bytes(bytes.begin(), bytes.end());
}

inline std::vector<std::string> Names(const std::string& folder) {
  Result<std::vector<std::string>> names = ListFolder(folder);
  EXPECT_TRUE(names.ok()) << names.status().ToString();
  return names.ok() ? *std::move(names) : std::vector<std::string>();
}

inline void WriteBytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  ASSERT_TRUE(file.good()) << path;
}

inline std::shared_ptr<Store> OpenStore(const std::string& root, StoreOptions options = {}) {
  Result<std::shared_ptr<Store>> store = Store::Open(root, options);
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return store.ok() ? *store : nullptr;
}

// What a test puts into an image, and expects from it.
struct Sample {
  struct Stream {
    std::vector<Segment> segments;
    Bytes bytes;
  };
  std::map<std::string, Stream> streams;
  std::map<std::string, std::map<std::string, Bytes>> folders;
  Json meta = Json::object();
};

inline Status WriteStream(ImageWriter* writer, const std::string& name, std::span<const std::byte> bytes) {
  const StreamLayout& layout = writer->Layout(name);
  for (size_t i = 0; i < layout.pieces().size(); ++i) {
    const Piece& piece = layout.pieces()[i];
    RETURN_IF_ERROR(writer->WritePiece(name, i, bytes.subspan(piece.offset, piece.size)));
  }
  return Status();
}

// `scratch` is a folder for the files of folders.
inline Status FillImage(ImageWriter* writer, const Sample& sample, const std::string& scratch) {
  for (const auto& [name, stream] : sample.streams) {
    RETURN_IF_ERROR(writer->AddStream(name, stream.segments));
    RETURN_IF_ERROR(WriteStream(writer, name, stream.bytes));
  }
  for (const auto& [name, files] : sample.folders) {
    std::string path = scratch + "/" + name;
    RETURN_IF_ERROR(RemoveTree(path));
    RETURN_IF_ERROR(MakeFolders(path));
    for (const auto& [file, bytes] : files) WriteBytes(path + "/" + file, bytes);
    RETURN_IF_ERROR(writer->AddFolder(name, path));
  }
  return Status();
}

inline Status WriteSample(const std::shared_ptr<Store>& store, const std::string& task, const std::string& id,
                          const Sample& sample, const std::string& scratch, ImageCounts* counts = nullptr) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageWriter> writer, ImageWriter::Create(store, task, id));
  RETURN_IF_ERROR(FillImage(writer.get(), sample, scratch));
  RETURN_IF_ERROR(writer->Commit(sample.meta));
  if (counts) *counts = writer->counts();
  return Status();
}

inline Result<Bytes> ReadStream(const ImageReader& reader, const std::string& name) {
  const StreamLayout* layout = reader.Layout(name);
  if (!layout) return Status(StatusCode::kNotFound, name);
  Bytes bytes(layout->size());
  for (size_t i = 0; i < layout->pieces().size(); ++i) {
    const Piece& piece = layout->pieces()[i];
    RETURN_IF_ERROR(reader.ReadPiece(name, i, std::span(bytes).subspan(piece.offset, piece.size)));
  }
  return bytes;
}

// Everything in the image is as in `sample`; an error is what reading it said.
inline Status ReadSample(const std::shared_ptr<Store>& store, const std::string& task, const std::string& id,
                         const Sample& sample, const std::string& scratch) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> reader, ImageReader::Open(store, task, id));
  EXPECT_EQ(reader->meta(), sample.meta);
  EXPECT_EQ(reader->streams().size(), sample.streams.size());
  for (const auto& [name, stream] : sample.streams) {
    ASSIGN_OR_RETURN(Bytes bytes, ReadStream(*reader, name));
    EXPECT_TRUE(bytes == stream.bytes) << name;
    EXPECT_EQ(reader->Layout(name)->segments(), stream.segments);
  }
  EXPECT_EQ(reader->folders().size(), sample.folders.size());
  for (const auto& [name, files] : sample.folders) {
    std::string path = scratch + "/" + name + ".out";
    RETURN_IF_ERROR(RemoveTree(path));
    RETURN_IF_ERROR(MakeFolders(path));
    RETURN_IF_ERROR(reader->ExtractFolder(name, path));
    EXPECT_EQ(Names(path), [&files = files] {
      std::vector<std::string> names;
      for (const auto& file : files) names.push_back(file.first);
      return names;
    }());
    for (const auto& [file, bytes] : files) EXPECT_TRUE(ReadBytes(path + "/" + file) == bytes) << file;
  }
  return Status();
}

// Zeros, repetitions, noise, text that compresses; segments that begin and end anywhere; files with and
// without content. `unit` is the chunk size it is made for.
inline Sample MakeSample(uint64_t seed, size_t unit) {
  Sample sample;
  Bytes zeros(unit), noise = Noise(seed, 2 * unit), text;
  for (size_t i = 0; i < 3 * unit; ++i) text.push_back(static_cast<std::byte>("stasis "[i % 7]));
  Bytes device = Joined({noise, zeros, noise, text, Noise(seed + 1, 100)});
  sample.streams["device"] = {{{16 * unit, device.size()}}, device};
  Bytes host = Joined({Noise(seed + 2, 3 * unit + 1000), Bytes(5 * unit + 24)});
  sample.streams["host"] = {{{unit - 10, 1000}, {7 * unit + 5, 3 * unit}, {1000 * unit, 5 * unit + 24}},
                            host};
  sample.streams["nothing"] = {};
  sample.folders["criu"] = {{"core-1.img", Noise(seed + 3, 700)},
                            {"empty.img", {}},
                            {"pages-1.img", Joined({noise, zeros, Noise(seed + 4, unit / 2)})},
                            {"zero.img", Bytes(2 * unit + 1)}};
  sample.folders["none"] = {};
  sample.meta = {{"name", "sample"}, {"seed", seed}, {"list", {1, 2.5, nullptr, true}}};
  return sample;
}

}  // namespace stasis

#endif  // DEDUP_IMAGE_TESTING_H_

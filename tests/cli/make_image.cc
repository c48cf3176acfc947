// Writes images as checkpoints do, for tests of what reads them: `make_image ROOT` takes a list of images as
// JSON from standard input and puts them into the store at ROOT.
//
//   [{"task": "t", "id": "000001", "meta": {...}, "streams": {"device-2": [{"seed": 1, "bytes": 65536},
//   ...]},
//     "folders": {"criu": {"core.img": {"seed": 7, "bytes": 1000}}}}]
//
// A part with seed 0 is zero bytes; equal seeds give equal bytes. Each part begins at a multiple of 1 MiB of
// the stream's addresses.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "dedup/image.h"

namespace stasis {
namespace {

constexpr uint64_t kPartAlignment = 1 << 20;

std::vector<std::byte> Bytes(const Json& part) {
  uint64_t seed = part.at("seed").get<uint64_t>();
  std::vector<std::byte> bytes(part.at("bytes").get<uint64_t>());
  if (seed == 0) return bytes;
  uint64_t state = seed * 0x9e3779b97f4a7c15;
  for (std::byte& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::byte>(state >> 32);
  }
  return bytes;
}

Status WriteStream(ImageWriter& writer, const std::string& name, const Json& parts) {
  std::vector<Segment> segments;
  std::vector<std::byte> bytes;
  for (const Json& part : parts) {
    std::vector<std::byte> some = Bytes(part);
    segments.push_back({(segments.size() + 1) * kPartAlignment, some.size()});
    bytes.insert(bytes.end(), some.begin(), some.end());
  }
  RETURN_IF_ERROR(writer.AddStream(name, segments));
  const std::vector<Piece>& pieces = writer.Layout(name).pieces();
  for (size_t i = 0; i < pieces.size(); i++) {
    RETURN_IF_ERROR(writer.WritePiece(name, i, std::span(bytes).subspan(pieces[i].offset, pieces[i].size)));
  }
  return Status();
}

Status WriteFolder(ImageWriter& writer, const std::string& name, const Json& files) {
  char pattern[] = "/tmp/stasis-make-image-XXXXXX";
  std::string folder = mkdtemp(pattern);
  for (const auto& [file, part] : files.items()) {
    std::vector<std::byte> bytes = Bytes(part);
    std::ofstream(folder + "/" + file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  Status status = writer.AddFolder(name, folder);
  std::filesystem::remove_all(folder);
  return status;
}

Status WriteImage(const std::shared_ptr<Store>& store, const Json& image) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<ImageWriter> writer,
      ImageWriter::Create(store, image.at("task").get<std::string>(), image.at("id").get<std::string>()));
  for (const auto& [name, parts] : image.at("streams").items()) {
    RETURN_IF_ERROR(WriteStream(*writer, name, parts));
  }
  for (const auto& [name, files] : image.at("folders").items()) {
    RETURN_IF_ERROR(WriteFolder(*writer, name, files));
  }
  return writer->Commit(image.at("meta"));
}

Status WriteAll(const std::string& root) {
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(root));
  for (const Json& image : Json::parse(text)) RETURN_IF_ERROR(WriteImage(store, image));
  return Status();
}

// Whatever the names are.
Status Export(const std::string& root, const std::string& task, const std::string& id,
              const std::string& file) {
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(root));
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, ImageReader::Open(store, task, id));
  return ExportImage(*image, file);
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) {
  if (argc != 2 && argc != 5) return 2;
  stasis::Status status =
      argc == 2 ? stasis::WriteAll(argv[1]) : stasis::Export(argv[1], argv[2], argv[3], argv[4]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

// Measures the image store. Each command does its work once and prints one JSON object; what is compared and
// how often is the caller's business (scripts/bench/bench_store.py). Rates are bytes per second.
//
//   store_bench rates DIR KIND MIB THREADS CHUNK disk|store
//       every stage on data of a kind (bench_data.h), and the disk beside it; which comes first
//   store_bench streams DIR CHUNK LEVEL THREADS ROOT TASK/ID...
//       the images' streams, in order, into a new store and back
//   store_bench folders DIR CHUNK LEVEL PATH...
//       each folder (with CRIU's images, as the ghost does) as an image, in order, into a new store and back
//   store_bench weigh ROOT TASK/ID...
//       bytes of images without zeros, repetitions, redundancy
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/mapping.h"
#include "base/parallel.h"
#include "dedup/codec.h"
#include "dedup/image.h"
#include "dedup/keys.h"
#include "ghost/criu_pages.h"
#include "tests/bench/bench_data.h"

namespace stasis::bench {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

constexpr char kTask[] = "bench", kStream[] = "memory";
constexpr size_t kBlock = 4 << 20;
// A memory map of its own and far from zero, as device memory has it.
constexpr uint64_t kAddress = 0x7f0000000000;

Result<double> Seconds(const std::function<Status()>& work) {
  auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(work());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes per second of `work` over `bytes` bytes.
Status Rate(Json* out, const char* name, uint64_t bytes, const std::function<Status()>& work) {
  ASSIGN_OR_RETURN(double seconds, Seconds(work));
  (*out)[name] = static_cast<double>(bytes) / seconds;
  return Status();
}

// Out of the page cache, so that the next read is the disk's. Clean pages only: after a sync.
Status DropCache(const std::string& folder) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ASSIGN_OR_RETURN(Fd fd, OpenFile(entry.path(), O_RDONLY));
    if (fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "sync " + entry.path().string());
    if (int err = posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED); err != 0) {
      return ErrnoStatus(err, "drop the cache of " + entry.path().string());
    }
  }
  return Status();
}

Status RawWrite(const std::string& path, ConstBytes bytes) {
  ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC));
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    ConstBytes block = bytes.subspan(at, std::min(kBlock, bytes.size() - at));
    if (write(fd.get(), block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
      return ErrnoStatus(errno, "write " + path);
    }
  }
  if (fdatasync(fd.get()) != 0) return ErrnoStatus(errno, "sync " + path);
  return Status();
}

Status RawRead(const std::string& path, Bytes out) {
  ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDONLY));
  for (size_t at = 0; at < out.size(); at += kBlock) {
    RETURN_IF_ERROR(ReadAt(fd.get(), out.subspan(at, std::min(kBlock, out.size() - at)), at));
  }
  return Status();
}

Status SaveImage(std::shared_ptr<Store> store, const std::string& id, ConstBytes bytes, size_t threads,
                 ImageCounts* counts) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageWriter> image, ImageWriter::Create(std::move(store), kTask, id));
  RETURN_IF_ERROR(image->AddStream(kStream, {{kAddress, bytes.size()}}));
  const std::vector<Piece>& pieces = image->Layout(kStream).pieces();
  RETURN_IF_ERROR(ParallelFor(pieces.size(), threads, [&](size_t i, size_t) {
    return image->WritePiece(kStream, i, bytes.subspan(pieces[i].offset, pieces[i].size));
  }));
  RETURN_IF_ERROR(image->Commit(Json::object()));
  *counts = image->counts();
  return Status();
}

Status LoadImage(std::shared_ptr<Store> store, const std::string& id, Bytes out, size_t threads) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, ImageReader::Open(std::move(store), kTask, id));
  const std::vector<Piece>& pieces = image->Layout(kStream)->pieces();
  return ParallelFor(pieces.size(), threads, [&](size_t i, size_t) {
    return image->ReadPiece(kStream, i, out.subspan(pieces[i].offset, pieces[i].size));
  });
}

// The stages that touch no disk.
Status MemoryRates(ConstBytes bytes, Bytes copy, size_t chunk, size_t threads, Json* out) {
  size_t chunks = (bytes.size() + chunk - 1) / chunk;
  auto each = [&](const std::function<void(ConstBytes, size_t)>& work) {
    return [&, work] {
      return ParallelFor(chunks, threads, [&](size_t i, size_t) {
        work(bytes.subspan(i * chunk, std::min(chunk, bytes.size() - i * chunk)), i);
        return Status();
      });
    };
  };
  std::vector<Hash128> hashes(chunks);
  std::vector<uint64_t> sizes(chunks);
  RETURN_IF_ERROR(Rate(out, "memcpy", bytes.size(), each([&](ConstBytes part, size_t i) {
                         std::memcpy(copy.data() + i * chunk, part.data(), part.size());
                       })));
  RETURN_IF_ERROR(
      Rate(out, "hash", bytes.size(), each([&](ConstBytes part, size_t i) { hashes[i] = HashBytes(part); })));
  return Rate(out, "compress", bytes.size(),
              each([&](ConstBytes part, size_t i) { sizes[i] = EncodeChunk(part, 1).bytes.size(); }));
}

// Through a store of its own in `folder`, which goes again.
Status StoreRates(const std::string& folder, ConstBytes bytes, Bytes copy, StoreOptions options,
                  size_t threads, Json* out) {
  ImageCounts first, second;
  {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(folder, options));
    RETURN_IF_ERROR(
        Rate(out, "write", bytes.size(), [&] { return SaveImage(store, "000001", bytes, threads, &first); }));
    RETURN_IF_ERROR(Rate(out, "dedup", bytes.size(),
                         [&] { return SaveImage(store, "000002", bytes, threads, &second); }));
  }
  RETURN_IF_ERROR(DropCache(folder));
  {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(folder, options));
    RETURN_IF_ERROR(
        Rate(out, "read", bytes.size(), [&] { return LoadImage(store, "000001", copy, threads); }));
    (*out)["pack_bytes"] = store->counts().stored_bytes;
  }
  if (std::memcmp(copy.data(), bytes.data(), bytes.size()) != 0) {
    return Status(StatusCode::kCorrupt, "what was read is not what was written");
  }
  (*out)["bytes"] = bytes.size();
  (*out)["added_bytes"] = first.added_bytes;
  (*out)["added_again_bytes"] = second.added_bytes;
  return RemoveTree(folder);
}

Status RawRates(const std::string& folder, ConstBytes bytes, Bytes copy, Json* out) {
  RETURN_IF_ERROR(MakeFolders(folder));
  std::string path = folder + "/raw";
  RETURN_IF_ERROR(Rate(out, "raw_write", bytes.size(), [&] { return RawWrite(path, bytes); }));
  RETURN_IF_ERROR(DropCache(folder));
  RETURN_IF_ERROR(Rate(out, "raw_read", bytes.size(), [&] { return RawRead(path, copy); }));
  return RemoveTree(folder);
}

// The same, encrypted.
Status EncryptedRates(const std::string& folder, ConstBytes bytes, Bytes copy, StoreOptions options,
                      size_t threads, Json* out) {
  options.keys = folder;
  options.identity = folder + "/identity";
  RETURN_IF_ERROR(RemoveTree(folder));
  RETURN_IF_ERROR(MakeFolders(folder));
  const Identity identity = Identity::Generate();
  RETURN_IF_ERROR(identity.Write(options.identity));
  RETURN_IF_ERROR(WriteRecipients(folder, {&identity.public_key(), 1}));
  RETURN_IF_ERROR(StoreRates(folder + "/store", bytes, copy, options, threads, out));
  return RemoveTree(folder);
}

struct Memory {
  Mapping bytes, copy;
};
Result<Memory> Reserve(uint64_t size) {
  Memory memory;
  ASSIGN_OR_RETURN(memory.bytes, Mapping::Anonymous(size));
  ASSIGN_OR_RETURN(memory.copy, Mapping::Anonymous(size));
  // Page faults are not what is measured.
  std::memset(memory.copy.bytes(), 1, size);
  return memory;
}

Status Rates(const std::vector<std::string>& words, Json* out) {
  const std::string& folder = words[0];
  uint64_t size = std::strtoull(words[2].c_str(), nullptr, 10) << 20;
  size_t threads = std::strtoull(words[3].c_str(), nullptr, 10);
  StoreOptions options;
  options.chunk_bytes = std::strtoull(words[4].c_str(), nullptr, 10);
  ASSIGN_OR_RETURN(Memory memory, Reserve(size));
  Bytes bytes(memory.bytes.bytes(), size), copy(memory.copy.bytes(), size);
  if (!Fill(words[1], 1, bytes)) return Status(StatusCode::kInvalidArgument, "no such data: " + words[1]);
  RETURN_IF_ERROR(MemoryRates(bytes, copy, options.chunk_bytes, threads, out));
  // Who comes second meets what the first has left behind in the disk.
  bool store_first = words[5] == "store";
  if (store_first) RETURN_IF_ERROR(StoreRates(folder + "/store", bytes, copy, options, threads, out));
  RETURN_IF_ERROR(RawRates(folder + "/raw", bytes, copy, out));
  if (!store_first) RETURN_IF_ERROR(StoreRates(folder + "/store", bytes, copy, options, threads, out));
  return EncryptedRates(folder + "/sealed", bytes, copy, options, threads, &(*out)["encrypted"]);
}

// An image's streams in memory.
struct LoadedStream {
  std::string name;
  std::vector<Segment> segments;
  Mapping bytes;
};
using LoadedImage = std::vector<LoadedStream>;

Result<LoadedImage> LoadStreams(std::shared_ptr<Store> store, const std::string& task,
                                const std::string& id) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, ImageReader::Open(std::move(store), task, id));
  LoadedImage loaded;
  for (const std::string& name : image->streams()) {
    const StreamLayout& layout = *image->Layout(name);
    LoadedStream stream{name, layout.segments(), {}};
    ASSIGN_OR_RETURN(stream.bytes, Mapping::Anonymous(layout.size()));
    for (size_t i = 0; i < layout.pieces().size(); ++i) {
      const Piece& piece = layout.pieces()[i];
      RETURN_IF_ERROR(image->ReadPiece(name, i, Bytes(stream.bytes.bytes() + piece.offset, piece.size)));
    }
    loaded.push_back(std::move(stream));
  }
  return loaded;
}

Status SaveStreams(const LoadedImage& loaded, ImageWriter& image, size_t threads) {
  for (const LoadedStream& stream : loaded) {
    RETURN_IF_ERROR(image.AddStream(stream.name, stream.segments));
    const std::vector<Piece>& pieces = image.Layout(stream.name).pieces();
    RETURN_IF_ERROR(ParallelFor(pieces.size(), threads, [&](size_t i, size_t) {
      return image.WritePiece(stream.name, i,
                              ConstBytes(stream.bytes.bytes() + pieces[i].offset, pieces[i].size));
    }));
  }
  return Status();
}

std::string IdOf(size_t index) {
  char text[24];
  std::snprintf(text, sizeof text, "%06zu", index + 1);
  return text;
}

// Saves the i-th of some images.
using SaveOne = std::function<Status(size_t, ImageWriter&)>;

Status SaveAll(std::shared_ptr<Store> store, size_t count, const SaveOne& save, uint64_t* bytes,
               Json* added) {
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<ImageWriter> image, ImageWriter::Create(store, kTask, IdOf(i)));
    RETURN_IF_ERROR(save(i, *image));
    RETURN_IF_ERROR(image->Commit(Json::object()));
    *bytes += image->counts().bytes;
    added->push_back(image->counts().added_bytes);
  }
  return Status();
}

Status ReadAll(std::shared_ptr<Store> store, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, ImageReader::Open(store, kTask, IdOf(i)));
    RETURN_IF_ERROR(image->VerifyAll());
  }
  return Status();
}

// `count` images, one after another, into a new store; then all of them are read.
Status SaveAndRead(const std::string& folder, StoreOptions options, size_t count, const SaveOne& save,
                   Json* out) {
  uint64_t bytes = 0;
  Json added = Json::array();
  {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(folder, options));
    ASSIGN_OR_RETURN(double seconds, Seconds([&] { return SaveAll(store, count, save, &bytes, &added); }));
    (*out)["write"] = static_cast<double>(bytes) / seconds;
    (*out)["stored_bytes"] = store->counts().stored_bytes;
  }
  RETURN_IF_ERROR(DropCache(folder));
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(folder, options));
  RETURN_IF_ERROR(Rate(out, "read", bytes, [&] { return ReadAll(store, count); }));
  (*out)["bytes"] = bytes;
  (*out)["added"] = std::move(added);
  return RemoveTree(folder);
}

StoreOptions OptionsOf(const std::string& chunk, const std::string& level) {
  StoreOptions options;
  options.chunk_bytes = std::strtoull(chunk.c_str(), nullptr, 10);
  options.zstd_level = std::atoi(level.c_str());
  return options;
}

std::pair<std::string, std::string> TaskAndId(const std::string& text) {
  size_t slash = text.find('/');
  return {text.substr(0, slash), slash == std::string::npos ? "" : text.substr(slash + 1)};
}

Status Streams(const std::vector<std::string>& words, Json* out) {
  std::vector<LoadedImage> images;
  {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(words[4]));
    for (size_t i = 5; i < words.size(); ++i) {
      auto [task, id] = TaskAndId(words[i]);
      ASSIGN_OR_RETURN(LoadedImage image, LoadStreams(store, task, id));
      images.push_back(std::move(image));
    }
  }
  size_t threads = std::strtoull(words[3].c_str(), nullptr, 10);
  return SaveAndRead(
      words[0] + "/store", OptionsOf(words[1], words[2]), images.size(),
      [&](size_t i, ImageWriter& image) { return SaveStreams(images[i], image, threads); }, out);
}

Status Folders(const std::vector<std::string>& words, Json* out) {
  return SaveAndRead(
      words[0] + "/store", OptionsOf(words[1], words[2]), words.size() - 3,
      [&](size_t i, ImageWriter& image) {
        CriuPages pages(words[3 + i]);
        return image.AddFolder("folder", words[3 + i],
                               [&](const std::string& file, uint64_t size) { return pages.Of(file, size); });
      },
      out);
}

// What is left of chunks by leaving out zeros, repetitions, redundancy, and all of them.
struct Weights {
  uint64_t raw = 0, zero = 0, unique = 0, compressed = 0, both = 0;
};

Status Weigh(Store& store, const ImageReader& image, std::unordered_map<std::string, bool>* seen,
             Weights* sum) {
  std::vector<ChunkRef> chunks = image.Chunks();
  std::vector<Hash128> hashes;
  for (const ChunkRef& chunk : chunks) {
    if (chunk.hash != kZeroChunk) hashes.push_back(chunk.hash);
  }
  for (const ChunkRef& chunk : chunks) {
    sum->raw += chunk.size;
    if (chunk.hash == kZeroChunk) {
      sum->zero += chunk.size;
      continue;
    }
    uint64_t stored = store.StoredBytes(chunk.hash);
    sum->compressed += stored;
    if (!seen->emplace(HashText(chunk.hash), true).second) continue;
    sum->unique += chunk.size;
    sum->both += stored;
  }
  return Status();
}

Status WeighImages(const std::vector<std::string>& words, Json* out) {
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(words[0]));
  std::unordered_map<std::string, bool> seen;
  Weights sum;
  for (size_t i = 1; i < words.size(); ++i) {
    auto [task, id] = TaskAndId(words[i]);
    ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, ImageReader::Open(store, task, id));
    RETURN_IF_ERROR(Weigh(*store, *image, &seen, &sum));
  }
  *out = {{"raw", sum.raw},
          {"zero", sum.zero},
          {"unique", sum.unique},
          {"compressed", sum.compressed},
          {"both", sum.both}};
  return Status();
}

struct Command {
  const char* name;
  size_t least, most;  // words
  Status (*run)(const std::vector<std::string>&, Json*);
};
constexpr Command kCommands[] = {{"rates", 6, 6, Rates},
                                 {"streams", 6, SIZE_MAX, Streams},
                                 {"folders", 4, SIZE_MAX, Folders},
                                 {"weigh", 2, SIZE_MAX, WeighImages}};

int Main(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  for (const Command& command : kCommands) {
    if (argc < 2 || std::string(argv[1]) != command.name) continue;
    if (words.size() < command.least || words.size() > command.most) break;
    Json out = Json::object();
    Status status = command.run(words, &out);
    if (!status.ok()) {
      std::fprintf(stderr, "store_bench: %s\n", status.ToString().c_str());
      return 1;
    }
    std::printf("%s\n", JsonText(out).c_str());
    return 0;
  }
  std::fprintf(stderr, "usage: see the head of store_bench.cc\n");
  return 2;
}

}  // namespace
}  // namespace stasis::bench

int main(int argc, char** argv) { return stasis::bench::Main(argc, argv); }

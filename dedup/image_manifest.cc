#include "dedup/image_manifest.h"

#include <limits.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <tuple>

#include "base/files.h"
#include "base/payload.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

static_assert(std::endian::native == std::endian::little, "PayloadWriter writes in host byte order");

constexpr uint64_t kMagic = 0x0a676d4973697453;  // "StisImg\n"
constexpr size_t kVersionOffset = 8;
constexpr size_t kSizeOffset = 16;
constexpr size_t kHeaderBytes = 24;
constexpr size_t kSumBytes = 16;
constexpr uint64_t kMinChunkBytes = 4 << 10;
// The least that an element of a list takes: names have a letter at least.
constexpr size_t kSegmentBytes = 16;
constexpr size_t kHashBytes = 16;
constexpr size_t kStreamBytes = 5 + 4 + 4;
constexpr size_t kFolderBytes = 5 + 4;

void WriteHash(const Hash128& hash, PayloadWriter* out) {
  out->U64(hash.high);
  out->U64(hash.low);
}

void WriteStream(const ManifestStream& stream, PayloadWriter* out) {
  out->String(stream.name);
  out->U32(static_cast<uint32_t>(stream.segments.size()));
  for (const Segment& segment : stream.segments) {
    out->U64(segment.address);
    out->U64(segment.size);
  }
  out->U32(static_cast<uint32_t>(stream.chunks.size()));
  for (const Hash128& hash : stream.chunks) WriteHash(hash, out);
}

void WriteStreams(const std::vector<ManifestStream>& streams, PayloadWriter* out) {
  out->U32(static_cast<uint32_t>(streams.size()));
  for (const ManifestStream& stream : streams) WriteStream(stream, out);
}

std::vector<std::byte> Body(const ImageManifest& manifest, const std::string& meta) {
  PayloadWriter out;
  out.String(manifest.task);
  out.String(manifest.id);
  WriteStreams(manifest.streams, &out);
  out.U32(static_cast<uint32_t>(manifest.folders.size()));
  for (const ManifestFolder& folder : manifest.folders) {
    out.String(folder.name);
    WriteStreams(folder.files, &out);
  }
  out.String(meta);
  return out.Take();
}

// Reads the fields between the header and the sum. The first error stays.
class BodyParser {
 public:
  // `body` begins `offset` bytes into `file`.
  BodyParser(const std::string& file, std::span<const std::byte> body, size_t offset)
      : file_(file), reader_(body), end_(offset + body.size()), mark_(offset) {}

  Status Parse(ImageManifest* manifest) {
    chunk_bytes_ = manifest->chunk_bytes;
    manifest->task = Name("task");
    manifest->id = Name("id");
    Require(IsImageName(manifest->id), "an id that is not six digits");
    manifest->streams = Streams("stream");
    Folders(manifest);
    Meta(manifest);
    Require(reader_.remaining() == 0, "bytes left over after the last field");
    return status_;
  }

 private:
  // The field that begins here is what the next Require() is about.
  void Mark() { mark_ = end_ - reader_.remaining(); }

  void Require(bool good, const std::string& otherwise) {
    if (!status_.ok()) return;
    if (!reader_.ok()) status_ = CorruptAt(file_, mark_, "a field is longer than the file");
    if (reader_.ok() && !good) status_ = CorruptAt(file_, mark_, otherwise);
  }

  std::string Name(const std::string& what) {
    Mark();
    std::string name = reader_.String(NAME_MAX);
    Require(IsPlainName(name), "a name of a " + what + " that is none");
    return name;
  }

  uint32_t Count(size_t element_size) {
    Mark();
    uint32_t count = reader_.Count(element_size);
    Require(true, "");
    return status_.ok() ? count : 0;
  }

  void Segments(ManifestStream* stream) {
    uint32_t count = Count(kSegmentBytes);
    stream->segments.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t address = reader_.U64();
      stream->segments.push_back({address, reader_.U64()});
    }
  }

  void Chunks(ManifestStream* stream) {
    std::optional<uint64_t> expected = StreamLayout::CountChunks(stream->segments, chunk_bytes_);
    Require(expected.has_value(), "segments of '" + stream->name + "' that cannot be");
    uint32_t count = Count(kHashBytes);
    Require(count == expected, "the number of chunks of '" + stream->name + "' does not fit its segments");
    if (!status_.ok()) return;
    stream->chunks.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t high = reader_.U64();
      stream->chunks.push_back({high, reader_.U64()});
    }
  }

  std::vector<ManifestStream> Streams(const std::string& what) {
    std::vector<ManifestStream> streams;
    uint32_t count = Count(kStreamBytes);
    for (uint32_t i = 0; i < count && status_.ok(); ++i) {
      ManifestStream stream;
      stream.name = Name(what);
      Require(streams.empty() || streams.back().name < stream.name,
              "the name '" + stream.name + "' is not in its order");
      Segments(&stream);
      Chunks(&stream);
      streams.push_back(std::move(stream));
    }
    return streams;
  }

  void Folders(ImageManifest* manifest) {
    uint32_t count = Count(kFolderBytes);
    for (uint32_t i = 0; i < count && status_.ok(); ++i) {
      ManifestFolder folder;
      folder.name = Name("folder");
      Require(manifest->folders.empty() || manifest->folders.back().name < folder.name,
              "the name '" + folder.name + "' is not in its order");
      folder.files = Streams("file");
      manifest->folders.push_back(std::move(folder));
    }
  }

  void Meta(ImageManifest* manifest) {
    Mark();
    std::string text = reader_.String(kMaxMetaBytes);
    Require(true, "");
    if (!status_.ok()) return;
    Result<Json> meta = ParseJsonObject(text);
    if (!meta.ok()) status_ = CorruptAt(file_, mark_, "meta: " + std::string(meta.status().message()));
    if (meta.ok()) manifest->meta = *std::move(meta);
  }

  const std::string& file_;
  PayloadReader reader_;
  const size_t end_;
  size_t mark_;
  uint64_t chunk_bytes_ = 0;
  Status status_;
};

Status CheckSum(const std::string& file, std::span<const std::byte> bytes) {
  size_t covered = bytes.size() - kSumBytes;
  PayloadReader reader(bytes.subspan(covered));
  Hash128 sum;
  sum.high = reader.U64();
  sum.low = reader.U64();
  if (HashBytes(bytes.first(covered)) == sum) return Status();
  std::string what =
      "bytes 0 to " + std::to_string(covered - 1) + " do not have the checksum that follows them";
  return CorruptAt(file, 0, what);
}

bool IsChunkSize(uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kMinChunkBytes && bytes <= kMaxChunkBytes;
}

}  // namespace

// As far as the versions agree.
Result<uint32_t> CheckManifestEnvelope(std::span<const std::byte> bytes, const std::string& file) {
  PayloadReader reader(bytes);
  uint64_t magic = reader.U64();
  uint32_t version = reader.U32();
  if (!reader.ok() || magic != kMagic) return CorruptAt(file, 0, "this is no image's manifest");
  if (bytes.size() < kHeaderBytes + kSumBytes)
    return CorruptAt(file, bytes.size(), "the file ends too early");
  reader.U32();
  uint64_t size = reader.U64();
  const bool known = version == kImageVersion || version == kSealedImageVersion;
  if (known && size != bytes.size()) {
    std::string what =
        "the file has " + std::to_string(bytes.size()) + " bytes instead of " + std::to_string(size);
    return CorruptAt(file, kSizeOffset, what);
  }
  RETURN_IF_ERROR(CheckSum(file, bytes));
  if (known) return version;
  return Errorf(StatusCode::kUnsupported,
                "%s has image format version %u, this program reads versions %u and %u", file.c_str(),
                version, kImageVersion, kSealedImageVersion);
}

bool IsImageId(const std::string& text) {
  return text.size() == 6 && text.find_first_not_of("0123456789") == std::string::npos;
}

bool IsImageName(const std::string& text) { return IsImageId(text) || text == kHeldImage; }

Result<std::string> ManifestPath(const std::string& root, const std::string& task, const std::string& id) {
  if (!IsPlainName(task)) return Status(StatusCode::kInvalidArgument, "'" + task + "' is no task's name");
  if (!IsImageName(id))
    return Status(StatusCode::kInvalidArgument, "'" + id + "' is no image id: six digits");
  return root + "/images/" + task + "/" + id + ".image";
}

Result<std::vector<std::byte>> SerializeImageManifest(const ImageManifest& manifest) {
  STASIS_CHECK(IsChunkSize(manifest.chunk_bytes));
  std::string meta = JsonText(manifest.meta);
  if (meta.size() > kMaxMetaBytes)
    return Status(StatusCode::kInvalidArgument, "the image's meta is too large");
  RETURN_IF_ERROR(ParseJsonObject(meta).status().WithContext("the image's meta"));
  std::vector<std::byte> body = Body(manifest, meta);
  uint64_t size = kHeaderBytes + body.size() + kSumBytes;
  if (size > kMaxManifestBytes) return Status(StatusCode::kInvalidArgument, "the image has too many chunks");
  PayloadWriter header;
  header.U64(kMagic);
  header.U32(kImageVersion);
  header.U32(static_cast<uint32_t>(manifest.chunk_bytes));
  header.U64(size);
  std::vector<std::byte> bytes = header.Take();
  bytes.reserve(size);
  bytes.insert(bytes.end(), body.begin(), body.end());
  PayloadWriter sum;
  WriteHash(HashBytes(bytes), &sum);
  std::vector<std::byte> tail = sum.Take();
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return bytes;
}

Result<ImageManifest> ParseImageManifest(std::span<const std::byte> bytes, const std::string& file) {
  ASSIGN_OR_RETURN(uint32_t version, CheckManifestEnvelope(bytes, file));
  if (version != kImageVersion) return Status(StatusCode::kPermissionDenied, file + " is encrypted");
  constexpr size_t kChunkSizeOffset = kVersionOffset + 4;
  ImageManifest manifest;
  manifest.file_bytes = bytes.size();
  manifest.chunk_bytes = PayloadReader(bytes.subspan(kChunkSizeOffset)).U32();
  if (!IsChunkSize(manifest.chunk_bytes))
    return CorruptAt(file, kChunkSizeOffset, "a chunk size that cannot be");
  std::span<const std::byte> body = bytes.subspan(kHeaderBytes, bytes.size() - kHeaderBytes - kSumBytes);
  RETURN_IF_ERROR(BodyParser(file, body, kHeaderBytes).Parse(&manifest));
  return manifest;
}

void VisitChunks(const ImageManifest& manifest, const std::function<void(const ChunkRef&)>& visit) {
  auto visit_stream = [&](const ManifestStream& stream) {
    StreamLayout layout(stream.segments, manifest.chunk_bytes);
    for (size_t i = 0; i < stream.chunks.size(); ++i) {
      visit({stream.chunks[i], static_cast<uint32_t>(layout.ChunkSize(i))});
    }
  };
  for (const ManifestStream& stream : manifest.streams) visit_stream(stream);
  for (const ManifestFolder& folder : manifest.folders) {
    for (const ManifestStream& file : folder.files) visit_stream(file);
  }
}

// By sorting, not by a hash table: who wrote the manifest chose the hashes, and could make them collide
// there.
Result<std::vector<ChunkRef>> DistinctChunks(const ImageManifest& manifest) {
  struct Use {
    ChunkRef chunk;
    size_t order;
  };
  std::vector<Use> uses;
  VisitChunks(manifest, [&](const ChunkRef& chunk) {
    if (chunk.hash != kZeroChunk) uses.push_back({chunk, uses.size()});
  });
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    return std::tie(a.chunk.hash.high, a.chunk.hash.low, a.order) <
           std::tie(b.chunk.hash.high, b.chunk.hash.low, b.order);
  });
  std::vector<Use> first;
  for (const Use& use : uses) {
    if (first.empty() || first.back().chunk.hash != use.chunk.hash) {
      first.push_back(use);
    } else if (first.back().chunk.size != use.chunk.size) {
      return Status(StatusCode::kCorrupt, "chunk " + HashText(use.chunk.hash) + " has two sizes");
    }
  }
  std::sort(first.begin(), first.end(), [](const Use& a, const Use& b) { return a.order < b.order; });
  std::vector<ChunkRef> chunks;
  chunks.reserve(first.size());
  for (const Use& use : first) chunks.push_back(use.chunk);
  return chunks;
}

uint64_t TotalSize(std::span<const ChunkRef> chunks) {
  uint64_t size = 0;
  for (const ChunkRef& chunk : chunks) size += chunk.size;
  return size;
}

std::vector<std::span<const ChunkRef>> CutIntoBatches(std::span<const ChunkRef> chunks, uint64_t bytes) {
  std::vector<std::span<const ChunkRef>> batches;
  size_t first = 0;
  uint64_t size = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i > first && size + chunks[i].size > bytes) {
      batches.push_back(chunks.subspan(first, i - first));
      first = i;
      size = 0;
    }
    size += chunks[i].size;
  }
  if (first < chunks.size()) batches.push_back(chunks.subspan(first));
  return batches;
}

}  // namespace stasis

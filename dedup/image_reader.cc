#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/parallel.h"
#include "dedup/image.h"
#include "dedup/image_folder.h"
#include "dedup/image_manifest.h"

namespace stasis {
namespace {

// A stream or a file, with where its chunks end.
struct Content {
  const ManifestStream* source = nullptr;
  StreamLayout layout;
};
using Contents = std::map<std::string, Content>;

Contents LayOut(const std::vector<ManifestStream>& streams, uint64_t chunk_bytes) {
  Contents contents;
  for (const ManifestStream& stream : streams) {
    contents[stream.name] = {&stream, StreamLayout(stream.segments, chunk_bytes)};
  }
  return contents;
}

// What of a piece is to be fetched; the rest becomes zero.
std::vector<StoreReader::Piece> Wanted(const Content& content, const Piece& piece, std::span<std::byte> out) {
  std::vector<StoreReader::Piece> wanted;
  for (size_t chunk = piece.first_chunk; chunk < piece.first_chunk + piece.chunks; ++chunk) {
    std::span<std::byte> part =
        out.subspan(content.layout.ChunkOffset(chunk) - piece.offset, content.layout.ChunkSize(chunk));
    if (content.source->chunks[chunk] == kZeroChunk) {
      std::memset(part.data(), 0, part.size());
    } else {
      wanted.push_back({content.source->chunks[chunk], part});
    }
  }
  return wanted;
}

// A chunk that no pack has was in one that opening the store found damaged, most likely.
Status WithNotes(const Status& status, const Store& store) {
  if (status.code() != StatusCode::kCorrupt) return status;
  std::string text(status.message());
  for (const std::string& note : store.notes()) text += "; " + note;
  return Status(StatusCode::kCorrupt, text);
}

}  // namespace

struct ImageReader::State {
  ImageManifest manifest;
  Contents streams;
  std::map<std::string, Contents> folders;
  std::vector<ChunkRef> distinct;
  std::unique_ptr<StoreReader> chunks;
  ImageCounts counts;

  std::string Name() const { return "image " + manifest.task + "/" + manifest.id; }

  // Reads the manifest and keeps what it names.
  Status Pin(const std::shared_ptr<Store>& store, const std::string& path) {
    ASSIGN_OR_RETURN(manifest, ReadImageManifest(store->files(), path, store->keyring()));
    Result<std::vector<ChunkRef>> chunks_of = DistinctChunks(manifest);
    if (!chunks_of.ok()) return std::move(chunks_of).status().WithContext(path);
    distinct = *std::move(chunks_of);
    std::vector<Hash128> hashes;
    for (const ChunkRef& chunk : distinct) hashes.push_back(chunk.hash);
    Result<std::unique_ptr<StoreReader>> reader = StoreReader::Begin(store, hashes, manifest.names);
    if (!reader.ok()) return WithNotes(reader.status(), *store).WithContext(Name());
    chunks = *std::move(reader);
    return Status();
  }

  void Count() {
    counts.manifest_bytes = manifest.file_bytes;
    VisitChunks(manifest, [&](const ChunkRef& chunk) {
      counts.bytes += chunk.size;
      if (chunk.hash == kZeroChunk) counts.zero_bytes += chunk.size;
    });
    for (const ChunkRef& chunk : distinct) counts.unique_bytes += chunk.size;
  }

  Status Read(const Content& content, const Piece& piece, std::span<std::byte> out) const {
    std::vector<StoreReader::Piece> wanted = Wanted(content, piece, out);
    if (wanted.empty()) return Status();
    return chunks->Read(wanted).WithContext(Name());
  }

  // Zeros stay holes.
  Status Extract(const TargetFolder& target, const std::string& name, const Content& content,
                 const Piece& piece, std::span<std::byte> buffer) const {
    RETURN_IF_ERROR(Read(content, piece, buffer));
    if (AllZero(buffer)) return Status();
    return target.Write(name, buffer, piece.offset);
  }
};

ImageReader::ImageReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
ImageReader::~ImageReader() = default;

Result<std::unique_ptr<ImageReader>> ImageReader::Open(std::shared_ptr<Store> store, const std::string& task,
                                                       const std::string& id) {
  ASSIGN_OR_RETURN(std::string path, ManifestPath(store->root(), task, id));
  auto state = std::make_unique<State>();
  Status pinned = state->Pin(store, path);
  // It may have been removed, and collected, a moment ago.
  if (!pinned.ok() && !store->files().Exists(path)) {
    return Status(StatusCode::kNotFound, "there is no image " + task + "/" + id);
  }
  if (!pinned.ok()) return pinned;
  if (state->manifest.task != task || state->manifest.id != id) {
    return Status(StatusCode::kCorrupt, path + ": it says that it is " + state->Name());
  }
  state->streams = LayOut(state->manifest.streams, state->manifest.chunk_bytes);
  for (const ManifestFolder& folder : state->manifest.folders) {
    state->folders[folder.name] = LayOut(folder.files, state->manifest.chunk_bytes);
  }
  state->Count();
  return std::unique_ptr<ImageReader>(new ImageReader(std::move(state)));
}

const std::string& ImageReader::task() const { return state_->manifest.task; }
const std::string& ImageReader::id() const { return state_->manifest.id; }
const Json& ImageReader::meta() const { return state_->manifest.meta; }
ImageCounts ImageReader::counts() const { return state_->counts; }

std::vector<std::string> ImageReader::streams() const {
  std::vector<std::string> names;
  for (const auto& [name, content] : state_->streams) names.push_back(name);
  return names;
}

std::vector<std::string> ImageReader::folders() const {
  std::vector<std::string> names;
  for (const auto& [name, files] : state_->folders) names.push_back(name);
  return names;
}

std::vector<ImageFile> ImageReader::FolderFiles(const std::string& name) const {
  std::vector<ImageFile> files;
  auto found = state_->folders.find(name);
  if (found == state_->folders.end()) return files;
  for (const auto& [file, content] : found->second) files.push_back({file, content.layout.size()});
  return files;
}

const StreamLayout* ImageReader::Layout(const std::string& name) const {
  auto found = state_->streams.find(name);
  return found == state_->streams.end() ? nullptr : &found->second.layout;
}

Status ImageReader::ReadPiece(const std::string& name, size_t piece, std::span<std::byte> out) const {
  auto found = state_->streams.find(name);
  if (found == state_->streams.end() || piece >= found->second.layout.pieces().size() ||
      out.size() != found->second.layout.pieces()[piece].size) {
    return Status(StatusCode::kInvalidArgument, "there is no such piece of a stream '" + name + "'");
  }
  return state_->Read(found->second, found->second.layout.pieces()[piece], out);
}

Status ImageReader::ReadRun(const std::string& name, size_t first, size_t count,
                            std::span<std::byte> out) const {
  auto found = state_->streams.find(name);
  size_t all = found == state_->streams.end() ? 0 : found->second.layout.chunk_count();
  if (count == 0 || count > all || first > all - count) {
    return Status(StatusCode::kInvalidArgument, "there are no such chunks of a stream '" + name + "'");
  }
  const StreamLayout& layout = found->second.layout;
  Piece run{layout.ChunkOffset(first), 0, first, count};
  run.size = layout.ChunkOffset(first + count - 1) + layout.ChunkSize(first + count - 1) - run.offset;
  if (out.size() != run.size) return Status(StatusCode::kInvalidArgument, "not the size of the chunks");
  return state_->Read(found->second, run, out);
}

Status ImageReader::ExtractFolder(const std::string& name, const std::string& path) const {
  auto found = state_->folders.find(name);
  if (found == state_->folders.end()) {
    return Status(StatusCode::kNotFound, state_->Name() + " has no folder '" + name + "'");
  }
  ASSIGN_OR_RETURN(TargetFolder target, TargetFolder::Open(path));
  std::vector<const Contents::value_type*> files;
  std::vector<FilePiece> pieces;
  for (const Contents::value_type& file : found->second) {
    RETURN_IF_ERROR(target.Create(file.first, file.second.layout.size()));
    AppendPieces(files.size(), file.second.layout, &pieces);
    files.push_back(&file);
  }
  std::vector<std::vector<std::byte>> buffers(CopyThreads());
  return ParallelFor(pieces.size(), buffers.size(), [&](size_t i, size_t worker) {
    const auto& [file, content] = *files[pieces[i].file];
    buffers[worker].resize(pieces[i].piece.size);
    return state_->Extract(target, file, content, pieces[i].piece, buffers[worker]);
  });
}

Status ImageReader::ReadChunks(std::span<const ChunkRef> chunks, std::span<std::byte> out) const {
  std::vector<StoreReader::Piece> pieces;
  for (const ChunkRef& chunk : chunks) {
    if (chunk.size > out.size()) return Status(StatusCode::kInvalidArgument, "more chunks than room");
    pieces.push_back({chunk.hash, out.first(chunk.size)});
    out = out.subspan(chunk.size);
  }
  return state_->chunks->Read(pieces).WithContext(state_->Name());
}

Status ImageReader::VerifyAll(const std::function<void(uint64_t, uint64_t)>& progress) const {
  std::vector<std::span<const ChunkRef>> batches = CutIntoBatches(state_->distinct, kPieceBytes);
  std::vector<std::vector<std::byte>> buffers(CopyThreads());
  std::mutex mutex;
  uint64_t done = 0;  // guarded by mutex
  return ParallelFor(batches.size(), buffers.size(), [&](size_t i, size_t worker) {
    buffers[worker].resize(TotalSize(batches[i]));
    RETURN_IF_ERROR(ReadChunks(batches[i], buffers[worker]));
    std::lock_guard lock(mutex);
    done += buffers[worker].size();
    if (progress) progress(done, state_->counts.unique_bytes);
    return Status();
  });
}

const std::vector<ChunkRef>& ImageReader::distinct_chunks() const { return state_->distinct; }
const ImageManifest& ImageReader::manifest() const { return state_->manifest; }

std::vector<ChunkRef> ImageReader::Chunks() const {
  std::vector<ChunkRef> chunks;
  VisitChunks(state_->manifest, [&](const ChunkRef& chunk) { chunks.push_back(chunk); });
  return chunks;
}

}  // namespace stasis

#include <atomic>
#include <mutex>
#include <unordered_set>

#include "base/files.h"
#include "dedup/image.h"
#include "dedup/image_folder.h"
#include "dedup/image_manifest.h"
#include "dedup/image_slot.h"
#include "dedup/live_chunks.h"

namespace stasis {
namespace {

// A chunk of a stream on its way. A piece that failed half way leaves kTaken behind, and so no commit.
enum class ChunkState : uint8_t { kMissing, kTaken, kWanted, kGiven };

using HashSet = std::unordered_set<Hash128, HashLowBits>;

struct StreamState {
  explicit StreamState(StreamLayout of)
      : layout(std::move(of)), hashes(layout.chunk_count()), states(layout.chunk_count()) {}

  Status Take(size_t chunk, ChunkState from) {
    if (states[chunk].compare_exchange_strong(from, ChunkState::kTaken)) return Status();
    return Status(StatusCode::kInvalidArgument, "chunk " + std::to_string(chunk) + " is not expected");
  }
  bool Complete() const {
    for (const std::atomic<ChunkState>& state : states) {
      if (state != ChunkState::kGiven) return false;
    }
    return true;
  }

  const StreamLayout layout;
  // Each element belongs to who has made its state kTaken.
  std::vector<Hash128> hashes;
  std::vector<std::atomic<ChunkState>> states;
};

using Streams = std::map<std::string, std::unique_ptr<StreamState>>;

Status CheckStream(const std::string& name, std::span<const Segment> segments, uint64_t chunk_bytes) {
  if (!IsPlainName(name)) return Status(StatusCode::kInvalidArgument, "'" + name + "' is no plain name");
  std::optional<uint64_t> chunks = StreamLayout::CountChunks(segments, chunk_bytes);
  if (chunks && *chunks <= UINT32_MAX && segments.size() <= UINT32_MAX) return Status();
  return Status(StatusCode::kInvalidArgument, "'" + name + "' has segments that cannot be");
}

}  // namespace

struct ImageWriter::State {
  std::shared_ptr<Store> store;
  std::string task, id;
  std::unique_ptr<ImageSlot> slot;
  std::unique_ptr<StoreWriter> chunks;
  mutable std::mutex mutex;
  Streams streams;                         // guarded by mutex; a stream stays where it is
  std::map<std::string, Streams> folders;  // the same
  ChunkClaim claim;                        // set before there is anything to write
  // Met, and not in the store then: a second one of the same content need not be brought. Guarded by mutex.
  HashSet promised;
  HashSet others;  // of these, what other writers bring; guarded by mutex
  std::atomic<uint64_t> bytes{0}, zero_bytes{0}, unique_bytes{0}, others_bytes{0}, manifest_bytes{0};
  bool prepared = false, committed = false;

  uint64_t chunk_bytes() const { return store->options().chunk_bytes; }

  Status Add(Streams* streams_of, const std::string& name, std::vector<Segment> segments) {
    RETURN_IF_ERROR(CheckStream(name, segments, chunk_bytes()));
    auto stream = std::make_unique<StreamState>(StreamLayout(std::move(segments), chunk_bytes()));
    std::lock_guard lock(mutex);
    if (streams_of->emplace(name, std::move(stream)).second) return Status();
    return Status(StatusCode::kInvalidArgument, "'" + name + "' was added before");
  }

  StreamState* Find(const std::string& name) const {
    std::lock_guard lock(mutex);
    auto found = streams.find(name);
    return found == streams.end() ? nullptr : found->second.get();
  }

  Result<std::pair<StreamState*, Piece>> FindPiece(const std::string& name, size_t piece) const {
    StreamState* stream = Find(name);
    if (stream && piece < stream->layout.pieces().size())
      return std::pair(stream, stream->layout.pieces()[piece]);
    return Errorf(StatusCode::kInvalidArgument, "there is no piece %zu of a stream '%s'", piece,
                  name.c_str());
  }

  void Given(StreamState* stream, size_t chunk, const Hash128& hash) {
    uint64_t size = stream->layout.ChunkSize(chunk);
    bytes += size;
    if (hash == kZeroChunk) zero_bytes += size;
    stream->hashes[chunk] = hash;
    stream->states[chunk] = ChunkState::kGiven;
  }

  Status PutPiece(StreamState* stream, const Piece& piece, std::span<const std::byte> raw) {
    if (raw.size() != piece.size) return Status(StatusCode::kInvalidArgument, "not the size of the piece");
    auto bytes_of = [&](size_t i) {
      size_t chunk = piece.first_chunk + i;
      return raw.subspan(stream->layout.ChunkOffset(chunk) - piece.offset, stream->layout.ChunkSize(chunk));
    };
    std::vector<Hash128> hashes(piece.chunks, kZeroChunk);
    for (size_t i = 0; i < piece.chunks; ++i) {
      RETURN_IF_ERROR(stream->Take(piece.first_chunk + i, ChunkState::kMissing));
      if (!AllZero(bytes_of(i))) hashes[i] = HashBytes(bytes_of(i));
    }
    ASSIGN_OR_RETURN(std::vector<bool> wanted, Wanted(hashes));
    for (size_t i = 0; i < piece.chunks; ++i) {
      if (wanted[i]) RETURN_IF_ERROR(chunks->Put(hashes[i], bytes_of(i)));
      Given(stream, piece.first_chunk + i, hashes[i]);
    }
    return Status();
  }

  // Of each chunk whether its bytes are to be brought here.
  Result<std::vector<bool>> Wanted(std::span<const Hash128> hashes) {
    std::vector<bool> wanted(hashes.size());
    std::vector<Hash128> asked;
    std::vector<size_t> places;
    for (size_t i = 0; i < hashes.size(); ++i) {
      if (hashes[i] == kZeroChunk) continue;
      ASSIGN_OR_RETURN(bool known, chunks->Has(hashes[i]));
      if (known) continue;
      std::lock_guard lock(mutex);
      if (!promised.insert(hashes[i]).second) continue;
      asked.push_back(hashes[i]);
      places.push_back(i);
    }
    ASSIGN_OR_RETURN(std::vector<bool> mine, Claim(asked));
    for (size_t i = 0; i < asked.size(); ++i) wanted[places[i]] = mine[i];
    return wanted;
  }

  Result<std::vector<bool>> Claim(std::span<const Hash128> asked) {
    if (!claim || asked.empty()) return std::vector<bool>(asked.size(), true);
    ASSIGN_OR_RETURN(std::vector<bool> mine, claim(asked));
    if (mine.size() != asked.size()) {
      return Errorf(StatusCode::kInternal, "of %zu chunks %zu are said whose they are", asked.size(),
                    mine.size());
    }
    std::lock_guard lock(mutex);
    for (size_t i = 0; i < asked.size(); ++i) {
      if (!mine[i]) others.insert(asked[i]);
    }
    return mine;
  }

  Status OfferPiece(StreamState* stream, const Piece& piece, std::span<const Hash128> hashes,
                    std::vector<bool>* wanted) {
    if (hashes.size() != piece.chunks) {
      return Status(StatusCode::kInvalidArgument, "not the piece's number of chunks");
    }
    for (size_t i = 0; i < hashes.size(); ++i) {
      RETURN_IF_ERROR(stream->Take(piece.first_chunk + i, ChunkState::kMissing));
    }
    ASSIGN_OR_RETURN(*wanted, Wanted(hashes));
    for (size_t i = 0; i < hashes.size(); ++i) {
      size_t chunk = piece.first_chunk + i;
      if ((*wanted)[i]) {
        stream->hashes[chunk] = hashes[i];
        stream->states[chunk] = ChunkState::kWanted;
      } else {
        Given(stream, chunk, hashes[i]);
      }
    }
    return Status();
  }

  static Result<std::vector<ManifestStream>> Describe(const Streams& streams_of) {
    std::vector<ManifestStream> described;
    for (const auto& [name, stream] : streams_of) {
      if (!stream->Complete())
        return Status(StatusCode::kFailedPrecondition, "'" + name + "' is not complete");
      described.push_back({name, stream->layout.segments(), stream->hashes});
    }
    return described;
  }

  Result<ImageManifest> Describe(const Json& meta) const {
    ImageManifest manifest;
    manifest.task = task;
    manifest.id = id;
    manifest.chunk_bytes = chunk_bytes();
    manifest.meta = meta;
    std::lock_guard lock(mutex);
    ASSIGN_OR_RETURN(manifest.streams, Describe(streams));
    for (const auto& [name, files] : folders) {
      ASSIGN_OR_RETURN(std::vector<ManifestStream> described, Describe(files));
      manifest.folders.push_back({name, std::move(described)});
    }
    return manifest;
  }

  Status Prepare(const Json& meta) {
    ASSIGN_OR_RETURN(ImageManifest manifest, Describe(meta));
    ASSIGN_OR_RETURN(std::vector<ChunkRef> distinct, DistinctChunks(manifest));
    for (const ChunkRef& chunk : distinct) {
      unique_bytes += chunk.size;
      if (others.contains(chunk.hash)) others_bytes += chunk.size;
    }
    ASSIGN_OR_RETURN(std::vector<std::byte> text, chunks->SerializeManifest(manifest));
    manifest_bytes = text.size();
    return slot->Prepare(chunks.get(), text);
  }

  // What other writers were to bring has come, and stays.
  Status CheckOthers() {
    if (others.empty()) return Status();
    RETURN_IF_ERROR(store->Refresh());
    size_t missing = 0;
    for (const Hash128& hash : others) {
      ASSIGN_OR_RETURN(bool there, chunks->Has(hash));
      missing += there ? 0 : 1;
    }
    if (missing == 0) return Status();
    return Errorf(StatusCode::kFailedPrecondition,
                  "%zu of %zu chunks that others were to write are not in the store", missing, others.size());
  }

  Status Commit() {
    RETURN_IF_ERROR(CheckOthers());
    return slot->Publish();
  }
};

ImageWriter::ImageWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ImageWriter::~ImageWriter() = default;

Result<std::unique_ptr<ImageWriter>> ImageWriter::Create(std::shared_ptr<Store> store,
                                                         const std::string& task, const std::string& id) {
  auto state = std::make_unique<State>();
  state->store = store;
  state->task = task;
  state->id = id;
  ASSIGN_OR_RETURN(state->slot, ImageSlot::Take(store, task, id));
  // Who holds it reads it back, and may have no identity.
  const bool unshared = id == kHeldImage;
  ASSIGN_OR_RETURN(state->chunks, StoreWriter::Begin(std::move(store), {unshared, {}}));
  return std::unique_ptr<ImageWriter>(new ImageWriter(std::move(state)));
}

void ImageWriter::ShareWith(ChunkClaim claim) { state_->claim = std::move(claim); }

Status ImageWriter::AddStream(const std::string& name, std::vector<Segment> segments) {
  return state_->Add(&state_->streams, name, std::move(segments)).WithContext("stream");
}

const StreamLayout& ImageWriter::Layout(const std::string& name) const {
  StreamState* stream = state_->Find(name);
  STASIS_CHECK(stream != nullptr);
  return stream->layout;
}

Status ImageWriter::WritePiece(const std::string& name, size_t piece, std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(auto found, state_->FindPiece(name, piece));
  return state_->PutPiece(found.first, found.second, bytes).WithContext("stream " + name);
}

Status ImageWriter::OfferPiece(const std::string& name, size_t piece, std::span<const Hash128> hashes,
                               std::vector<bool>* wanted) {
  ASSIGN_OR_RETURN(auto found, state_->FindPiece(name, piece));
  return state_->OfferPiece(found.first, found.second, hashes, wanted).WithContext("stream " + name);
}

Status ImageWriter::WriteChunk(const std::string& name, size_t chunk, std::span<const std::byte> bytes) {
  StreamState* stream = state_->Find(name);
  if (!stream || chunk >= stream->states.size() || bytes.size() != stream->layout.ChunkSize(chunk)) {
    return Status(StatusCode::kInvalidArgument, "there is no such chunk of a stream '" + name + "'");
  }
  RETURN_IF_ERROR(stream->Take(chunk, ChunkState::kWanted).WithContext("stream " + name));
  Hash128 hash = stream->hashes[chunk];
  if (HashBytes(bytes) != hash) {
    return Errorf(StatusCode::kCorrupt, "stream %s: chunk %zu is not what was offered", name.c_str(), chunk);
  }
  RETURN_IF_ERROR(state_->chunks->Put(hash, bytes));
  state_->Given(stream, chunk, hash);
  return Status();
}

Status ImageWriter::AddFolder(
    const std::string& name, const std::string& path,
    const std::function<std::vector<Segment>(const std::string&, uint64_t)>& segments_of) {
  if (!IsPlainName(name)) return Status(StatusCode::kInvalidArgument, "'" + name + "' is no plain name");
  ASSIGN_OR_RETURN(SourceFolder folder, SourceFolder::Open(path));
  Streams files;
  std::vector<FilePiece> pieces;
  for (size_t i = 0; i < folder.files().size(); ++i) {
    const SourceFolder::File& file = folder.files()[i];
    ASSIGN_OR_RETURN(std::vector<Segment> segments, FileSegments(file.name, file.size, segments_of));
    RETURN_IF_ERROR(state_->Add(&files, file.name, std::move(segments)).WithContext(path));
    AppendPieces(i, files[file.name]->layout, &pieces);
  }
  RETURN_IF_ERROR(folder.ReadPieces(pieces, [&](const FilePiece& piece, std::span<const std::byte> bytes) {
    const std::string& file = folder.files()[piece.file].name;
    return state_->PutPiece(files.at(file).get(), piece.piece, bytes).WithContext(path + "/" + file);
  }));
  std::lock_guard lock(state_->mutex);
  if (state_->folders.emplace(name, std::move(files)).second) return Status();
  return Status(StatusCode::kInvalidArgument, "folder '" + name + "' was added before");
}

Status ImageWriter::Prepare(const Json& meta) {
  STASIS_CHECK(!state_->prepared);
  state_->prepared = true;
  return state_->Prepare(meta).WithContext("image " + state_->task + "/" + state_->id);
}

Status ImageWriter::Commit() {
  STASIS_CHECK(state_->prepared && !state_->committed);
  state_->committed = true;
  return state_->Commit().WithContext("image " + state_->task + "/" + state_->id);
}

Status ImageWriter::Commit(const Json& meta) {
  RETURN_IF_ERROR(Prepare(meta));
  return Commit();
}

const std::string& ImageWriter::id() const { return state_->id; }
bool ImageWriter::encrypted() const { return state_->chunks->encrypted(); }
std::string ImageWriter::HandOver() const { return state_->chunks->HandOver(); }

ImageCounts ImageWriter::counts() const {
  ImageCounts counts;
  counts.bytes = state_->bytes;
  counts.zero_bytes = state_->zero_bytes;
  counts.unique_bytes = state_->unique_bytes;
  counts.others_bytes = state_->others_bytes;
  StoreCounts added = state_->chunks->added();
  counts.added_bytes = added.stored_bytes;
  counts.new_bytes = added.raw_bytes;
  counts.manifest_bytes = state_->manifest_bytes;
  return counts;
}

}  // namespace stasis

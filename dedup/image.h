// One image in a store: named streams of bytes, folders of files, and what the owner wants to remember of
// them (`meta`), named by one manifest (ROOT/images/TASK/ID.image) that becomes visible by one rename.
//
// A stream is a list of segments, each a range of some address space (device memory, a process's pages, a
// file): chunks end at multiples of the store's chunk size *in that address space*, so that equal memory
// gives equal chunks whatever lies before it in the stream. All-zero chunks take no room. Copies go by
// pieces: runs of whole chunks, kPieceBytes at most, the same for writer and reader.
#ifndef DEDUP_IMAGE_H_
#define DEDUP_IMAGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/hash.h"
#include "dedup/json.h"
#include "dedup/store.h"

namespace stasis {

inline constexpr uint32_t kImageVersion = 2;
inline constexpr uint64_t kPieceBytes = 4 << 20;
// The id of what a paused task's device memory is held in on disk: no image of the task, so never listed.
inline constexpr char kHeldImage[] = "held";

struct Segment {
  uint64_t address = 0;
  uint64_t size = 0;  // bytes, more than zero
  bool operator==(const Segment&) const = default;
};

// One chunk of a stream. An all-zero one has the hash kZeroChunk and is in no pack.
struct ChunkRef {
  Hash128 hash;
  uint32_t size = 0;
};
inline constexpr Hash128 kZeroChunk{};

struct Piece {
  uint64_t offset = 0;  // in the stream
  uint64_t size = 0;
  size_t first_chunk = 0;
  size_t chunks = 0;
};

// Where the chunks of a stream end. Constant.
class StreamLayout {
 public:
  StreamLayout() = default;
  // How many chunks the segments have, without making a layout of them. Nothing when one is empty or ends
  // beyond 2^64, or when the stream is longer than 2^62 bytes.
  static std::optional<uint64_t> CountChunks(std::span<const Segment> segments, uint64_t chunk_bytes);
  // Of segments that CountChunks() accepts.
  StreamLayout(std::vector<Segment> segments, uint64_t chunk_bytes);
  uint64_t size() const { return size_; }
  size_t chunk_count() const { return ends_.size(); }
  uint64_t ChunkOffset(size_t chunk) const { return chunk == 0 ? 0 : ends_[chunk - 1]; }
  uint64_t ChunkSize(size_t chunk) const { return ends_[chunk] - ChunkOffset(chunk); }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::vector<Segment> segments_;
  std::vector<uint64_t> ends_;
  std::vector<Piece> pieces_;
  uint64_t size_ = 0;
};

struct ImageManifest;  // image_manifest.h

// Sums over an image. Of a chunk that occurs several times in it, `unique` counts one.
struct ImageCounts {
  uint64_t bytes = 0;         // of streams and files
  uint64_t zero_bytes = 0;    // in all-zero chunks
  uint64_t unique_bytes = 0;  // before compression, without zeros; of a writer: once it is prepared
  uint64_t added_bytes = 0;   // what writing it added to packs; writer only
  uint64_t new_bytes = 0;     // the same before compression
  uint64_t others_bytes = 0;  // before compression, what other writers have brought; as unique_bytes
  uint64_t manifest_bytes = 0;
};

// A file of a folder.
struct ImageFile {
  std::string name;
  uint64_t size = 0;
};

// Whose each of some chunks is, of writers that write to one store at the same time and commit together: true
// for those that the asking one is to bring. The chunks are distinct, not zero, and not in the store as far
// as the asking one knows. Called by several threads at once.
using ChunkClaim = std::function<Result<std::vector<bool>>(std::span<const Hash128> chunks)>;

// Thread-safe but for Create, ShareWith, Prepare and Commit.
class ImageWriter {
 public:
  // `task` is a plain name, `id` six digits or kHeldImage. kAlreadyExists when `id` is committed, or another
  // writer is at it.
  static Result<std::unique_ptr<ImageWriter>> Create(std::shared_ptr<Store> store, const std::string& task,
                                                     const std::string& id);
  // Takes back what was written unless it was committed.
  ~ImageWriter();
  ImageWriter(const ImageWriter&) = delete;
  ImageWriter& operator=(const ImageWriter&) = delete;

  // Before anything is added. What is another writer's is neither compressed nor written here, only named.
  // All of them call Prepare(), and none Commit() before all have done so.
  void ShareWith(ChunkClaim claim);
  // Before its pieces are written.
  Status AddStream(const std::string& name, std::vector<Segment> segments);
  const StreamLayout& Layout(const std::string& name) const;
  // Each piece of each stream is written once, by whichever thread. `bytes` is the whole piece.
  Status WritePiece(const std::string& name, size_t piece, std::span<const std::byte> bytes);
  // Instead: the hashes of a piece's chunks, where they are known without the bytes. Sets wanted[i] for those
  // whose bytes the store lacks and no other writer brings; they follow by WriteChunk(). Of equal ones the
  // first is wanted. All-zero chunks are to be offered as kZeroChunk, and are never wanted.
  Status OfferPiece(const std::string& name, size_t piece, std::span<const Hash128> hashes,
                    std::vector<bool>* wanted);
  // `chunk` counts in the stream. The bytes are hashed again: kCorrupt when they are not what was offered.
  Status WriteChunk(const std::string& name, size_t chunk, std::span<const std::byte> bytes);
  // Takes the plain files of a folder in, on several threads; a file that is not plain fails it.
  // `segments_of` may give a file's address ranges (their sizes add up to `size`); null or an empty answer:
  // the file's own offsets.
  Status AddFolder(const std::string& name, const std::string& path,
                   const std::function<std::vector<Segment>(const std::string& file, uint64_t size)>&
                       segments_of = nullptr);
  // Everything that was added must have been written. The packs are on stable storage and visible to other
  // writers afterwards, the manifest is there but for its name. Once; nothing is added afterwards.
  Status Prepare(const Json& meta);
  // The manifest gets its name, on stable storage. kFailedPrecondition: what another writer was to bring is
  // not in the store. Once; after an error the image is gone.
  Status Commit();
  // Both.
  Status Commit(const Json& meta);

  const std::string& id() const;
  // What is written is encrypted (docs/image-format.md).
  bool encrypted() const;
  // What lets another process of the task read what is written, of kHeldImage; a secret, for memory alone. ""
  // where nothing is encrypted.
  std::string HandOver() const;
  ImageCounts counts() const;

 private:
  struct State;
  explicit ImageWriter(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

class ImageReader {
 public:
  // Reads and checks the manifest, and keeps its packs as long as the reader lives. kNotFound: no such image;
  // kUnsupported: of a version that we do not know; kCorrupt: damaged, or a chunk is missing.
  static Result<std::unique_ptr<ImageReader>> Open(std::shared_ptr<Store> store, const std::string& task,
                                                   const std::string& id);
  ~ImageReader();
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;

  const std::string& task() const;
  const std::string& id() const;
  const Json& meta() const;
  std::vector<std::string> streams() const;
  std::vector<std::string> folders() const;
  // Empty when there is no such folder.
  std::vector<ImageFile> FolderFiles(const std::string& folder) const;
  // Null when there is none.
  const StreamLayout* Layout(const std::string& name) const;
  // Checked. `out` is as long as the piece. Thread-safe.
  Status ReadPiece(const std::string& name, size_t piece, std::span<std::byte> out) const;
  // The same for chunks [first, first + count) of a stream.
  Status ReadRun(const std::string& name, size_t first, size_t count, std::span<std::byte> out) const;
  // Writes a folder's files into `path`, which exists and is empty, on several threads.
  Status ExtractFolder(const std::string& name, const std::string& path) const;
  // Reads and checks every byte. `progress` is told bytes done and in all, from several threads, one at a
  // time.
  Status VerifyAll(const std::function<void(uint64_t, uint64_t)>& progress = nullptr) const;
  ImageCounts counts() const;
  // Every chunk, in order, repetitions and zeros included.
  std::vector<ChunkRef> Chunks() const;
  // Every chunk that is not zero, once, in the order of first use.
  const std::vector<ChunkRef>& distinct_chunks() const;
  // One after another. Checked. `out` is as long as all of them. Thread-safe.
  Status ReadChunks(std::span<const ChunkRef> chunks, std::span<std::byte> out) const;
  const ImageManifest& manifest() const;

 private:
  struct State;
  explicit ImageReader(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// Names of tasks that have images, sorted.
Result<std::vector<std::string>> ListImageTasks(Store& store);
// Ids of a task's committed images, ascending. Six digits each; anything else there is ignored.
Result<std::vector<std::string>> ListImages(Store& store, const std::string& task);
// One more than the newest, "000001" when there is none.
Result<std::string> NextImageId(Store& store, const std::string& task);
// The manifest goes; its chunks go with the next CollectGarbage(). kNotFound.
Status RemoveImage(Store& store, const std::string& task, const std::string& id);

// An image of format version 1 was a folder, FOLDER/ID. kUnsupported, naming it and the versions, where there
// is one.
Status RefuseFolderImage(const std::string& folder, const std::string& id);

// One self-contained file: the manifest and every chunk it names. Written as PATH.partial. Replaces nothing:
// kAlreadyExists.
Status ExportImage(const ImageReader& image, const std::string& path,
                   const std::function<void(uint64_t, uint64_t)>& progress = nullptr);
// What an exported file says that it holds. Its chunks are not looked at. Errors as of ImportImage().
struct ExportedImage {
  std::string task;
  std::string id;
  Json meta;
};
Result<ExportedImage> PeekExport(const std::string& path);
// Checks every byte and commits it as `id` of `task`. Empty: as it was exported; an id that is taken becomes
// the next free one when `*id` was empty, and is kAlreadyExists when it was given. Says what they became.
// Untrusted input: kCorrupt names file and offset; nothing of it stays then.
Status ImportImage(std::shared_ptr<Store> store, const std::string& path, std::string* task, std::string* id,
                   const std::function<void(uint64_t, uint64_t)>& progress = nullptr);

}  // namespace stasis

#endif  // DEDUP_IMAGE_H_

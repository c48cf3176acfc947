#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/parallel.h"
#include "dedup/crypt.h"
#include "dedup/image.h"
#include "dedup/image_export.h"
#include "dedup/image_manifest.h"
#include "dedup/image_slot.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

// The exported file, read once from its beginning to its end.
class ImportFile {
 public:
  static Result<ImportFile> Open(const std::string& path) {
    ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDONLY | O_NONBLOCK));
    struct stat info;
    if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, path);
    if (!S_ISREG(info.st_mode)) return Status(StatusCode::kInvalidArgument, path + " is no regular file");
    return ImportFile(path, std::move(fd), static_cast<uint64_t>(info.st_size));
  }

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  uint64_t offset() const { return offset_; }
  // The next bytes. The room for them is the caller's: see Room().
  Status Read(std::span<std::byte> out) {
    RETURN_IF_ERROR(Room(out.size()));
    RETURN_IF_ERROR(ReadAt(fd_.get(), out, offset_).WithContext(path_));
    offset_ += out.size();
    return Status();
  }
  // The file has that many bytes left; to be asked before memory is taken for them.
  Status Room(uint64_t bytes) const {
    if (bytes <= size_ - offset_) return Status();
    return CorruptAt(path_, size_, "the file ends too early");
  }

 private:
  ImportFile(std::string path, Fd fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}
  std::string path_;
  Fd fd_;
  uint64_t size_;
  uint64_t offset_ = 0;
};

// A chunk as it is in the file.
struct Record {
  RecordHeader header;
  Hash128 hash;
  uint64_t offset = 0;
  size_t at = 0;  // of its bytes in the batch's
};

struct Batch {
  std::vector<Record> records;
  std::vector<std::byte> stored;
};

// What the chunks of a file are encrypted with; null: they are not.
struct Crypt {
  const ChunkNames* names = nullptr;
  const DataKey* key = nullptr;
};

Status ReadRecord(ImportFile* file, const Crypt& crypt, const ChunkRef& expected, Batch* batch) {
  Record record;
  record.offset = file->offset();
  std::array<std::byte, kRecordHeaderBytes> bytes;
  RETURN_IF_ERROR(file->Read(bytes));
  Result<RecordHeader> header = DecodeRecordHeader(bytes);
  if (!header.ok()) return CorruptAt(file->path(), record.offset, header.status().message());
  record.header = *header;
  const Hash128 name = crypt.names ? crypt.names->Of(expected.hash) : expected.hash;
  if (header->hash != name || header->raw_size != expected.size ||
      IsSealed(header->coding) != (crypt.key != nullptr)) {
    return CorruptAt(file->path(), record.offset, "not the chunk that the manifest wants here");
  }
  record.hash = expected.hash;
  record.at = batch->stored.size();
  RETURN_IF_ERROR(file->Room(header->stored_size));
  batch->stored.resize(record.at + header->stored_size);
  batch->records.push_back(record);
  return file->Read(std::span(batch->stored).subspan(record.at));
}

Status ReadBatch(ImportFile* file, const Crypt& crypt, std::span<const ChunkRef> expected, Batch* batch) {
  batch->records.clear();
  batch->stored.clear();
  for (const ChunkRef& chunk : expected) RETURN_IF_ERROR(ReadRecord(file, crypt, chunk, batch));
  return Status();
}

Status DecodeInto(const Crypt& crypt, const Record& record, std::span<const std::byte> stored,
                  std::span<std::byte> raw) {
  if (crypt.key == nullptr) return DecodeRecord(record.header, stored, raw);
  ASSIGN_OR_RETURN(SealedChunk chunk, UnsealChunk(*crypt.key, record.header, stored));
  chunk.header.hash = record.hash;
  return DecodeRecord(chunk.header, chunk.stored, raw);
}

Status PutBatch(const std::string& path, const Crypt& crypt, const Batch& batch, StoreWriter* writer) {
  std::vector<std::byte> raw;
  for (const Record& record : batch.records) {
    raw.resize(record.header.raw_size);
    Status decoded =
        DecodeInto(crypt, record, std::span(batch.stored).subspan(record.at, record.header.stored_size), raw);
    if (!decoded.ok()) return CorruptAt(path, record.offset, decoded.message());
    RETURN_IF_ERROR(writer->Put(record.hash, raw));
  }
  return Status();
}

// Reads as many batches as there are threads, which then check them at once.
Status ReadChunks(ImportFile* file, const Crypt& crypt, std::span<const ChunkRef> chunks, StoreWriter* writer,
                  const std::function<void(uint64_t, uint64_t)>& progress) {
  std::vector<std::span<const ChunkRef>> cut = CutIntoBatches(chunks, kPieceBytes);
  const uint64_t total = TotalSize(chunks);
  std::vector<Batch> batches(CopyThreads());
  uint64_t done = 0;
  for (size_t first = 0; first < cut.size(); first += batches.size()) {
    const size_t count = std::min(batches.size(), cut.size() - first);
    for (size_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(ReadBatch(file, crypt, cut[first + i], &batches[i]));
      done += TotalSize(cut[first + i]);
    }
    RETURN_IF_ERROR(ParallelFor(
        count, count, [&](size_t i, size_t) { return PutBatch(file->path(), crypt, batches[i], writer); }));
    if (progress) progress(done, total);
  }
  return Status();
}

Result<std::vector<std::byte>> ReadManifest(ImportFile* file) {
  std::array<std::byte, kExportHeaderBytes> header;
  RETURN_IF_ERROR(file->Read(header));
  ASSIGN_OR_RETURN(uint64_t size, DecodeExportHeader(header, file->path()));
  RETURN_IF_ERROR(file->Room(size));
  if (size > kMaxManifestBytes) return CorruptAt(file->path(), 0, "the manifest is too long");
  std::vector<std::byte> manifest(size);
  RETURN_IF_ERROR(file->Read(manifest));
  return manifest;
}

Status ReadFooter(ImportFile* file, uint64_t records, const Hash128& manifest) {
  const uint64_t offset = file->offset();
  std::array<std::byte, kExportFooterBytes> footer;
  RETURN_IF_ERROR(file->Read(footer));
  Status checked = CheckExportFooter(footer, {records, file->offset(), manifest});
  if (!checked.ok()) return CorruptAt(file->path(), offset, checked.message());
  if (file->offset() == file->size()) return Status();
  return CorruptAt(file->path(), file->offset(), "bytes left over after the end");
}

// The image's own id where it is free, or the next one that is.
Result<std::unique_ptr<ImageSlot>> TakeFreeSlot(const std::shared_ptr<Store>& store,
                                                ImageManifest* manifest) {
  for (;;) {
    Result<std::unique_ptr<ImageSlot>> slot = ImageSlot::Take(store, manifest->task, manifest->id);
    if (slot.ok() || slot.status().code() != StatusCode::kAlreadyExists) return slot;
    ASSIGN_OR_RETURN(std::string newest, NextImageId(*store, manifest->task));
    ASSIGN_OR_RETURN(std::string after, ImageIdAfter(manifest->id));
    manifest->id = std::max(newest, after);  // digits: the greater text is the greater number
  }
}

Result<std::unique_ptr<ImageSlot>> TakeSlot(const std::shared_ptr<Store>& store, const std::string& task,
                                            const std::string& id, ImageManifest* manifest) {
  if (!IsImageId(manifest->id)) return Status(StatusCode::kCorrupt, "it is no image of a task");
  if (!id.empty() && !IsImageId(id))
    return Status(StatusCode::kInvalidArgument, "'" + id + "' is no image id");
  if (!task.empty()) manifest->task = task;
  if (id.empty()) return TakeFreeSlot(store, manifest);
  manifest->id = id;
  return ImageSlot::Take(store, manifest->task, manifest->id);
}

Status RefuseFolder(const std::string& path) {
  size_t slash = path.find_last_not_of('/');
  std::string trimmed = path.substr(0, slash == std::string::npos ? 0 : slash + 1);
  slash = trimmed.rfind('/');
  if (slash == std::string::npos) return RefuseFolderImage(".", trimmed);
  return RefuseFolderImage(trimmed.substr(0, slash), trimmed.substr(slash + 1));
}

}  // namespace

Result<ExportedImage> PeekExport(const std::string& path) {
  RETURN_IF_ERROR(RefuseFolder(path));
  ASSIGN_OR_RETURN(ImportFile file, ImportFile::Open(path));
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, ReadManifest(&file));
  Keyring keyring("");
  ASSIGN_OR_RETURN(ImageManifest manifest, OpenImageManifest(bytes, path + ": the manifest within", keyring));
  return ExportedImage{manifest.task, manifest.id, std::move(manifest.meta)};
}

Status ImportImage(std::shared_ptr<Store> store, const std::string& path, std::string* task, std::string* id,
                   const std::function<void(uint64_t, uint64_t)>& progress) {
  RETURN_IF_ERROR(RefuseFolder(path));
  ASSIGN_OR_RETURN(ImportFile file, ImportFile::Open(path));
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, ReadManifest(&file));
  Keyring keyring("", store->options().identity);
  std::shared_ptr<const DataKey> key;
  ASSIGN_OR_RETURN(ImageManifest manifest,
                   OpenImageManifest(bytes, path + ": the manifest within", keyring, &key));
  const Crypt crypt{manifest.names.get(), key.get()};
  const Hash128 sum = HashBytes(bytes);
  Result<std::vector<ChunkRef>> chunks = DistinctChunks(manifest);
  if (!chunks.ok()) return CorruptAt(path, kExportHeaderBytes, chunks.status().message());
  Result<std::unique_ptr<ImageSlot>> taken = TakeSlot(store, *task, *id, &manifest);
  if (!taken.ok()) return std::move(taken).status().WithContext(path);
  std::unique_ptr<ImageSlot> slot = *std::move(taken);
  // What came encrypted never lies here in the clear.
  ASSIGN_OR_RETURN(std::unique_ptr<StoreWriter> writer,
                   StoreWriter::Begin(store, {false, manifest.recipients}));
  RETURN_IF_ERROR(ReadChunks(&file, crypt, *chunks, writer.get(), progress));
  RETURN_IF_ERROR(ReadFooter(&file, chunks->size(), sum));
  ASSIGN_OR_RETURN(bytes, writer->SerializeManifest(manifest));
  RETURN_IF_ERROR(slot->Commit(writer.get(), bytes));
  *task = manifest.task;
  *id = manifest.id;
  return Status();
}

}  // namespace stasis

#include "dedup/image_export.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/parallel.h"
#include "dedup/codec.h"
#include "dedup/crypt.h"
#include "dedup/image.h"
#include "dedup/image_manifest.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

constexpr uint64_t kHeaderMagic = 0x0a70784573697453;  // "StisExp\n"
constexpr uint64_t kFooterMagic = 0x0a646e4573697453;  // "StisEnd\n"
// It is written once, and carried far.
constexpr int kExportLevel = 3;

struct DiskHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t zero;
  uint64_t manifest_bytes;
  uint64_t sum;
};
static_assert(sizeof(DiskHeader) == kExportHeaderBytes);

struct DiskFooter {
  uint64_t magic;
  uint64_t records;
  uint64_t file_bytes;
  Hash128 manifest;
  uint64_t zero;
  uint64_t sum;
};
static_assert(sizeof(DiskFooter) == kExportFooterBytes);

template <typename T>
uint64_t SumOf(const T& disk) {
  return HashBytes(std::as_bytes(std::span(&disk, 1)).first(offsetof(T, sum))).low;
}

template <typename T>
std::array<std::byte, sizeof(T)> Seal(T disk) {
  disk.sum = SumOf(disk);
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &disk, sizeof disk);
  return bytes;
}

template <typename T>
T Load(std::span<const std::byte, sizeof(T)> bytes) {
  T disk;
  std::memcpy(&disk, bytes.data(), sizeof disk);
  return disk;
}

// A file that gets its name when all of it is on stable storage. While it has none, a lock tells what another
// export is writing from what an interrupted one has left.
class PartialFile {
 public:
  static Result<PartialFile> Create(const std::string& path) {
    if (Exists(path)) return Status(StatusCode::kAlreadyExists, path + " exists");
    std::string partial = path + ".partial";
    ASSIGN_OR_RETURN(Fd fd, OpenFile(partial, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      return Status(StatusCode::kAlreadyExists, partial + " is being written");
    }
    struct stat opened, named;
    if (fstat(fd.get(), &opened) != 0 || lstat(partial.c_str(), &named) != 0 ||
        opened.st_ino != named.st_ino || opened.st_dev != named.st_dev) {
      return Status(StatusCode::kAlreadyExists, partial + " was being written");
    }
    if (!S_ISREG(opened.st_mode) || opened.st_nlink != 1) {
      return Status(StatusCode::kAlreadyExists, partial + " is something else");
    }
    PartialFile file(path, partial, std::move(fd));
    if (ftruncate(file.fd_.get(), 0) != 0) return ErrnoStatus(errno, "empty " + partial);
    return file;
  }
  PartialFile(PartialFile&&) = default;
  ~PartialFile() {
    if (fd_.valid()) unlink(partial_.c_str());
  }

  uint64_t size() const { return size_; }
  Status Append(std::span<const std::byte> bytes) {
    RETURN_IF_ERROR(WriteAt(fd_.get(), bytes, size_).WithContext(partial_));
    size_ += bytes.size();
    return Status();
  }
  Status Publish() {
    RETURN_IF_ERROR(SyncFd(fd_.get(), partial_));
    if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
      return ErrnoStatus(errno, "rename " + partial_);
    }
    fd_.Reset();
    size_t slash = path_.rfind('/');
    return SyncFolder(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
  }

 private:
  PartialFile(std::string path, std::string partial, Fd fd)
      : path_(std::move(path)), partial_(std::move(partial)), fd_(std::move(fd)) {}
  std::string path_, partial_;
  Fd fd_;
  uint64_t size_ = 0;
};

void AppendRecord(const RecordHeader& header, std::span<const std::byte> stored,
                  std::vector<std::byte>* records) {
  std::array<std::byte, kRecordHeaderBytes> bytes;
  EncodeRecordHeader(header, bytes);
  records->insert(records->end(), bytes.begin(), bytes.end());
  records->insert(records->end(), stored.begin(), stored.end());
}

// `crypt` may be null.
std::vector<std::byte> Records(std::span<const ChunkRef> chunks, std::span<const std::byte> raw,
                               const CryptSession* crypt) {
  std::vector<std::byte> records;
  for (const ChunkRef& chunk : chunks) {
    EncodedChunk encoded = EncodeChunk(raw.first(chunk.size), kExportLevel);
    raw = raw.subspan(chunk.size);
    if (crypt == nullptr) {
      AppendRecord(MakeRecordHeader(chunk.hash, chunk.size, encoded), encoded.bytes, &records);
    } else {
      SealedChunk sealed = SealChunk(*crypt, chunk.hash, chunk.size, encoded);
      AppendRecord(sealed.header, sealed.stored, &records);
    }
  }
  return records;
}

// Reads and compresses as many batches at once as there are threads, and writes them in their order.
Status AppendChunks(const ImageReader& image, const CryptSession* crypt, PartialFile* file,
                    const std::function<void(uint64_t, uint64_t)>& progress) {
  std::vector<std::span<const ChunkRef>> batches = CutIntoBatches(image.distinct_chunks(), kPieceBytes);
  const size_t threads = CopyThreads();
  std::vector<std::vector<std::byte>> raw(threads), records(threads);
  uint64_t done = 0;
  for (size_t first = 0; first < batches.size(); first += threads) {
    const size_t count = std::min(threads, batches.size() - first);
    RETURN_IF_ERROR(ParallelFor(count, threads, [&](size_t i, size_t) {
      raw[i].resize(TotalSize(batches[first + i]));
      RETURN_IF_ERROR(image.ReadChunks(batches[first + i], raw[i]));
      records[i] = Records(batches[first + i], raw[i], crypt);
      return Status();
    }));
    for (size_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(file->Append(records[i]));
      done += raw[i].size();
    }
    if (progress) progress(done, image.counts().unique_bytes);
  }
  return Status();
}

}  // namespace

std::array<std::byte, kExportHeaderBytes> EncodeExportHeader(uint64_t manifest_bytes) {
  return Seal(DiskHeader{kHeaderMagic, kExportVersion, 0, manifest_bytes, 0});
}

Result<uint64_t> DecodeExportHeader(std::span<const std::byte, kExportHeaderBytes> bytes,
                                    const std::string& file) {
  auto disk = Load<DiskHeader>(bytes);
  if (disk.magic != kHeaderMagic) return CorruptAt(file, 0, "this is no exported image");
  if (disk.sum != SumOf(disk)) return CorruptAt(file, 0, "the header is damaged");
  if (disk.version == kExportVersion) return disk.manifest_bytes;
  return Errorf(StatusCode::kUnsupported, "%s has export format version %u, this program reads version %u",
                file.c_str(), disk.version, kExportVersion);
}

std::array<std::byte, kExportFooterBytes> EncodeExportFooter(const ExportFooter& footer) {
  return Seal(DiskFooter{kFooterMagic, footer.records, footer.file_bytes, footer.manifest, 0, 0});
}

Status CheckExportFooter(std::span<const std::byte, kExportFooterBytes> bytes, const ExportFooter& expected) {
  auto disk = Load<DiskFooter>(bytes);
  if (disk.magic != kFooterMagic || disk.sum != SumOf(disk) || disk.zero != 0) {
    return Status(StatusCode::kCorrupt, "the end of the file is damaged");
  }
  if (ExportFooter{disk.records, disk.file_bytes, disk.manifest} == expected) return Status();
  return Status(StatusCode::kCorrupt, "the end of the file does not fit the rest");
}

Status ExportImage(const ImageReader& image, const std::string& path,
                   const std::function<void(uint64_t, uint64_t)>& progress) {
  ASSIGN_OR_RETURN(std::vector<std::byte> manifest, SerializeImageManifest(image.manifest()));
  // What is encrypted here is encrypted there, to whom it was, with a key of its own.
  std::shared_ptr<const CryptSession> crypt;
  if (image.manifest().names) {
    Keyring keyring("");
    ASSIGN_OR_RETURN(crypt, keyring.BeginTo(image.manifest().recipients));
    ASSIGN_OR_RETURN(manifest, SealImageManifest(image.manifest(), manifest, *crypt));
  }
  ASSIGN_OR_RETURN(PartialFile file, PartialFile::Create(path));
  RETURN_IF_ERROR(file.Append(EncodeExportHeader(manifest.size())));
  RETURN_IF_ERROR(file.Append(manifest));
  RETURN_IF_ERROR(AppendChunks(image, crypt.get(), &file, progress));
  ExportFooter footer{image.distinct_chunks().size(), file.size() + kExportFooterBytes, HashBytes(manifest)};
  RETURN_IF_ERROR(file.Append(EncodeExportFooter(footer)));
  return file.Publish();
}

}  // namespace stasis

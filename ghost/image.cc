#include "ghost/image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/files.h"
#include "base/parallel.h"
#include "ghost/fault.h"

namespace stasis {
namespace {

constexpr char kFormat[] = "stasis-image";
constexpr char kStreams[] = "streams";
constexpr char kZeroChunk = '0';  // instead of a hash
constexpr std::string_view kZeroText(&kZeroChunk, 1);
constexpr size_t kMaxManifest = 1u << 30;
constexpr size_t kMaxStreams = 1 << 20;
constexpr size_t kMaxFolders = 16;
constexpr size_t kMaxFiles = 1 << 20;
constexpr uint64_t kMaxStream = 1ull << 50;

uint64_t ChunkCount(uint64_t size) { return (size + kImageChunk - 1) / kImageChunk; }

uint64_t ChunkSize(uint64_t size, uint64_t index) {
  return std::min(kImageChunk, size - index * kImageChunk);
}

bool IsImageId(const std::string& name) {
  return name.size() == 6 && name.find_first_not_of("0123456789") == std::string::npos;
}

Status CheckSize(const std::string& path, uint64_t size) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return Status(StatusCode::kCorrupt, path + " is missing");
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kCorrupt, path + " is no regular file");
  if (static_cast<uint64_t>(info.st_size) == size) return Status();
  return Errorf(StatusCode::kCorrupt, "%s has %lld bytes instead of %llu", path.c_str(),
                static_cast<long long>(info.st_size), static_cast<unsigned long long>(size));
}

}  // namespace

Result<std::unique_ptr<FolderImageWriter>> FolderImageWriter::Create(const std::string& folder,
                                                                     const std::string& id) {
  if (!IsPlainName(id)) return Status(StatusCode::kInvalidArgument, "'" + id + "' is no image id");
  if (Exists(folder + "/" + id)) return Status(StatusCode::kAlreadyExists, "image " + id + " exists");
  RETURN_IF_ERROR(MakeFolders(folder));
  std::unique_ptr<FolderImageWriter> writer(new FolderImageWriter(folder, id));
  std::string partial = folder + "/" + id + ".partial";
  RETURN_IF_ERROR(RemoveTree(partial));
  if (mkdir(partial.c_str(), 0700) != 0) return ErrnoStatus(errno, "create folder " + partial);
  writer->partial_ = partial;
  RETURN_IF_ERROR(MakeFolders(partial + "/" + kStreams));
  return writer;
}

FolderImageWriter::~FolderImageWriter() {
  streams_.clear();
  if (!committed_ && !partial_.empty()) (void)RemoveTree(partial_);
}

Status FolderImageWriter::AddStream(const std::string& name, uint64_t size) {
  if (!IsPlainName(name) || size > kMaxStream) return Status(StatusCode::kInvalidArgument, "stream " + name);
  Stream stream;
  stream.size = size;
  stream.chunks.resize(ChunkCount(size));
  std::string path = partial_ + "/" + kStreams + "/" + name;
  ASSIGN_OR_RETURN(stream.fd, OpenFile(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW));
  if (ftruncate(stream.fd.get(), static_cast<off_t>(size)) != 0) return ErrnoStatus(errno, "size " + path);
  streams_.emplace(name, std::move(stream));
  return Status();
}

Status FolderImageWriter::WriteChunk(const std::string& name, uint64_t index,
                                     std::span<const std::byte> bytes) {
  auto found = streams_.find(name);
  if (found == streams_.end() || index >= found->second.chunks.size() ||
      bytes.size() != ChunkSize(found->second.size, index)) {
    return Status(StatusCode::kInvalidArgument, "no such chunk of stream " + name);
  }
  RETURN_IF_ERROR(Fault(FaultPoint::kSaveInside));
  // Each element is written by one thread, once: no lock is needed.
  std::string& chunk = found->second.chunks[index];
  if (AllZero(bytes)) {
    chunk.assign(1, kZeroChunk);  // stays a hole of the file
    return Status();
  }
  RETURN_IF_ERROR(WriteAt(found->second.fd.get(), bytes, index * kImageChunk).WithContext("stream " + name));
  chunk = HashText(HashBytes(bytes));
  bytes_ += bytes.size();
  return Status();
}

Result<std::string> FolderImageWriter::AddFolder(const std::string& name) {
  if (!IsPlainName(name) || name == kStreams) return Status(StatusCode::kInvalidArgument, "folder " + name);
  std::string path = partial_ + "/" + name;
  if (mkdir(path.c_str(), 0700) != 0) return ErrnoStatus(errno, "create folder " + path);
  folders_.push_back(name);
  return path;
}

Result<Json> FolderImageWriter::DescribeStreams() {
  Json list = Json::array();
  for (auto& [name, stream] : streams_) {
    for (const std::string& chunk : stream.chunks) {
      if (chunk.empty()) return Status(StatusCode::kInternal, "stream " + name + " is not complete");
    }
    RETURN_IF_ERROR(SyncFd(stream.fd.get(), name));
    list.push_back({{"name", name}, {"size", stream.size}, {"chunks", stream.chunks}});
  }
  RETURN_IF_ERROR(SyncFolder(partial_ + "/" + kStreams));
  return list;
}

Result<Json> FolderImageWriter::DescribeFolder(const std::string& name) {
  std::string path = partial_ + "/" + name;
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(path));
  Json files = Json::array();
  for (const std::string& file : names) {
    uint64_t size = 0;
    ASSIGN_OR_RETURN(Hash128 hash, HashFile(path + "/" + file, &size));
    ASSIGN_OR_RETURN(Fd fd, OpenFile(path + "/" + file, O_RDONLY | O_NOFOLLOW));
    // Whatever mode the file was made with: an image may hold secrets.
    if (fchmod(fd.get(), 0600) != 0) return ErrnoStatus(errno, "chmod " + file);
    RETURN_IF_ERROR(SyncFd(fd.get(), file));
    bytes_ += size;
    files.push_back({{"name", file}, {"size", size}, {"hash", HashText(hash)}});
  }
  RETURN_IF_ERROR(SyncFolder(path));
  return Json{{"name", name}, {"files", std::move(files)}};
}

Status FolderImageWriter::WriteManifest(const Json& manifest) {
  std::string text = JsonText(manifest, 1);
  RETURN_IF_ERROR(WriteFileAtomically(partial_ + "/manifest.json", text));
  std::string sum = HashText(HashBytes(std::as_bytes(std::span(text))));
  bytes_ += text.size();
  return WriteFileAtomically(partial_ + "/manifest.sum", sum);
}

Status FolderImageWriter::Commit(const Json& meta) {
  STASIS_CHECK(!committed_);
  Json manifest = {{"format", kFormat}, {"version", kImageVersion}, {"id", id_}, {"meta", meta}};
  ASSIGN_OR_RETURN(manifest["streams"], DescribeStreams());
  manifest["folders"] = Json::array();
  for (const std::string& name : folders_) {
    ASSIGN_OR_RETURN(Json folder, DescribeFolder(name));
    manifest["folders"].push_back(std::move(folder));
  }
  RETURN_IF_ERROR(WriteManifest(manifest));
  RETURN_IF_ERROR(SyncFolder(partial_));
  RETURN_IF_ERROR(Fault(FaultPoint::kCommitInside));
  std::string path = folder_ + "/" + id_;
  if (rename(partial_.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename " + partial_);
  committed_ = true;
  return SyncFolder(folder_);
}

Result<Json> ParseImageManifest(std::string_view text) {
  ASSIGN_OR_RETURN(Json manifest, ParseJsonObject(text));
  JsonFields fields(manifest, "manifest");
  std::string format = fields.String("format");
  uint64_t version = fields.Number("version");
  fields.String("id", 255);
  fields.Object("meta");
  fields.Objects("streams", kMaxStreams);
  fields.Objects("folders", kMaxFolders);
  if (fields.ok() && format == kFormat && version != kImageVersion) {
    return Errorf(StatusCode::kUnsupported, "the image has version %llu, this program reads version %llu",
                  static_cast<unsigned long long>(version), static_cast<unsigned long long>(kImageVersion));
  }
  RETURN_IF_ERROR(fields.Finish());
  if (format != kFormat) return Status(StatusCode::kCorrupt, "this is no manifest of an image");
  return manifest;
}

Status FolderImageReader::ReadStreams(const Json& list) {
  for (const Json& element : list) {
    JsonFields fields(element, "stream");
    std::string name = fields.String("name", 255);
    Stream stream;
    stream.size = fields.Number("size", kMaxStream);
    std::vector<std::string> chunks = fields.Strings("chunks", SIZE_MAX, 32);
    RETURN_IF_ERROR(fields.Finish());
    if (!IsPlainName(name) || chunks.size() != ChunkCount(stream.size) || streams_.count(name) != 0) {
      return Status(StatusCode::kCorrupt, "stream '" + name + "' is described wrongly");
    }
    for (const std::string& chunk : chunks) {
      stream.zero.push_back(chunk == kZeroText);
      Hash128 hash;
      if (chunk != kZeroText) {
        ASSIGN_OR_RETURN(hash, ParseHash(chunk));
      }
      stream.hashes.push_back(hash);
    }
    std::string path = path_ + "/" + kStreams + "/" + name;
    RETURN_IF_ERROR(CheckSize(path, stream.size));
    ASSIGN_OR_RETURN(stream.fd, OpenFile(path, O_RDONLY | O_NOFOLLOW));
    bytes_ += stream.size;
    streams_.emplace(name, std::move(stream));
  }
  return Status();
}

Status FolderImageReader::ReadFolder(const Json& folder) {
  JsonFields fields(folder, "folder");
  std::string name = fields.String("name", 255);
  std::vector<const Json*> list = fields.Objects("files", kMaxFiles);
  RETURN_IF_ERROR(fields.Finish());
  if (!IsPlainName(name) || folders_.count(name) != 0)
    return Status(StatusCode::kCorrupt, "folder '" + name + "'");
  std::vector<File>& files = folders_[name];
  for (const Json* element : list) {
    JsonFields file_fields(*element, "file");
    File file;
    file.name = file_fields.String("name", 255);
    file.size = file_fields.Number("size", kMaxStream);
    std::string hash = file_fields.String("hash", 32);
    RETURN_IF_ERROR(file_fields.Finish());
    if (!IsPlainName(file.name)) return Status(StatusCode::kCorrupt, "file '" + file.name + "'");
    ASSIGN_OR_RETURN(file.hash, ParseHash(hash));
    RETURN_IF_ERROR(CheckSize(FolderPath(name) + "/" + file.name, file.size));
    bytes_ += file.size;
    files.push_back(std::move(file));
  }
  return Status();
}

Result<std::unique_ptr<FolderImageReader>> FolderImageReader::Open(const std::string& folder,
                                                                   const std::string& id) {
  if (!IsPlainName(id)) return Status(StatusCode::kInvalidArgument, "'" + id + "' is no image id");
  std::unique_ptr<FolderImageReader> reader(new FolderImageReader);
  reader->id_ = id;
  reader->path_ = folder + "/" + id;
  if (!Exists(reader->path_)) return Status(StatusCode::kNotFound, "there is no image " + id);
  std::string what = "image " + id;
  Result<std::string> text = ReadFile(reader->path_ + "/manifest.json", kMaxManifest);
  Result<std::string> sum = ReadFile(reader->path_ + "/manifest.sum", 64);
  if (!text.ok() || !sum.ok() || *sum != HashText(HashBytes(std::as_bytes(std::span(*text))))) {
    return Status(StatusCode::kCorrupt, what + ": the manifest is damaged or missing");
  }
  ASSIGN_OR_RETURN(Json manifest, ParseImageManifest(*text));
  if (manifest["id"].get_ref<const std::string&>() != id) {
    return Status(StatusCode::kCorrupt,
                  what + " says it is image " + manifest["id"].get_ref<const std::string&>());
  }
  RETURN_IF_ERROR(reader->ReadStreams(manifest["streams"]).WithContext(what));
  for (const Json& element : manifest["folders"])
    RETURN_IF_ERROR(reader->ReadFolder(element).WithContext(what));
  reader->meta_ = std::move(manifest["meta"]);
  return reader;
}

uint64_t FolderImageReader::StreamSize(const std::string& name) const {
  auto found = streams_.find(name);
  return found == streams_.end() ? 0 : found->second.size;
}

Status FolderImageReader::ReadChunk(const std::string& name, uint64_t index, std::span<std::byte> out) const {
  auto found = streams_.find(name);
  if (found == streams_.end() || index >= found->second.hashes.size() ||
      out.size() != ChunkSize(found->second.size, index)) {
    return Status(StatusCode::kInvalidArgument, "no such chunk of stream " + name);
  }
  const Stream& stream = found->second;
  RETURN_IF_ERROR(ReadAt(stream.fd.get(), out, index * kImageChunk).WithContext("stream " + name));
  bool good = stream.zero[index] ? AllZero(out) : HashBytes(out) == stream.hashes[index];
  if (good) return Status();
  return Errorf(StatusCode::kCorrupt, "image %s: chunk %llu of stream %s is damaged", id_.c_str(),
                static_cast<unsigned long long>(index), name.c_str());
}

Status FolderImageReader::VerifyFolder(const std::string& name) const {
  auto found = folders_.find(name);
  if (found == folders_.end())
    return Status(StatusCode::kCorrupt, "image " + id_ + " lacks the folder " + name);
  const std::vector<File>& files = found->second;
  return ParallelFor(files.size(), CopyThreads(), [&](size_t i, size_t) -> Status {
    uint64_t size = 0;
    ASSIGN_OR_RETURN(Hash128 hash, HashFile(FolderPath(name) + "/" + files[i].name, &size));
    if (hash == files[i].hash && size == files[i].size) return Status();
    return Status(StatusCode::kCorrupt,
                  "image " + id_ + ": file " + name + "/" + files[i].name + " is damaged");
  });
}

Status FolderImageReader::VerifyAll() const {
  for (const auto& [name, files] : folders_) RETURN_IF_ERROR(VerifyFolder(name));
  std::vector<std::vector<std::byte>> buffers(CopyThreads());
  for (const auto& entry : streams_) {
    const std::string& name = entry.first;
    const Stream& stream = entry.second;
    RETURN_IF_ERROR(ParallelFor(stream.hashes.size(), buffers.size(), [&](size_t i, size_t worker) {
      buffers[worker].resize(ChunkSize(stream.size, i));
      return ReadChunk(name, i, buffers[worker]);
    }));
  }
  return Status();
}

Result<std::vector<std::string>> ListImages(const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(folder));
  std::erase_if(names, [](const std::string& name) { return !IsImageId(name); });
  return names;
}

Result<std::string> NextImageId(const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListImages(folder));
  unsigned long last = ids.empty() ? 0 : std::strtoul(ids.back().c_str(), nullptr, 10);
  if (last >= 999999) return Status(StatusCode::kResourceExhausted, "image ids are used up");
  char text[8];
  std::snprintf(text, sizeof text, "%06lu", last + 1);
  return std::string(text);
}

Status RemovePartialImages(const std::string& folder) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(folder));
  for (const std::string& name : names) {
    if (name.ends_with(".partial")) RETURN_IF_ERROR(RemoveTree(folder + "/" + name));
  }
  return Status();
}

}  // namespace stasis

#include "ghost/open_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "base/files.h"

namespace stasis {
namespace {

enum class Fit { kSame, kLonger, kMissing };

Result<Fit> CheckOne(const ManifestFile& file, bool replaceable, std::string* remedy) {
  struct stat info;
  *remedy = "put the file back as it was at the checkpoint";
  if (stat(file.path.c_str(), &info) != 0) {
    if (errno == ENOENT && replaceable) return Fit::kMissing;
    if (errno == ENOENT) return Status(StatusCode::kUnsupported, file.path + " is missing");
    return ErrnoStatus(errno, "stat " + file.path);
  }
  uint64_t now = static_cast<uint64_t>(info.st_size);
  if (now == file.size) return Fit::kSame;
  if (now > file.size && file.writable) return Fit::kLonger;
  if (now < file.size && replaceable) return Fit::kMissing;
  return Errorf(StatusCode::kUnsupported, "%s had %llu bytes at the checkpoint and has %llu now",
                file.path.c_str(), static_cast<unsigned long long>(file.size),
                static_cast<unsigned long long>(now));
}

Status Move(const std::string& from, const std::string& to, uint64_t from_offset, uint64_t to_offset,
            uint64_t size, int flags) {
  ASSIGN_OR_RETURN(Fd in, OpenFile(from, O_RDONLY));
  ASSIGN_OR_RETURN(Fd out, OpenFile(to, O_WRONLY | flags));
  std::vector<std::byte> buffer(std::min<uint64_t>(size, 1 << 20));
  for (uint64_t at = 0; at < size; at += buffer.size()) {
    std::span<std::byte> part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), size - at));
    RETURN_IF_ERROR(ReadAt(in.get(), part, from_offset + at).WithContext(from));
    RETURN_IF_ERROR(WriteAt(out.get(), part, to_offset + at).WithContext(to));
  }
  return SyncFd(out.get(), to);
}

std::string FreeName(const std::string& wanted) {
  std::string name = wanted;
  for (int n = 2; Exists(name); ++n) name = wanted + "." + std::to_string(n);
  return name;
}

// The tail is on stable storage before the file is cut.
Status CutTail(const ManifestFile& file, const std::string& image_id, std::vector<SetAside>* done) {
  struct stat info;
  if (stat(file.path.c_str(), &info) != 0) return ErrnoStatus(errno, "stat " + file.path);
  uint64_t now = static_cast<uint64_t>(info.st_size);
  SetAside aside{file.path, file.size, FreeName(file.path + ".after-" + image_id)};
  RETURN_IF_ERROR(Move(file.path, aside.tail_path, file.size, 0, now - file.size, O_CREAT | O_EXCL));
  done->push_back(aside);
  if (truncate(file.path.c_str(), static_cast<off_t>(file.size)) == 0) return Status();
  return ErrnoStatus(errno, "truncate " + file.path);
}

// A log that was removed or cut: what is there now, if anything, is kept beside it.
Status RecreateLog(const ManifestFile& file, const std::string& copy, const std::string& image_id,
                   std::vector<SetAside>* done) {
  SetAside aside{file.path, file.size, ""};
  if (Exists(file.path)) {
    std::string kept = FreeName(file.path + ".after-" + image_id);
    if (rename(file.path.c_str(), kept.c_str()) != 0) return ErrnoStatus(errno, "rename " + file.path);
  }
  done->push_back(aside);
  return CopyFile(copy, file.path, file.size);
}

}  // namespace

Status PrepareFiles(const std::vector<ManifestFile>& files, const std::string& log,
                    const std::string& log_copy, const std::string& image_id, std::vector<SetAside>* done,
                    std::string* remedy) {
  std::vector<Fit> fits;
  for (const ManifestFile& file : files) {
    bool replaceable = !log_copy.empty() && file.path == log;
    ASSIGN_OR_RETURN(Fit fit, CheckOne(file, replaceable, remedy));
    fits.push_back(fit);
  }
  remedy->clear();
  for (size_t i = 0; i < files.size(); ++i) {
    if (fits[i] == Fit::kLonger) RETURN_IF_ERROR(CutTail(files[i], image_id, done));
    if (fits[i] == Fit::kMissing) RETURN_IF_ERROR(RecreateLog(files[i], log_copy, image_id, done));
  }
  return Status();
}

Status UndoPrepareFiles(std::vector<SetAside>& done) {
  Status first;
  while (!done.empty()) {
    SetAside aside = std::move(done.back());
    done.pop_back();
    if (aside.tail_path.empty()) continue;  // a log made anew does no harm
    struct stat info;
    if (stat(aside.tail_path.c_str(), &info) != 0) continue;
    Status status = Move(aside.tail_path, aside.path, 0, aside.size, static_cast<uint64_t>(info.st_size), 0);
    if (status.ok()) unlink(aside.tail_path.c_str());
    if (!status.ok() && first.ok()) first = std::move(status);
  }
  return first;
}

std::string Note(const SetAside& aside) {
  if (aside.tail_path.empty()) return aside.path + " was missing and comes from the image";
  return aside.path + " has grown since the checkpoint: what followed is now in " + aside.tail_path;
}

}  // namespace stasis

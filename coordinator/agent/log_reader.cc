#include "coordinator/agent/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "coordinator/node/layout.h"

namespace stasis {

bool MayPrint(const v1::Job& job) {
  if (job.gone()) return false;
  switch (job.condition()) {
    case v1::CONDITION_EXITED:
    case v1::CONDITION_KILLED:
    case v1::CONDITION_CHECKPOINTED:
    case v1::CONDITION_MIGRATED:
      return false;
    default:
      return true;
  }
}

Result<LogReader> LogReader::Open(const Site& site, const v1::Job& job, const v1::LogsRequest& request) {
  LogReader reader;
  bool all = request.rank() < 0;
  for (const v1::Rank& rank : job.ranks()) {
    if (!all && rank.rank() != static_cast<uint32_t>(request.rank())) continue;
    std::string path = TaskPaths(site.folders, rank.task()).File("output.log");
    Result<Fd> file = OpenFile(path, O_RDONLY | O_NOFOLLOW);
    if (!file.ok() && file.status().code() == StatusCode::kNotFound && all) continue;
    if (!file.ok()) return file.status();
    reader.files_.push_back({rank.rank(), std::move(*file), request.offset()});
    reader.paths_.push_back(path);
  }
  if (!reader.files_.empty()) return reader;
  return Status(StatusCode::kNotFound, all ? job.name() + " has no output on record"
                                           : job.name() + " has no rank " + std::to_string(request.rank()));
}

Result<std::optional<v1::LogChunk>> LogReader::Read(File& file) {
  struct stat info {};
  if (fstat(file.fd.get(), &info) != 0) return ErrnoStatus(errno, "the output");
  uint64_t size = static_cast<uint64_t>(info.st_size);
  if (size < file.offset) file.offset = size;
  if (size == file.offset) return std::optional<v1::LogChunk>();
  std::string bytes(std::min<uint64_t>(size - file.offset, kLogChunkBytes), '\0');
  ssize_t got = pread(file.fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(file.offset));
  if (got < 0) return ErrnoStatus(errno, "the output");
  if (got == 0) return std::optional<v1::LogChunk>();
  bytes.resize(static_cast<size_t>(got));
  v1::LogChunk chunk;
  chunk.set_rank(file.rank);
  chunk.set_offset(file.offset);
  chunk.set_data(std::move(bytes));
  file.offset += static_cast<uint64_t>(got);
  return std::optional<v1::LogChunk>(std::move(chunk));
}

Result<std::optional<v1::LogChunk>> LogReader::Next() {
  for (size_t tried = 0; tried < files_.size(); tried++) {
    File& file = files_[turn_];
    turn_ = (turn_ + 1) % files_.size();
    ASSIGN_OR_RETURN(std::optional<v1::LogChunk> chunk, Read(file));
    if (chunk) return chunk;
  }
  return std::optional<v1::LogChunk>();
}

}  // namespace stasis

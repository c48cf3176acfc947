// The output of a job, or of one of its ranks, piece by piece.
#ifndef COORDINATOR_AGENT_LOG_READER_H_
#define COORDINATOR_AGENT_LOG_READER_H_

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "coordinator/node/site.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

inline constexpr size_t kLogChunkBytes = 64 << 10;

// Not thread-safe.
class LogReader {
 public:
  // kNotFound: the job has no such rank, or no output is on record. Of all ranks (`rank` -1) those that have
  // none are left out.
  static Result<LogReader> Open(const Site& site, const v1::Job& job, const v1::LogsRequest& request);

  // What has not been read yet of any rank, in turn; nothing: that is all there is now. A file that was cut
  // shorter meanwhile is read from its new end on.
  Result<std::optional<v1::LogChunk>> Next();
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  struct File {
    uint32_t rank = 0;
    Fd fd;
    uint64_t offset = 0;
  };
  Result<std::optional<v1::LogChunk>> Read(File& file);

  std::vector<File> files_;
  std::vector<std::string> paths_;
  size_t turn_ = 0;
};

// A process that could print something exists, or may come to.
bool MayPrint(const v1::Job& job);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_LOG_READER_H_

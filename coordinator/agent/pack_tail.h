// Reads chunks out of packs while a ghost still writes them, so that they travel before the image is
// complete. Only a head start: what it misses is found in the image's manifest afterwards.
#ifndef COORDINATOR_AGENT_PACK_TAIL_H_
#define COORDINATOR_AGENT_PACK_TAIL_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "coordinator/agent/chunk_sender.h"

namespace stasis {

// A thread of its own from Start() to the end of the object. Thread-compatible.
class PackTail {
 public:
  using Take = std::function<Status(std::vector<ChunkRecord>)>;

  // Follows the packs below `store_root` that one of `writers` has open, and hands over what is in them, some
  // MiB at once, as it comes. An error of `take` ends it.
  static Result<std::unique_ptr<PackTail>> Start(const std::string& store_root, std::vector<pid_t> writers,
                                                 Take take);
  // Takes what has been written by now, and ends.
  ~PackTail();
  PackTail(const PackTail&) = delete;
  PackTail& operator=(const PackTail&) = delete;

 private:
  struct Pack {
    Fd file;
    uint64_t offset = 0;
    bool ended = false;  // its footer was met, or what is no record
  };

  PackTail(std::string folder, std::vector<pid_t> writers, Take take, Fd watch, Fd stop);
  void Run();
  Status Look();
  bool IsTheirs(const std::string& path) const;
  Status Advance(Pack& pack);

  const std::string folder_;
  const std::vector<pid_t> writers_;
  const Take take_;
  const Fd watch_, stop_;
  std::map<std::string, Pack> packs_;  // by name
  std::thread thread_;
};

// The records that `bytes` begins with, as far as they are whole; `*used` bytes of it. kCorrupt: what follows
// is none.
Status SplitRecords(std::span<const std::byte> bytes, std::vector<ChunkRecord>* records, size_t* used);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_PACK_TAIL_H_

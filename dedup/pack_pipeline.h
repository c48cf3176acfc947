// Records on their way into new packs: callers copy them into blocks, one thread writes full blocks one after
// the other. Bounded memory: who comes while all blocks are full waits.
//
// Append() may be called by any number of threads; the rest by one, when no Append() runs.
#ifndef DEDUP_PACK_PIPELINE_H_
#define DEDUP_PACK_PIPELINE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "dedup/pack.h"
#include "dedup/store_core.h"

namespace stasis {

class PackPipeline {
 public:
  // `locks` outlives it, and holds a lock on each pack from its first byte on: exclusive until Finish(), then
  // shared.
  // `key`: that of what is appended, as it lies in a pack; empty: nothing is encrypted.
  PackPipeline(std::shared_ptr<StoreCore> core, LockFile& locks, std::vector<std::byte> key = {});
  // Takes back what no Finish() has made visible.
  ~PackPipeline();
  PackPipeline(const PackPipeline&) = delete;
  PackPipeline& operator=(const PackPipeline&) = delete;

  // The first error of the thread that writes is returned by every later call.
  Status Append(const RecordHeader& header, std::span<const std::byte> stored);
  Status status() const;
  // What is appended from now on is encrypted with another key, and so goes to another pack.
  Status SetKey(std::vector<std::byte> key);
  // All that was appended is on stable storage, visible and in the index of the store. Once.
  Status Finish();
  StoreCounts added() const;

 private:
  struct OutPack {
    uint64_t id = 0;
    std::unique_ptr<StoreFile> file;
    std::vector<PackEntry> entries;
    uint64_t size = 0;
    bool visible = false;
  };
  struct Block {
    OutPack* pack = nullptr;
    uint64_t offset = 0;  // in the pack
    size_t used = 0;
    size_t copying = 0;  // callers that still copy into it
    bool ends_pack = false;
    std::unique_ptr<std::byte[]> bytes;
  };

  Block* RoomFor(std::unique_lock<std::mutex>& lock, size_t bytes);
  void OpenBlock();
  void CloseBlock();
  void EndPack();
  void StartThread();
  void WriteBlocks();
  Status Write(Block& block);
  Status Seal(OutPack& pack);
  Status Publish();
  void Stop();

  const std::shared_ptr<StoreCore> core_;
  LockFile& locks_;
  std::vector<std::byte> key_;  // guarded by mutex_

  mutable std::mutex mutex_;
  std::condition_variable work_;  // for the thread that writes
  std::condition_variable room_;  // for callers
  // Guarded by mutex_; of packs: id, entries, size.
  std::vector<std::unique_ptr<OutPack>> packs_;
  OutPack* pack_ = nullptr;                  // that is being filled
  std::unique_ptr<Block> block_;             // that is being filled
  std::deque<std::unique_ptr<Block>> full_;  // to be written, in order
  std::vector<std::unique_ptr<Block>> spare_;
  size_t blocks_ = 0;  // that exist
  bool stopping_ = false;
  Status error_;
  StoreCounts added_;

  std::thread thread_;
  OutPack* unsealed_ = nullptr;  // written and not yet synced; the thread's own, then Finish()'s
};

}  // namespace stasis

#endif  // DEDUP_PACK_PIPELINE_H_

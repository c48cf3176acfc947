// Sends chunks to another node: those that it lacks, several at once, and each only once for a token.
#ifndef COORDINATOR_AGENT_CHUNK_SENDER_H_
#define COORDINATOR_AGENT_CHUNK_SENDER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "coordinator/agent/peer_link.h"
#include "dedup/image.h"
#include "dedup/live_chunks.h"
#include "dedup/store.h"

namespace stasis {

// A chunk as a pack has it.
struct ChunkRecord {
  Hash128 hash;
  std::vector<std::byte> bytes;  // header and what follows
};

// Thread-safe. Threads of its own; ends with the object, and then drops what waits.
class ChunkSender {
 public:
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  ChunkSender(PeerLink& peer, std::string token);
  ~ChunkSender();
  ChunkSender(const ChunkSender&) = delete;
  ChunkSender& operator=(const ChunkSender&) = delete;

  // Of `chunks` those that the target lacks, as it says now.
  Result<std::vector<ChunkRef>> Lacking(std::span<const ChunkRef> chunks);
  // Sends chunks that Lacking() has named; returns when all are there. `progress` is told stored bytes, and
  // may be null.
  Status Send(const std::shared_ptr<Store>& store, std::span<const ChunkRef> chunks,
              const Progress& progress);
  // Takes chunks that are just being written, as many as fit at once; the target is asked which it lacks.
  // Waits while too much waits already.
  Status Pass(std::vector<ChunkRecord> records);
  // What was passed is there, or the first error.
  Status Flush();
  // What waits is not sent any more: `why` is the error, unless there was one. Of any thread, also out of a
  // `progress`.
  void GiveUp(const Status& why);

  uint64_t sent_bytes() const;  // on the wire, without protocol
  uint64_t sent_chunks() const;

 private:
  using Work = std::function<Status()>;
  void Push(Work work);
  void PushRecords(std::vector<ChunkRecord> records);
  void Run();
  Status PutAll(std::span<const ChunkRecord> records);
  bool Knows(const Hash128& hash) const;
  void Note(std::span<const Hash128> hashes);

  PeerLink& peer_;
  const std::string token_;

  mutable std::mutex mutex_;
  std::condition_variable work_, room_;
  // Guarded by mutex_.
  std::deque<Work> waiting_;
  size_t busy_ = 0;
  bool stop_ = false;
  Status error_;
  std::unordered_set<Hash128, HashLowBits> there_;  // the target has said so, or was sent it
  uint64_t sent_bytes_ = 0, sent_chunks_ = 0;

  std::vector<std::thread> threads_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_CHUNK_SENDER_H_

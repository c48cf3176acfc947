#include "coordinator/agent/chunk_sender.h"

#include <atomic>
#include <utility>

#include "base/quiet_thread.h"
#include "dedup/image_manifest.h"

namespace stasis {
namespace {

// Enough of them under way to fill a link while answers travel.
constexpr size_t kThreads = 8;
constexpr size_t kMaxWaiting = 2 * kThreads;
constexpr uint64_t kBatchBytes = 1 << 20;

std::vector<Hash128> HashesOf(std::span<const ChunkRef> chunks) {
  std::vector<Hash128> hashes;
  hashes.reserve(chunks.size());
  for (const ChunkRef& chunk : chunks) hashes.push_back(chunk.hash);
  return hashes;
}

}  // namespace

ChunkSender::ChunkSender(PeerLink& peer, std::string token) : peer_(peer), token_(std::move(token)) {
  for (size_t i = 0; i < kThreads; ++i) threads_.push_back(StartQuietThread([this] { Run(); }));
}

ChunkSender::~ChunkSender() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ChunkSender::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    Work work = std::move(waiting_.front());
    waiting_.pop_front();
    ++busy_;
    bool failed = !error_.ok();
    lock.unlock();
    Status status = failed ? Status() : work();
    work = nullptr;
    lock.lock();
    --busy_;
    if (error_.ok() && !status.ok()) error_ = std::move(status);
    room_.notify_all();
  }
}

void ChunkSender::Push(Work work) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return waiting_.size() < kMaxWaiting; });
  waiting_.push_back(std::move(work));
  work_.notify_one();
}

Status ChunkSender::Flush() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return waiting_.empty() && busy_ == 0; });
  return error_;
}

void ChunkSender::GiveUp(const Status& why) {
  std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = why;
}

bool ChunkSender::Knows(const Hash128& hash) const {
  std::lock_guard lock(mutex_);
  return there_.contains(hash);
}

void ChunkSender::Note(std::span<const Hash128> hashes) {
  std::lock_guard lock(mutex_);
  there_.insert(hashes.begin(), hashes.end());
}

Result<std::vector<ChunkRef>> ChunkSender::Lacking(std::span<const ChunkRef> chunks) {
  std::vector<ChunkRef> unknown;
  for (const ChunkRef& chunk : chunks) {
    if (!Knows(chunk.hash)) unknown.push_back(chunk);
  }
  std::vector<Hash128> asked = HashesOf(unknown), there;
  ASSIGN_OR_RETURN(std::vector<bool> missing, peer_.Missing(token_, asked));
  std::vector<ChunkRef> lacking;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (missing[i]) lacking.push_back(unknown[i]);
    if (!missing[i]) there.push_back(asked[i]);
  }
  Note(there);
  return lacking;
}

Status ChunkSender::PutAll(std::span<const ChunkRecord> records) {
  std::string bytes;
  std::vector<Hash128> hashes;
  for (const ChunkRecord& record : records) {
    bytes.append(reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size());
    hashes.push_back(record.hash);
  }
  if (hashes.empty()) return Status();
  const uint64_t size = bytes.size();
  RETURN_IF_ERROR(peer_.Put(token_, std::move(bytes)));
  Note(hashes);
  std::lock_guard lock(mutex_);
  sent_bytes_ += size;
  sent_chunks_ += hashes.size();
  return Status();
}

Status ChunkSender::Send(const std::shared_ptr<Store>& store, std::span<const ChunkRef> chunks,
                         const Progress& progress) {
  if (chunks.empty()) return Flush();
  ASSIGN_OR_RETURN(std::unique_ptr<StoreReader> reader, StoreReader::Begin(store, HashesOf(chunks)));
  std::atomic<uint64_t> done{0};
  std::mutex told;
  const uint64_t total = TotalSize(chunks);
  for (std::span<const ChunkRef> batch : CutIntoBatches(chunks, kBatchBytes)) {
    Push([&, batch]() -> Status {
      std::vector<ChunkRecord> records;
      for (const ChunkRef& chunk : batch) {
        ASSIGN_OR_RETURN(std::vector<std::byte> bytes, reader->ReadRecord(chunk.hash));
        records.push_back({chunk.hash, std::move(bytes)});
      }
      RETURN_IF_ERROR(PutAll(records));
      std::lock_guard lock(told);
      done += TotalSize(batch);
      if (progress) progress(done, total);
      return Status();
    });
  }
  return Flush();
}

// Cut as what is read from the store is: all that is under way shares the link, and each call has to come to
// its end in time.
Status ChunkSender::Pass(std::vector<ChunkRecord> records) {
  std::vector<ChunkRecord> batch;
  uint64_t bytes = 0;
  for (ChunkRecord& record : records) {
    if (!batch.empty() && bytes + record.bytes.size() > kBatchBytes) {
      PushRecords(std::exchange(batch, {}));
      bytes = 0;
    }
    bytes += record.bytes.size();
    batch.push_back(std::move(record));
  }
  if (!batch.empty()) PushRecords(std::move(batch));
  std::lock_guard lock(mutex_);
  return error_;
}

void ChunkSender::PushRecords(std::vector<ChunkRecord> records) {
  Push([this, records = std::move(records)]() -> Status {
    std::vector<ChunkRecord> wanted;
    std::vector<Hash128> asked;
    for (const ChunkRecord& record : records) {
      if (!Knows(record.hash)) asked.push_back(record.hash);
    }
    ASSIGN_OR_RETURN(std::vector<bool> missing, peer_.Missing(token_, asked));
    std::unordered_set<Hash128, HashLowBits> lacking;
    for (size_t i = 0; i < asked.size(); ++i) {
      if (missing[i]) lacking.insert(asked[i]);
    }
    for (const ChunkRecord& record : records) {
      if (lacking.erase(record.hash) > 0) wanted.push_back(record);
    }
    return PutAll(wanted);
  });
}

uint64_t ChunkSender::sent_bytes() const {
  std::lock_guard lock(mutex_);
  return sent_bytes_;
}

uint64_t ChunkSender::sent_chunks() const {
  std::lock_guard lock(mutex_);
  return sent_chunks_;
}

}  // namespace stasis

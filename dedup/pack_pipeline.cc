#include "dedup/pack_pipeline.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/quiet_thread.h"
#include "dedup/crypt.h"

namespace stasis {
namespace {

constexpr size_t kBlockBytes = 4 << 20;
constexpr size_t kBlocks = 8;
static_assert(kPackHeaderBytes + kMaxKeyBlock + kRecordHeaderBytes + kMaxChunkBytes + kSealBytes +
                  kPackFooterBytes <=
              kBlockBytes);

}  // namespace

PackPipeline::PackPipeline(std::shared_ptr<StoreCore> core, LockFile& locks, std::vector<std::byte> key)
    : core_(std::move(core)), locks_(locks), key_(std::move(key)) {}

PackPipeline::~PackPipeline() {
  {
    std::lock_guard lock(mutex_);
    if (error_.ok()) error_ = Status(StatusCode::kCancelled, "given up");  // what waits is not written
  }
  Stop();
  for (const std::unique_ptr<OutPack>& pack : packs_) {
    if (!pack->file || pack->visible) continue;
    pack->file.reset();
    (void)core_->files().Remove(core_->IndexPath(pack->id)).ok();
    core_->DropTemp(locks_, pack->id);
  }
}

Status PackPipeline::Append(const RecordHeader& header, std::span<const std::byte> stored) {
  const size_t bytes = kRecordHeaderBytes + stored.size();
  std::unique_lock lock(mutex_);
  Block* block = RoomFor(lock, bytes);
  if (block == nullptr) return error_;
  std::byte* to = block->bytes.get() + block->used;
  pack_->entries.push_back({header.hash, block->offset + block->used, header.raw_size, header.stored_size});
  pack_->size += bytes;
  block->used += bytes;
  ++block->copying;
  ++added_.chunks;
  added_.raw_bytes += header.raw_size;
  added_.stored_bytes += bytes;
  if (pack_->size + kPackFooterBytes >= core_->options().pack_bytes) EndPack();
  lock.unlock();
  EncodeRecordHeader(header, std::span<std::byte, kRecordHeaderBytes>(to, kRecordHeaderBytes));
  std::memcpy(to + kRecordHeaderBytes, stored.data(), stored.size());
  lock.lock();
  if (--block->copying == 0) work_.notify_one();
  return Status();
}

Status PackPipeline::status() const {
  std::lock_guard lock(mutex_);
  return error_;
}

Status PackPipeline::SetKey(std::vector<std::byte> key) {
  std::unique_lock lock(mutex_);
  if (key == key_) return error_;
  if (pack_ != nullptr && RoomFor(lock, 0) != nullptr) EndPack();
  key_ = std::move(key);
  return error_;
}

StoreCounts PackPipeline::added() const {
  std::lock_guard lock(mutex_);
  return added_;
}

// The block that has room; null when there is an error.
PackPipeline::Block* PackPipeline::RoomFor(std::unique_lock<std::mutex>& lock, size_t bytes) {
  for (;;) {
    if (!error_.ok()) return nullptr;
    if (block_ && block_->used + bytes + kPackFooterBytes <= kBlockBytes) return block_.get();
    if (block_) CloseBlock();
    if (!spare_.empty() || blocks_ < kBlocks) {
      OpenBlock();
    } else {
      room_.wait(lock);
    }
  }
}

void PackPipeline::OpenBlock() {
  if (!thread_.joinable()) StartThread();
  if (spare_.empty()) {
    block_ = std::make_unique<Block>();
    block_->bytes = std::make_unique_for_overwrite<std::byte[]>(kBlockBytes);
    ++blocks_;
  } else {
    block_ = std::move(spare_.back());
    spare_.pop_back();
  }
  block_->used = 0;
  block_->ends_pack = false;
  if (pack_ == nullptr) {
    packs_.push_back(std::make_unique<OutPack>());
    pack_ = packs_.back().get();
    pack_->id = RandomPackId();
    pack_->size = block_->used = kPackHeaderBytes + key_.size();
    EncodePackHeader(pack_->id, static_cast<uint32_t>(key_.size()),
                     std::span<std::byte, kPackHeaderBytes>(block_->bytes.get(), kPackHeaderBytes));
    std::copy(key_.begin(), key_.end(), block_->bytes.get() + kPackHeaderBytes);
  }
  block_->pack = pack_;
  block_->offset = pack_->size - block_->used;
}

void PackPipeline::CloseBlock() {
  full_.push_back(std::move(block_));
  work_.notify_one();
}

void PackPipeline::EndPack() {
  std::byte* to = block_->bytes.get() + block_->used;
  block_->used += kPackFooterBytes;
  pack_->size += kPackFooterBytes;
  EncodePackFooter(pack_->id, pack_->entries.size(), pack_->size,
                   std::span<std::byte, kPackFooterBytes>(to, kPackFooterBytes));
  block_->ends_pack = true;
  pack_ = nullptr;
  CloseBlock();
}

void PackPipeline::StartThread() {
  // Signals are for the threads that the process has chosen for them.
  thread_ = StartQuietThread([this] { WriteBlocks(); });
}

void PackPipeline::WriteBlocks() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return full_.empty() ? stopping_ : full_.front()->copying == 0; });
    if (full_.empty()) return;
    std::unique_ptr<Block> block = std::move(full_.front());
    full_.pop_front();
    if (error_.ok()) {
      lock.unlock();
      Status status = Write(*block);
      lock.lock();
      if (error_.ok()) error_ = std::move(status);
    }
    spare_.push_back(std::move(block));
    room_.notify_all();
  }
}

Status PackPipeline::Write(Block& block) {
  OutPack& pack = *block.pack;
  if (!pack.file) {
    ASSIGN_OR_RETURN(bool locked, locks_.TryLock(pack.id, true));
    if (!locked) return Status(StatusCode::kInternal, "the random id of a pack is in use");
    ASSIGN_OR_RETURN(pack.file, core_->files().Create(core_->TempPath(pack.id)));
  }
  RETURN_IF_ERROR(pack.file->WriteAt({block.bytes.get(), block.used}, block.offset));
  pack.file->StartSync(block.offset, block.used);
  if (!block.ends_pack) return Status();
  // The pack before has had the time of this one to reach the disk: little is left to wait for.
  OutPack* before = std::exchange(unsealed_, &pack);
  return before != nullptr ? Seal(*before) : Status();
}

// A full pack and its index are on stable storage, but for their names. Nobody appends to it any more.
Status PackPipeline::Seal(OutPack& pack) {
  RETURN_IF_ERROR(pack.file->Sync());
  return core_->WriteIndex(core_->IndexPath(pack.id), pack.id, pack.size, pack.entries);
}

void PackPipeline::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    work_.notify_one();
    room_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Status PackPipeline::Finish() {
  {
    std::unique_lock lock(mutex_);
    if (pack_ != nullptr && RoomFor(lock, 0) != nullptr) EndPack();
    if (!error_.ok()) return error_;
  }
  Stop();
  Status result = status();
  if (result.ok() && unsealed_ != nullptr) result = Seal(*unsealed_);
  if (result.ok()) result = Publish();
  std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = result;
  return result;
}

Status PackPipeline::Publish() {
  for (const std::unique_ptr<OutPack>& pack : packs_) {
    RETURN_IF_ERROR(core_->files().Rename(core_->TempPath(pack->id), core_->PackPath(pack->id)));
    pack->visible = true;
  }
  // Also when nothing is new: chunks may have been found in packs whose names their writer has not synced
  // yet.
  // The same for the folder itself.
  RETURN_IF_ERROR(core_->files().SyncFolder(core_->packs_folder()));
  RETURN_IF_ERROR(core_->files().SyncFolder(core_->root()));
  for (const std::unique_ptr<OutPack>& pack : packs_) {
    ASSIGN_OR_RETURN(bool shared, locks_.TryLock(pack->id, false));
    STASIS_CHECK(shared);
    pack->file.reset();
    core_->AddPack(pack->id, std::move(pack->entries));
  }
  packs_.clear();
  return Status();
}

}  // namespace stasis

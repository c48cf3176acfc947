#include "softgpu/nccl/ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace softgpu::nccl {

namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Not the private kind: the word may be shared by processes.
void Futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}

}  // namespace

void Bell::Ring() {
  count_.fetch_add(1);
  if (sleepers_.load() != 0) Futex(&count_, FUTEX_WAKE, INT_MAX);
}

void Bell::Wait(uint32_t seen) {
  sleepers_.fetch_add(1);
  if (count_.load() == seen) Futex(&count_, FUTEX_WAIT, seen);
  sleepers_.fetch_sub(1);
}

bool Ring::Sane() const {
  // In this order: the reader's position only grows, so the difference is at most what it really was.
  const uint64_t read = state_->read.load(std::memory_order_acquire);
  const uint64_t written = state_->written.load(std::memory_order_acquire);
  return written - read <= capacity_ || state_->read.load(std::memory_order_acquire) != read;
}

size_t Ring::Readable() const {
  const uint64_t filled = state_->written.load(std::memory_order_acquire) -  //
                          state_->read.load(std::memory_order_relaxed);
  return filled <= capacity_ ? filled : 0;
}

size_t Ring::Writable() const {
  const uint64_t filled = state_->written.load(std::memory_order_relaxed) -  //
                          state_->read.load(std::memory_order_acquire);
  return filled <= capacity_ ? capacity_ - filled : 0;
}

size_t Ring::ReadableSpan(const std::byte** from) const {
  const size_t at = state_->read.load(std::memory_order_relaxed) & (capacity_ - 1);
  *from = data_ + at;
  return std::min(Readable(), capacity_ - at);
}

size_t Ring::WritableSpan(std::byte** to) const {
  const size_t at = state_->written.load(std::memory_order_relaxed) & (capacity_ - 1);
  *to = data_ + at;
  return std::min(Writable(), capacity_ - at);
}

void Ring::Consume(size_t size) {
  state_->read.store(state_->read.load(std::memory_order_relaxed) + size, std::memory_order_release);
}

void Ring::Produce(size_t size) {
  state_->written.store(state_->written.load(std::memory_order_relaxed) + size, std::memory_order_release);
}

size_t Ring::Write(const void* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    std::byte* to;
    const size_t part = std::min(WritableSpan(&to), size - done);
    if (part == 0) break;
    std::memcpy(to, static_cast<const std::byte*>(bytes) + done, part);
    Produce(part);
    done += part;
  }
  return done;
}

size_t Ring::Read(void* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const std::byte* from;
    const size_t part = std::min(ReadableSpan(&from), size - done);
    if (part == 0) break;
    std::memcpy(static_cast<std::byte*>(bytes) + done, from, part);
    Consume(part);
    done += part;
  }
  return done;
}

}  // namespace softgpu::nccl

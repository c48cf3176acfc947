// Bytes from one rank to another through memory that both map, perhaps in two processes.
#ifndef SOFTGPU_NCCL_RING_H_
#define SOFTGPU_NCCL_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softgpu::nccl {

// What a rank sleeps on: rung when anything changed that it may be waiting for. Lies in shared memory,
// zero-initialised; thread- and process-safe. Whoever dies asleep costs the others a system call, no more.
class Bell {
 public:
  uint32_t Count() const { return count_.load(); }
  void Ring();
  // Returns at once when the bell was rung since Count() gave `seen`; may return early.
  void Wait(uint32_t seen);

 private:
  std::atomic<uint32_t> count_;
  std::atomic<uint32_t> sleepers_;
};

// The head of a ring: one writer, one reader. What the other side wrote is not trusted.
struct RingState {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

// One side's view of a ring. A value. One thread writes, one thread reads.
class Ring {
 public:
  Ring() = default;
  // `capacity`: a power of two.
  Ring(RingState* state, std::byte* data, size_t capacity)
      : state_(state), data_(data), capacity_(capacity) {}

  bool valid() const { return state_ != nullptr; }
  // Bytes that Read() (Write()) would take; 0 when the other side's positions make no sense.
  size_t Readable() const;
  size_t Writable() const;
  // False: the positions make no sense, so the other side's memory was spoilt.
  bool Sane() const;
  // How many of `size` bytes were moved.
  size_t Write(const void* bytes, size_t size);
  size_t Read(void* bytes, size_t size);
  // For descriptors: a contiguous readable (writable) part, and how much of it was dealt with.
  size_t ReadableSpan(const std::byte** from) const;
  void Consume(size_t size);
  size_t WritableSpan(std::byte** to) const;
  void Produce(size_t size);

 private:
  RingState* state_ = nullptr;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_RING_H_

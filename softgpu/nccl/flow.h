// Flows: the parts of operations that go on side by side. Each moves what it can without waiting.
#ifndef SOFTGPU_NCCL_FLOW_H_
#define SOFTGPU_NCCL_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "softgpu/nccl/link.h"
#include "softgpu/nccl/operation.h"

namespace softgpu::nccl {

// What goes in front of the bytes of an operation, so that ranks that do not do the same thing find out
// instead of mixing up each other's bytes.
struct MessageHeader {
  static constexpr uint32_t kMark = 0x4c43434e;
  uint32_t mark = kMark;
  Kind kind = Kind::kSend;
  uint8_t type = 0;
  Reduction reduction = Reduction::kNone;
  uint8_t stage = 0;
  int32_t root = 0;
  uint32_t unused = 0;
  uint64_t sequence = 0;  // of collectives
  uint64_t count = 0;     // as the call counts; bytes of messages
  // The sender's factor: not compared.
  uint64_t scalar = 0;

  bool Fits(const MessageHeader& expected) const;
};
static_assert(sizeof(MessageHeader) == 40);

enum class Progress { kIdle, kMoved, kDone, kMismatch };

// Bytes to a peer.
class Outgoing {
 public:
  Outgoing(Link* link, Channel channel, const MessageHeader& header, const void* bytes, size_t size)
      : link_(link),
        channel_(channel),
        header_(header),
        bytes_(static_cast<const std::byte*>(bytes)),
        size_(size) {}
  Progress Step();

 private:
  Link* link_;
  Channel channel_;
  MessageHeader header_;
  bool header_sent_ = false;
  const std::byte* bytes_;
  size_t size_;
  size_t done_ = 0;
};

// Bytes from a peer. Where they go is said part by part, so that a reduction can take them in slices.
class Incoming {
 public:
  Incoming(Link* link, Channel channel, const MessageHeader& expected)
      : link_(link), channel_(channel), expected_(expected) {}
  Incoming(Link* link, Channel channel, const MessageHeader& expected, void* to, size_t size)
      : Incoming(link, channel, expected) {
    SetTarget(to, size);
  }
  void SetTarget(void* to, size_t size) {
    to_ = static_cast<std::byte*>(to);
    size_ = size;
    done_ = 0;
  }
  // kDone: the header is there and the target full.
  Progress Step();
  // What came instead of what was expected, or the sender's header.
  const MessageHeader& header() const { return header_; }
  const MessageHeader& expected() const { return expected_; }

 private:
  Link* link_;
  Channel channel_;
  MessageHeader expected_;
  MessageHeader header_;
  bool header_received_ = false;
  std::byte* to_ = nullptr;
  size_t size_ = 0;
  size_t done_ = 0;
};

// This rank's slice of a reduction: the peers' parts are gathered in slots of the staging memory, a segment
// at a time, and combined in the order of the ranks.
class Fold {
 public:
  struct Shape {
    ncclDataType_t type;
    Reduction reduction;
    int rank;
    Part own;
    size_t elements;
    void* out;
    std::byte* staging;
    size_t staging_bytes;
  };
  // `peers`: by rank, this one's left out.
  Fold(const Shape& shape, std::vector<Incoming> peers);
  Progress Step();
  // The flow whose header did not fit.
  const Incoming& mismatch() const { return peers_[mismatch_]; }

 private:
  void BeginSegment();
  void Combine();

  const Shape shape_;
  std::vector<Incoming> peers_;
  std::vector<bool> filled_;
  size_t slot_bytes_ = 0;
  size_t first_ = 0;    // of the segment
  size_t segment_ = 0;  // elements
  size_t mismatch_ = 0;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_FLOW_H_

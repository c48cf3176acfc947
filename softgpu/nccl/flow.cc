#include "softgpu/nccl/flow.h"

#include <algorithm>

namespace softgpu::nccl {

namespace {

// A ring that another process spoilt would be waited for in vain.
Progress Idle(const Ring& ring) { return ring.Sane() ? Progress::kIdle : Progress::kMismatch; }

}  // namespace

bool MessageHeader::Fits(const MessageHeader& expected) const {
  return mark == kMark && kind == expected.kind && type == expected.type && reduction == expected.reduction &&
         stage == expected.stage && root == expected.root && sequence == expected.sequence &&
         count == expected.count;
}

Progress Outgoing::Step() {
  Ring& ring = link_->out[channel_];
  bool moved = false;
  if (!header_sent_) {
    if (ring.Writable() < sizeof header_) return Idle(ring);
    ring.Write(&header_, sizeof header_);
    header_sent_ = moved = true;
  }
  const size_t written = ring.Write(bytes_ + done_, size_ - done_);
  done_ += written;
  moved |= written != 0;
  if (moved) link_->Wake();
  if (done_ == size_) return Progress::kDone;
  return moved ? Progress::kMoved : Idle(ring);
}

Progress Incoming::Step() {
  Ring& ring = link_->in[channel_];
  bool moved = false;
  if (!header_received_) {
    if (ring.Readable() < sizeof header_) return Idle(ring);
    ring.Read(&header_, sizeof header_);
    if (!header_.Fits(expected_)) return Progress::kMismatch;
    header_received_ = moved = true;
  }
  const size_t read = ring.Read(to_ + done_, size_ - done_);
  done_ += read;
  moved |= read != 0;
  if (moved) link_->Wake();
  if (done_ == size_) return Progress::kDone;
  return moved ? Progress::kMoved : Idle(ring);
}

Fold::Fold(const Shape& shape, std::vector<Incoming> peers) : shape_(shape), peers_(std::move(peers)) {
  // Whole cache lines, so that no slot's elements are misaligned.
  if (!peers_.empty()) slot_bytes_ = shape_.staging_bytes / peers_.size() / 64 * 64;
  BeginSegment();
}

void Fold::BeginSegment() {
  const size_t element = ElementBytes(shape_.type);
  const size_t left = shape_.elements - first_;
  segment_ = peers_.empty() ? left : std::min(left, slot_bytes_ / element);
  filled_.assign(peers_.size(), false);
  for (size_t i = 0; i < peers_.size(); i++)
    peers_[i].SetTarget(shape_.staging + i * slot_bytes_, segment_ * element);
}

void Fold::Combine() {
  const size_t offset = first_ * ElementBytes(shape_.type);
  std::vector<Part> parts;
  for (size_t i = 0; i < peers_.size(); i++)
    parts.push_back({shape_.staging + i * slot_bytes_, peers_[i].header().scalar});
  const Part own{static_cast<const std::byte*>(shape_.own.data) + offset, shape_.own.scalar};
  parts.insert(parts.begin() + shape_.rank, own);
  Reduce(shape_.type, shape_.reduction, parts.data(), static_cast<int>(parts.size()),
         static_cast<std::byte*>(shape_.out) + offset, segment_);
}

Progress Fold::Step() {
  bool moved = false, full = true;
  for (size_t i = 0; i < peers_.size(); i++) {
    if (filled_[i]) continue;
    const Progress progress = peers_[i].Step();
    if (progress == Progress::kMismatch) {
      mismatch_ = i;
      return progress;
    }
    filled_[i] = progress == Progress::kDone;
    moved |= progress != Progress::kIdle;
    full &= filled_[i];
  }
  if (!full) return moved ? Progress::kMoved : Progress::kIdle;
  Combine();
  first_ += segment_;
  if (first_ == shape_.elements) return Progress::kDone;
  BeginSegment();
  return Progress::kMoved;
}

}  // namespace softgpu::nccl

#include "softgpu/device/connection.h"

#include <utility>

namespace softgpu {

using stasis::Message;
using stasis::MessageEncoder;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

// Enough for any burst that a reading client can cause; a client that lets it fill up is not reading.
constexpr size_t kMaxQueuedMessages = 1024;
constexpr size_t kMaxQueuedBytes = 8 << 20;

}  // namespace

Result<std::optional<Message>> Connection::Receive() {
  ASSIGN_OR_RETURN(bool complete, stasis::ReceiveSome(socket_.get(), decoder_));
  if (!complete) return std::optional<Message>();
  return std::optional<Message>(decoder_.Take());
}

Status Connection::Send(Message message) {
  if (queue_.size() >= kMaxQueuedMessages || queued_bytes_ >= kMaxQueuedBytes) {
    return Status(StatusCode::kResourceExhausted, "the client does not read what it is sent");
  }
  ASSIGN_OR_RETURN(MessageEncoder encoder, MessageEncoder::Create(std::move(message), kReplyLimits));
  queued_bytes_ += encoder.pending();
  queue_.push_back(std::move(encoder));
  return Flush();
}

Status Connection::Flush() {
  while (!queue_.empty()) {
    size_t before = queue_.front().pending();
    ASSIGN_OR_RETURN(bool sent, queue_.front().Send(socket_.get()));
    queued_bytes_ -= before - queue_.front().pending();
    if (!sent) return Status();
    queue_.pop_front();
  }
  return Status();
}

}  // namespace softgpu

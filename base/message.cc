#include "base/message.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace stasis {
namespace {

constexpr size_t kWindowBytes = 64 << 10;

size_t BatchesOf(size_t fds) { return (fds + kMaxFdsPerBatch - 1) / kMaxFdsPerBatch; }

size_t FillersOf(size_t fds) { return std::max<size_t>(BatchesOf(fds), 1) - 1; }

size_t WireSize(size_t payload, size_t fds) { return sizeof(MessageHeader) + payload + FillersOf(fds); }

// Room for one batch of descriptors, aligned as the kernel wants it.
union ControlBuffer {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int) * kMaxFdsPerBatch)];
};

bool WouldBlock(int err) { return err == EAGAIN || err == EWOULDBLOCK; }

Status Closed() { return Status(StatusCode::kPeerDied, "the peer closed the connection"); }

void AttachFds(const std::vector<Fd>& fds, size_t batch, ControlBuffer& control, msghdr* message) {
  size_t first = batch * kMaxFdsPerBatch;
  if (first >= fds.size()) return;
  size_t count = std::min(fds.size() - first, kMaxFdsPerBatch);
  message->msg_control = control.bytes;
  message->msg_controllen = CMSG_SPACE(sizeof(int) * count);
  cmsghdr* c = CMSG_FIRSTHDR(message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int) * count);
  for (size_t i = 0; i < count; i++) {
    int fd = fds[first + i].get();
    std::memcpy(CMSG_DATA(c) + i * sizeof fd, &fd, sizeof fd);
  }
}

// Owns every descriptor that came with a message, so that no error path can leak one.
std::vector<Fd> TakeFds(msghdr* message) {
  std::vector<Fd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(message); c != nullptr; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

Status WaitFor(int socket, short events, const Deadline& deadline) {
  for (;;) {
    pollfd wait{socket, events, 0};
    int ready = poll(&wait, 1, deadline.PollTimeout());
    if (ready > 0) return Status();
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (deadline.Expired()) return Status(StatusCode::kTimeout, "deadline passed while waiting for the peer");
  }
}

}  // namespace

// ---- MessageDecoder

size_t MessageDecoder::TotalSize() const { return WireSize(header_.payload_size, header_.fd_count); }

bool MessageDecoder::complete() const { return have_ >= sizeof header_ && have_ == TotalSize(); }

std::span<std::byte> MessageDecoder::Window() {
  if (have_ < sizeof header_) {
    return std::as_writable_bytes(std::span<MessageHeader, 1>(&header_, 1)).subspan(have_);
  }
  size_t payload_have = have_ - sizeof header_;
  if (payload_have >= header_.payload_size) return std::span<std::byte>(&filler_, 1);
  size_t window = std::min<size_t>(header_.payload_size - payload_have, kWindowBytes);
  buffer_.resize(payload_have + window);
  return std::span<std::byte>(buffer_).subspan(payload_have);
}

Status MessageDecoder::CheckHeader() {
  if (header_.magic != kMessageMagic) {
    return Errorf(StatusCode::kCorrupt, "message magic is %08x", header_.magic);
  }
  if (header_.version != kMessageVersion) {
    return Errorf(StatusCode::kCorrupt, "message version is %u, not %u", header_.version, kMessageVersion);
  }
  if (header_.payload_size > limits_.max_payload) {
    return Errorf(StatusCode::kCorrupt, "message payload of %u bytes, at most %u are allowed",
                  header_.payload_size, limits_.max_payload);
  }
  if (header_.fd_count > limits_.max_fds) {
    return Errorf(StatusCode::kCorrupt, "message with %u descriptors, at most %u are allowed",
                  header_.fd_count, limits_.max_fds);
  }
  return Status();
}

Status MessageDecoder::Commit(size_t size, std::vector<Fd> fds) {
  bool had_header = have_ >= sizeof header_;
  have_ += size;
  fds_.insert(fds_.end(), std::make_move_iterator(fds.begin()), std::make_move_iterator(fds.end()));
  if (have_ < sizeof header_) {
    if (fds_.size() <= kMaxFdsPerBatch) return Status();
    return Status(StatusCode::kCorrupt, "more descriptors than a header can carry");
  }
  if (!had_header) RETURN_IF_ERROR(CheckHeader());
  if (fds_.size() > header_.fd_count || (complete() && fds_.size() != header_.fd_count)) {
    return Errorf(StatusCode::kCorrupt, "message announces %u descriptors, %zu came", header_.fd_count,
                  fds_.size());
  }
  return Status();
}

Message MessageDecoder::Take() {
  STASIS_CHECK(complete());
  Message message{header_.type, header_.request_id, std::move(buffer_), std::move(fds_)};
  buffer_.clear();
  fds_.clear();
  have_ = 0;
  header_ = MessageHeader{};
  return message;
}

// ---- MessageEncoder

MessageEncoder::MessageEncoder(Message message, size_t wire_size)
    : header_{kMessageMagic,
              kMessageVersion,
              static_cast<uint16_t>(message.fds.size()),
              message.type,
              static_cast<uint32_t>(message.payload.size()),
              message.request_id},
      message_(std::move(message)),
      wire_size_(wire_size) {}

Result<MessageEncoder> MessageEncoder::Create(Message message, MessageLimits limits) {
  if (message.payload.size() > limits.max_payload) {
    return Errorf(StatusCode::kInvalidArgument, "payload of %zu bytes, at most %u are allowed",
                  message.payload.size(), limits.max_payload);
  }
  if (message.fds.size() > limits.max_fds) {
    return Errorf(StatusCode::kInvalidArgument, "%zu descriptors, at most %u are allowed", message.fds.size(),
                  limits.max_fds);
  }
  size_t wire_size = WireSize(message.payload.size(), message.fds.size());
  return MessageEncoder(std::move(message), wire_size);
}

// Hands the kernel what belongs into one sendmsg: header and payload with the first batch of descriptors, or
// one filler with its batch. Returns the bytes taken, none when the socket is full.
Result<size_t> MessageEncoder::SendPart(int socket) {
  std::byte filler{};
  size_t body = sizeof header_ + message_.payload.size();
  iovec parts[2];
  msghdr message{};
  message.msg_iov = parts;
  size_t batch = 0;
  bool starts_batch = sent_ == 0;
  auto add = [&](void* data, size_t size) {
    if (size > 0) parts[message.msg_iovlen++] = iovec{data, size};
  };
  if (sent_ < body) {
    size_t header_sent = std::min(sent_, sizeof header_);
    size_t payload_sent = sent_ - header_sent;
    add(reinterpret_cast<std::byte*>(&header_) + header_sent, sizeof header_ - header_sent);
    add(message_.payload.data() + payload_sent, message_.payload.size() - payload_sent);
  } else {
    add(&filler, 1);
    batch = 1 + sent_ - body;
    starts_batch = true;
  }
  ControlBuffer control{};
  if (starts_batch) AttachFds(message_.fds, batch, control, &message);
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && WouldBlock(errno)) return size_t{0};
  if (sent < 0) return ErrnoStatus(errno, "sendmsg");
  return static_cast<size_t>(sent);
}

Result<bool> MessageEncoder::Send(int socket) {
  while (pending() > 0) {
    ASSIGN_OR_RETURN(size_t sent, SendPart(socket));
    if (sent == 0) return false;
    sent_ += sent;
  }
  return true;
}

// ---- receiving, and the blocking forms

static Status ReceiveWindow(int socket, MessageDecoder& decoder, bool* blocked) {
  std::span<std::byte> window = decoder.Window();
  iovec part{window.data(), window.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got;
  do {
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  *blocked = got < 0 && WouldBlock(errno);
  if (*blocked) return Status();
  if (got < 0) return ErrnoStatus(errno, "recvmsg");
  std::vector<Fd> fds = TakeFds(&message);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Status(StatusCode::kResourceExhausted, "descriptors were lost: too many, or no free ones here");
  }
  if (got == 0) return decoder.empty() ? Closed() : Closed().WithContext("in the middle of a message");
  return decoder.Commit(static_cast<size_t>(got), std::move(fds));
}

Result<bool> ReceiveSome(int socket, MessageDecoder& decoder) {
  while (!decoder.complete()) {
    bool blocked = false;
    RETURN_IF_ERROR(ReceiveWindow(socket, decoder, &blocked));
    if (blocked) return false;
  }
  return true;
}

Status SendMessage(int socket, Message message, const Deadline& deadline, MessageLimits limits) {
  ASSIGN_OR_RETURN(MessageEncoder encoder, MessageEncoder::Create(std::move(message), limits));
  for (;;) {
    ASSIGN_OR_RETURN(bool done, encoder.Send(socket));
    if (done) return Status();
    RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline));
  }
}

Result<Message> ReceiveMessage(int socket, MessageDecoder& decoder, const Deadline& deadline) {
  for (;;) {
    ASSIGN_OR_RETURN(bool done, ReceiveSome(socket, decoder));
    if (done) return decoder.Take();
    RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline));
  }
}

}  // namespace stasis

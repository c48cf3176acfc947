// Framed messages with file descriptors over unix stream sockets.
//
// On the wire: a MessageHeader, the payload, and one filler byte for each batch of descriptors after the
// first. The kernel passes at most 253 descriptors with one sendmsg(2), and each batch needs a byte to ride
// on: the first batch rides on the header, the others on the fillers. A reader never asks for a byte beyond
// the current message, so the descriptors that arrive with its bytes are its own.
#ifndef BASE_MESSAGE_H_
#define BASE_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace stasis {

struct MessageHeader {
  uint32_t magic;    // kMessageMagic
  uint16_t version;  // kMessageVersion
  uint16_t fd_count;
  uint32_t type;          // meaning belongs to the protocol above
  uint32_t payload_size;  // bytes
  uint64_t request_id;    // meaning belongs to the protocol above
};
static_assert(sizeof(MessageHeader) == 24 && offsetof(MessageHeader, request_id) == 16);

inline constexpr uint32_t kMessageMagic = 0x4d535453;  // "STSM" in memory
inline constexpr uint16_t kMessageVersion = 1;
inline constexpr size_t kMaxFdsPerBatch = 253;  // SCM_MAX_FD of the kernel

// What one message may hold. A larger one is refused by the sender, and is kCorrupt to the receiver.
struct MessageLimits {
  uint32_t max_payload = 16u << 20;
  uint16_t max_fds = 4096;
};

struct Message {
  uint32_t type = 0;
  uint64_t request_id = 0;
  std::vector<std::byte> payload;
  std::vector<Fd> fds;  // owned; a sender keeps its own, the receiver gets new descriptors, all close-on-exec
};

// The receiving half without the socket: takes bytes and descriptors as they come, gives one message at a
// time. Usage: fill part of Window(), Commit() that, and when complete() Take() the message. After an error
// it is useless.
class MessageDecoder {
 public:
  explicit MessageDecoder(MessageLimits limits = {}) : limits_(limits) {}

  // Where the next bytes go: never empty, never beyond the end of the current message, while it is not
  // complete. Memory grows with the bytes that came, not with the size that the header claims.
  std::span<std::byte> Window();
  // The first `size` bytes of the last Window() have been filled; `fds` came along with them.
  Status Commit(size_t size, std::vector<Fd> fds);
  bool complete() const;
  // True between messages: the stream may end here without anything being lost.
  bool empty() const { return have_ == 0; }
  // Needs complete(); makes the decoder ready for the next message.
  Message Take();

 private:
  size_t TotalSize() const;
  Status CheckHeader();

  MessageLimits limits_;
  MessageHeader header_{};
  std::vector<std::byte> buffer_;  // payload, grown as it comes
  std::byte filler_{};
  size_t have_ = 0;  // bytes of the whole message that have come
  std::vector<Fd> fds_;
};

// The sending half without blocking: owns a message and knows how much of it is on the wire.
class MessageEncoder {
 public:
  static Result<MessageEncoder> Create(Message message, MessageLimits limits = {});
  // One attempt that never blocks. True: all sent. False: the socket is full, call again when it is writable.
  // kPeerDied when nobody is there to receive; no SIGPIPE.
  Result<bool> Send(int socket);
  // Bytes not yet handed to the kernel.
  size_t pending() const { return wire_size_ - sent_; }

 private:
  MessageEncoder(Message message, size_t wire_size);
  Result<size_t> SendPart(int socket);

  MessageHeader header_;
  Message message_;
  size_t wire_size_;
  size_t sent_ = 0;
};

// One read attempt that never blocks: moves what the socket has into `decoder`, up to one complete message.
// True: a message is complete. False: nothing more to read now. kPeerDied: the stream ended; kCorrupt:
// malformed.
Result<bool> ReceiveSome(int socket, MessageDecoder& decoder);

// Sends one whole message, waiting while the socket is full. kInvalidArgument beyond the limits (nothing was
// sent); after any other error part of the message may be out, and the connection is useless.
Status SendMessage(int socket, Message message, const Deadline& deadline, MessageLimits limits = {});

// Receives one whole message. kTimeout leaves what has come in `decoder`, so a later call can continue; after
// any other error the connection is useless. Descriptors that came with a bad message are closed.
Result<Message> ReceiveMessage(int socket, MessageDecoder& decoder, const Deadline& deadline);

}  // namespace stasis

#endif  // BASE_MESSAGE_H_

// Connection: the daemon's end of one client's socket. Never blocks; what the client does not read is queued
// up to a bound. Single-threaded.
#ifndef SOFTGPU_DEVICE_CONNECTION_H_
#define SOFTGPU_DEVICE_CONNECTION_H_

#include <deque>
#include <optional>

#include "base/fd.h"
#include "base/message.h"
#include "base/status.h"
#include "softgpu/device/protocol.h"

namespace softgpu {

class Connection {
 public:
  // Takes a connected non-blocking socket.
  explicit Connection(stasis::Fd socket) : socket_(std::move(socket)), decoder_(kRequestLimits) {}

  int fd() const { return socket_.get(); }
  // The next message, or none for now. Not OK: the connection is over.
  stasis::Result<std::optional<stasis::Message>> Receive();
  // Sends or queues. kResourceExhausted: the client does not read and the queue is full; otherwise as
  // Flush().
  stasis::Status Send(stasis::Message message);
  // Sends what is queued, as far as the socket takes it. Not OK: the connection is over.
  stasis::Status Flush();
  bool wants_to_write() const { return !queue_.empty(); }

 private:
  stasis::Fd socket_;
  stasis::MessageDecoder decoder_;
  std::deque<stasis::MessageEncoder> queue_;
  size_t queued_bytes_ = 0;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_CONNECTION_H_

// The memory through which a rank is reached by its peers on the same machine: its bell, and two rings from
// every rank of the communicator (also from itself). A memfd that only those hold who map it, so nothing is
// left of it however they end.
#ifndef SOFTGPU_NCCL_INBOX_H_
#define SOFTGPU_NCCL_INBOX_H_

#include <memory>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/status.h"
#include "softgpu/nccl/ring.h"

namespace softgpu::nccl {

// Collectives and point-to-point messages do not wait for each other, so each has a channel of its own.
enum Channel : int { kCollectives = 0, kMessages = 1, kChannels = 2 };

inline constexpr size_t kRingBytes = size_t{128} << 10;

class Inbox {
 public:
  static stasis::Result<std::shared_ptr<Inbox>> Create(int ranks);
  // Another rank's, by the descriptor it sent. kCorrupt: no inbox of a communicator of that many ranks.
  static stasis::Result<std::shared_ptr<Inbox>> Open(int fd, int ranks);

  Bell* bell() const;
  Ring RingFrom(int rank, Channel channel) const;
  // To be sent to peers; closed by CloseDescriptor() once all have it.
  int fd() const { return fd_.get(); }
  void CloseDescriptor() { fd_.Reset(); }

 private:
  Inbox(int ranks, stasis::Mapping memory, stasis::Fd fd)
      : ranks_(ranks), memory_(std::move(memory)), fd_(std::move(fd)) {}
  const int ranks_;
  stasis::Mapping memory_;
  stasis::Fd fd_;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_INBOX_H_

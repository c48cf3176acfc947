// Link: a rank's way to one of its peers, whatever lies in between.
#ifndef SOFTGPU_NCCL_LINK_H_
#define SOFTGPU_NCCL_LINK_H_

#include <memory>

#include "base/fd.h"
#include "softgpu/nccl/inbox.h"

namespace softgpu::nccl {

class Proxy;

// Rings in both directions. In one process or on one machine `out` lies in the peer's inbox; else the proxy
// carries the bytes over TCP. The kernel that runs an operation reads and writes the rings; the sockets are
// the proxy's.
struct Link {
  Ring in[kChannels];
  Ring out[kChannels];
  // What `out` lies in: the peer's inbox, or one of ours that the proxy empties.
  std::shared_ptr<Inbox> outbox;
  Bell* peer_bell = nullptr;
  Proxy* proxy = nullptr;

  // Closed when the peer ends, however it does: what makes a link one to another process.
  stasis::Fd control;
  // TCP only.
  stasis::Fd data[kChannels];

  bool remote() const { return control.valid(); }
  bool tcp() const { return data[0].valid(); }
  // Something was put in `out` or taken from `in`.
  void Wake();
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_LINK_H_

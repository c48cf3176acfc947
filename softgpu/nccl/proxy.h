// Proxy: the thread of a rank that watches the sockets to other processes: it carries the bytes of TCP links
// and notices when a peer ends.
#ifndef SOFTGPU_NCCL_PROXY_H_
#define SOFTGPU_NCCL_PROXY_H_

#include <poll.h>

#include <atomic>
#include <functional>
#include <vector>

#include "softgpu/driver/thread.h"
#include "softgpu/nccl/link.h"

namespace softgpu::nccl {

class Proxy {
 public:
  enum class Event { kFailed, kDied };
  // Called on the proxy's thread: the peer said that it failed, or ended without a goodbye.
  using Report = std::function<void(int peer, Event event)>;

  // Watches those of `links` that lead to other processes, by rank; they and `bell`, rung whenever bytes
  // moved, must outlive it.
  Proxy(std::vector<Link>* links, Bell* bell, Report report);
  ~Proxy();

  // False: the system has no thread or descriptor left.
  bool Start();
  // A ring of a TCP link changed. Thread-safe.
  void Kick();
  // Tells the other processes that this rank failed. Thread-safe.
  void SendFailed();
  // Ends the thread. In good order, the peers first get what was sent to them, and a goodbye.
  void Stop(bool good_order);

 private:
  struct Peer {
    int rank;
    Link* link;
    bool control_open = true;
    bool said_goodbye = false;
    bool data_open[kChannels] = {};
  };

  void Loop();
  bool Move();
  bool HearControl(Peer* peer);
  bool SendData(Peer* peer, int channel);
  bool ReceiveData(Peer* peer, int channel);
  bool Flushed() const;
  void Sleep();

  Bell* const bell_;
  const Report report_;
  std::vector<Peer> peers_;
  stasis::Fd wake_;
  std::atomic<bool> asleep_{false};
  enum class Stopping { kNo, kGoodOrder, kAtOnce };
  std::atomic<Stopping> stopping_{Stopping::kNo};
  Thread thread_;
  std::vector<pollfd> polls_;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_PROXY_H_

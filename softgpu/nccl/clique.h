// Clique: what the ranks of one communicator that live in this process share.
#ifndef SOFTGPU_NCCL_CLIQUE_H_
#define SOFTGPU_NCCL_CLIQUE_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "softgpu/nccl/inbox.h"

namespace softgpu::nccl {

// Thread-safe. Lives as long as one of its ranks.
class Clique {
 public:
  // That of the communicator with the secret, made by whoever asks first.
  static std::shared_ptr<Clique> Of(uint64_t secret);

  // The inbox of a rank of this process; whoever asks first makes it.
  stasis::Result<std::shared_ptr<Inbox>> InboxOf(int rank, int ranks);

  // A rank found an error and does no more; the others are woken to see it.
  void Fail(int rank);
  // The rank that failed first, or -1.
  int failed() const { return failed_.load(); }

 private:
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Inbox>> inboxes_;
  std::atomic<int> failed_{-1};
};

// The same number for all ranks of this process, and only for them.
struct ProcessToken {
  uint64_t words[2];
};
ProcessToken ThisProcess();

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_CLIQUE_H_

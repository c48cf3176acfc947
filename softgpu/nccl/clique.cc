#include "softgpu/nccl/clique.h"

#include <unistd.h>

#include "softgpu/nccl/meeting.h"

namespace softgpu::nccl {

std::shared_ptr<Clique> Clique::Of(uint64_t secret) {
  struct Cliques {
    std::mutex mutex;
    std::map<uint64_t, std::weak_ptr<Clique>> by_secret;
  };
  static auto* cliques = new Cliques;
  std::lock_guard lock(cliques->mutex);
  std::erase_if(cliques->by_secret, [](const auto& each) { return each.second.expired(); });
  std::shared_ptr<Clique> clique = cliques->by_secret[secret].lock();
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    cliques->by_secret[secret] = clique;
  }
  return clique;
}

stasis::Result<std::shared_ptr<Inbox>> Clique::InboxOf(int rank, int ranks) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Inbox>& inbox = inboxes_[rank];
  if (inbox == nullptr) {
    ASSIGN_OR_RETURN(inbox, Inbox::Create(ranks));
  }
  return inbox;
}

void Clique::Fail(int rank) {
  int none = -1;
  failed_.compare_exchange_strong(none, rank);
  std::lock_guard lock(mutex_);
  for (const auto& [_, inbox] : inboxes_) inbox->bell()->Ring();
}

ProcessToken ThisProcess() {
  static std::mutex mutex;
  static pid_t owner = 0;
  static ProcessToken token;
  std::lock_guard lock(mutex);
  if (owner != getpid()) {
    owner = getpid();
    token = {{RandomSecret(), RandomSecret()}};
  }
  return token;
}

}  // namespace softgpu::nccl

#include "softgpu/nccl/doorstep.h"

#include <algorithm>
#include <cerrno>

namespace softgpu::nccl {

namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr int kRetryMilliseconds = 100;
constexpr size_t kMaxStrangers = 1024;
constexpr size_t kMaxArrived = size_t{kMaxRanks} * kLinkChannels;

bool Plausible(const Greeting& greeting) {
  const bool kind = greeting.kind == GreetingKind::kJoin || greeting.kind == GreetingKind::kLink;
  return greeting.magic == kMagic && kind && greeting.ranks >= 1 && greeting.ranks <= kMaxRanks &&
         greeting.rank < greeting.ranks && greeting.channel < kLinkChannels;
}

}  // namespace

Result<Doorstep> Doorstep::Open(const Address& address, const std::string& local_name) {
  Doorstep door;
  ASSIGN_OR_RETURN(door.tcp_, ListenTcp(address));
  ASSIGN_OR_RETURN(door.address_, BoundAddress(door.tcp_.get()));
  if (!local_name.empty()) {
    ASSIGN_OR_RETURN(door.local_, ListenLocal(local_name));
  }
  return door;
}

void Doorstep::AcceptFrom(int listener, bool local) {
  while (strangers_.size() < kMaxStrangers) {
    Fd socket = Accept(listener);
    if (!socket.valid()) {
      full_ |= errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      return;
    }
    Stranger& stranger = strangers_.emplace_back(Stranger{{}, {}, stasis::Deadline::After(kPatience)});
    stranger.visitor.socket = std::move(socket);
    stranger.visitor.local = local;
  }
}

bool Doorstep::Hear(Stranger* stranger) {
  Visitor& visitor = stranger->visitor;
  const auto heard = stranger->transfer.Receive(visitor.socket.get(), &visitor.greeting,
                                                sizeof visitor.greeting, &visitor.descriptor);
  if (!heard.ok()) return false;
  if (!*heard) return !stranger->deadline.Expired();
  if (Plausible(visitor.greeting) && arrived_.size() < kMaxArrived) arrived_.push_back(std::move(visitor));
  return false;
}

void Doorstep::Look() {
  full_ = false;
  if (tcp_.valid()) AcceptFrom(tcp_.get(), false);
  if (local_.valid()) AcceptFrom(local_.get(), true);
  for (auto each = strangers_.begin(); each != strangers_.end();) {
    each = Hear(&*each) ? std::next(each) : strangers_.erase(each);
  }
}

void Doorstep::AddPolls(std::vector<pollfd>* polls) const {
  const bool room = strangers_.size() < kMaxStrangers && !full_;
  if (room && tcp_.valid()) polls->push_back({tcp_.get(), POLLIN, 0});
  if (room && local_.valid()) polls->push_back({local_.get(), POLLIN, 0});
  for (const Stranger& each : strangers_) polls->push_back({each.visitor.socket.get(), POLLIN, 0});
}

int Doorstep::PollTimeout() const {
  // Who came first has to go first.
  const int first = strangers_.empty() ? -1 : strangers_.front().deadline.PollTimeout();
  return full_ && (first < 0 || first > kRetryMilliseconds) ? kRetryMilliseconds : first;
}

}  // namespace softgpu::nccl

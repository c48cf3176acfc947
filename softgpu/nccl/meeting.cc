#include "softgpu/nccl/meeting.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "softgpu/driver/thread.h"

namespace softgpu::nccl {

uint64_t RandomSecret() {
  uint64_t secret = 0;
  STASIS_CHECK(getrandom(&secret, sizeof secret, 0) == sizeof secret);
  return secret;
}

void Meeting::Admit(Visitor visitor) {
  const Greeting& greeting = visitor.greeting;
  for (const Member& each : members_) {
    const Greeting& other = each.visitor.greeting;
    if (other.ranks == greeting.ranks && other.rank != greeting.rank) continue;
    members_.push_back({std::move(visitor), {}, false});
    return Conclude(ncclInvalidUsage);
  }
  const size_t expected = greeting.ranks;
  members_.push_back({std::move(visitor), {}, false});
  if (members_.size() == expected) Conclude(ncclSuccess);
}

void Meeting::Conclude(ncclResult_t result) {
  concluded_ = true;
  Table table;
  table.secret = RandomSecret();
  table.ranks = members_.front().visitor.greeting.ranks;
  table.result = result;
  report_.resize(sizeof table + (result == ncclSuccess ? members_.size() * sizeof(PeerInfo) : 0));
  std::memcpy(report_.data(), &table, sizeof table);
  if (result != ncclSuccess) return;
  for (const Member& each : members_) {
    const Greeting& greeting = each.visitor.greeting;
    std::memcpy(report_.data() + sizeof table + greeting.rank * sizeof(PeerInfo), &greeting.info,
                sizeof(PeerInfo));
  }
}

bool Meeting::SomebodyLeft() {
  return std::any_of(members_.begin(), members_.end(), [](const Member& each) {
    char byte;
    return recv(each.visitor.socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  });
}

void Meeting::Tell(Member* member) {
  const auto sent = member->transfer.Send(member->visitor.socket.get(), report_.data(), report_.size());
  member->told = !sent.ok() || *sent;
}

bool Meeting::Step() {
  door_->Look();
  while (!concluded_) {
    auto visitor = door_->Take([this](const Greeting& greeting) {
      return greeting.kind == GreetingKind::kJoin && greeting.secret == secret_;
    });
    if (!visitor) break;
    Admit(std::move(*visitor));
  }
  if (!concluded_ && SomebodyLeft()) Conclude(ncclRemoteError);
  if (!concluded_) return false;
  for (Member& each : members_) {
    if (!each.told) Tell(&each);
  }
  return std::all_of(members_.begin(), members_.end(), [](const Member& each) { return each.told; });
}

void Meeting::AddPolls(std::vector<pollfd>* polls) const {
  door_->AddPolls(polls);
  for (const Member& each : members_) {
    if (!each.told)
      polls->push_back({each.visitor.socket.get(), static_cast<short>(concluded_ ? POLLOUT : POLLIN), 0});
  }
}

namespace {

struct Root {
  Doorstep door;
  uint64_t secret = 0;

  void Run() {
    Meeting meeting(&door, secret);
    std::vector<pollfd> polls;
    while (!meeting.Step()) {
      polls.clear();
      meeting.AddPolls(&polls);
      poll(polls.data(), polls.size(), meeting.PollTimeout());
    }
  }
};

}  // namespace

Result<Address> StartRoot(const Address& address, uint64_t secret) {
  auto root = std::make_shared<Root>();
  ASSIGN_OR_RETURN(root->door, Doorstep::Open(address));
  root->secret = secret;
  const Address bound = root->door.address();
  Thread thread;
  const bool started = thread.Start("nccl-root", [root = std::move(root)] { root->Run(); });
  if (!started) return stasis::Errorf(stasis::StatusCode::kResourceExhausted, "no thread for the meeting");
  // Nobody waits for a meeting that may never take place.
  thread.Abandon();
  return bound;
}

}  // namespace softgpu::nccl

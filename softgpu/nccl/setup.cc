#include "softgpu/nccl/setup.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "softgpu/nccl/log.h"

namespace softgpu::nccl {

namespace {

using stasis::Deadline;

// How long somebody may take to start listening, and how often that is looked at.
constexpr auto kRefusedPatience = std::chrono::seconds(20);
constexpr auto kRetry = std::chrono::milliseconds(20);

int Sooner(int a, int b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

ncclResult_t FromStatus(const Status& status, const char* what) {
  const bool peer = status.code() == stasis::StatusCode::kPeerDied;
  return Fail(peer ? ncclRemoteError : ncclSystemError, "%s: %s", what, status.ToString().c_str());
}

}  // namespace

// A connection on its way to somebody, until the greeting is through.
class Setup::Dial {
 public:
  Dial(const Address& address, const Greeting& greeting)
      : address_(address), greeting_(greeting), patience_(Deadline::After(kRefusedPatience)) {}
  // Already connected.
  Dial(Fd socket, const Greeting& greeting, int descriptor)
      : greeting_(greeting),
        patience_(Deadline::Never()),
        socket_(std::move(socket)),
        connected_(true),
        descriptor_(descriptor) {}

  Result<bool> Step() {
    if (!socket_.valid()) {
      if (!retry_.Expired()) return false;
      RETURN_IF_ERROR(Start());
      if (!socket_.valid()) return false;
    }
    if (!connected_) {
      RETURN_IF_ERROR(FinishConnect());
      if (!connected_) return false;
    }
    if (through_) return true;
    ASSIGN_OR_RETURN(through_, transfer_.Send(socket_.get(), &greeting_, sizeof greeting_, descriptor_));
    return through_;
  }

  int socket() const { return socket_.get(); }
  bool through() const { return through_; }
  Fd TakeSocket() { return std::move(socket_); }
  void AddPolls(std::vector<pollfd>* polls) const {
    if (socket_.valid()) polls->push_back({socket_.get(), POLLOUT, 0});
  }
  int PollTimeout() const { return socket_.valid() ? -1 : retry_.PollTimeout(); }

 private:
  Status Start() {
    auto started = StartConnect(address_);
    if (started.ok()) {
      socket_ = std::move(started).value();
      return {};
    }
    if (started.status().code() != stasis::StatusCode::kUnavailable) return started.status();
    return Refused();
  }

  Status FinishConnect() {
    pollfd poll_one{socket_.get(), POLLOUT, 0};
    if (poll(&poll_one, 1, 0) <= 0) return {};
    const int error = ConnectError(socket_.get());
    connected_ = error == 0;
    if (connected_) return {};
    socket_.Reset();
    return error == ECONNREFUSED ? Refused() : stasis::ErrnoStatus(error, AddressText(address_));
  }

  Status Refused() {
    if (patience_.Expired())
      return stasis::Errorf(stasis::StatusCode::kPeerDied, "nobody listens at %s",
                            AddressText(address_).c_str());
    retry_ = Deadline::After(kRetry);
    return {};
  }

  Address address_;
  const Greeting greeting_;
  Deadline patience_;
  Deadline retry_ = Deadline::After(stasis::Duration::zero());
  Fd socket_;
  bool connected_ = false;
  bool through_ = false;
  int descriptor_ = -1;
  Transfer transfer_;
};

Setup::Setup(SetupRequest request) : request_(std::move(request)) {}
Setup::~Setup() = default;

ncclResult_t Setup::Step() {
  if (meeting_ && !meeting_over_) meeting_over_ = meeting_->Step();
  for (;;) {
    const State before = state_;
    ncclResult_t result = ncclSuccess;
    switch (state_) {
      case State::kOpen:
        result = Open();
        break;
      case State::kJoin:
        result = Join();
        break;
      case State::kTable:
        result = ReadTable();
        break;
      case State::kLink:
        result = StepCallers();
        if (result == ncclSuccess) result = AdmitVisitors();
        break;
      case State::kDone:
        return meeting_over_ ? ncclSuccess : ncclInProgress;
    }
    if (result != ncclSuccess) return result;
    if (state_ == before) return ncclInProgress;
  }
}

ncclResult_t Setup::Open() {
  char name[sizeof PeerInfo::local_name];
  snprintf(name, sizeof name, "nccl-%016llx", static_cast<unsigned long long>(RandomSecret()));
  auto address = LocalAddress();
  if (!address.ok()) return FromStatus(address.status(), "network interface");
  auto door = Doorstep::Open(*address, name);
  if (!door.ok()) return FromStatus(door.status(), "listen");
  result_.door = std::make_shared<Doorstep>(std::move(*door));
  const ProcessToken process = ThisProcess();
  std::memcpy(request_.self.process, process.words, sizeof process.words);
  std::memcpy(request_.self.local_name, name, sizeof name);
  request_.self.address = result_.door->address();
  if (request_.host != nullptr) {
    meeting_.emplace(request_.host.get(), request_.secret);
    meeting_over_ = false;
  }
  Greeting greeting;
  greeting.secret = request_.secret;
  greeting.ranks = static_cast<uint32_t>(request_.ranks);
  greeting.rank = static_cast<uint32_t>(request_.rank);
  greeting.info = request_.self;
  join_ = std::make_unique<Dial>(request_.meeting, greeting);
  state_ = State::kJoin;
  return ncclSuccess;
}

ncclResult_t Setup::Join() {
  auto through = join_->Step();
  if (!through.ok()) return FromStatus(through.status(), "meeting");
  if (!*through) return ncclSuccess;
  joined_ = join_->TakeSocket();
  join_.reset();
  state_ = State::kTable;
  return ncclSuccess;
}

ncclResult_t Setup::ReadTable() {
  if (infos_.empty()) {
    auto read = transfer_.Receive(joined_.get(), &table_, sizeof table_);
    if (!read.ok()) return FromStatus(read.status(), "meeting");
    if (!*read) return ncclSuccess;
    if (table_.magic != kMagic) return Fail(ncclInternalError, "meeting: an answer of another protocol");
    if (table_.result == ncclInvalidUsage)
      return Fail(ncclInvalidUsage, "ranks disagree on their number, or two are rank %d", request_.rank);
    if (table_.result != ncclSuccess) return Fail(ncclRemoteError, "another rank left before all had joined");
    if (table_.ranks != static_cast<uint32_t>(request_.ranks))
      return Fail(ncclInternalError, "meeting: %u ranks instead of %d", table_.ranks, request_.ranks);
    infos_.resize(table_.ranks);
    transfer_ = Transfer();
  }
  auto read = transfer_.Receive(joined_.get(), infos_.data(), infos_.size() * sizeof(PeerInfo));
  if (!read.ok()) return FromStatus(read.status(), "meeting");
  if (!*read) return ncclSuccess;
  joined_.Reset();
  for (PeerInfo& info : infos_) info.local_name[sizeof info.local_name - 1] = '\0';
  return ChooseMembers();
}

ncclResult_t Setup::ChooseMembers() {
  const int color = request_.self.color;
  result_.secret =
      table_.secret ^ (static_cast<uint64_t>(static_cast<uint32_t>(color)) * 0x9E3779B97F4A7C15u);
  std::vector<int> members;
  for (int rank = 0; rank < request_.ranks; rank++) {
    if (infos_[rank].color == color) members.push_back(rank);
  }
  if (color == NCCL_SPLIT_NOCOLOR) {
    state_ = State::kDone;
    return ncclSuccess;
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return infos_[a].key < infos_[b].key; });
  for (int rank : members) {
    if (rank == request_.rank) result_.rank = static_cast<int>(result_.peers.size());
    result_.peers.push_back(infos_[rank]);
  }
  result_.ranks = static_cast<int>(members.size());
  NCCL_TRY(CheckDevices());
  state_ = State::kLink;
  return MakeLinks();
}

ncclResult_t Setup::CheckDevices() const {
  const auto& peers = result_.peers;
  for (size_t a = 0; a < peers.size(); a++) {
    for (size_t b = 0; b < a; b++) {
      if (peers[a].node != peers[b].node ||
          std::memcmp(peers[a].device, peers[b].device, sizeof peers[a].device) != 0)
        continue;
      return Fail(ncclInvalidUsage, "Duplicate GPU detected : rank %zu and rank %zu both on CUDA device %d",
                  b, a, peers[a].ordinal);
    }
  }
  return ncclSuccess;
}

bool Setup::InThisProcess(int peer) const {
  return std::memcmp(result_.peers[peer].process, request_.self.process, sizeof request_.self.process) == 0;
}

ncclResult_t Setup::MakeLinks() {
  result_.clique = Clique::Of(result_.secret);
  auto inbox = result_.clique->InboxOf(result_.rank, result_.ranks);
  if (!inbox.ok()) return FromStatus(inbox.status(), "shared memory");
  result_.inbox = std::move(*inbox);
  result_.links.resize(result_.ranks);
  for (int peer = 0; peer < result_.ranks; peer++) {
    Link& link = result_.links[peer];
    for (int channel = 0; channel < kChannels; channel++)
      link.in[channel] = result_.inbox->RingFrom(peer, static_cast<Channel>(channel));
    if (InThisProcess(peer)) {
      auto outbox = result_.clique->InboxOf(peer, result_.ranks);
      if (!outbox.ok()) return FromStatus(outbox.status(), "shared memory");
      link.outbox = std::move(*outbox);
      NCCL_TRY(FinishLink(peer));
      continue;
    }
    missing_++;
    if (peer < result_.rank) NCCL_TRY(CallPeer(peer));
  }
  return ncclSuccess;
}

// The rings towards a peer that maps its inbox for us.
ncclResult_t Setup::FinishLink(int peer) {
  Link& link = result_.links[peer];
  link.peer_bell = link.outbox->bell();
  for (int channel = 0; channel < kChannels; channel++)
    link.out[channel] = link.outbox->RingFrom(result_.rank, static_cast<Channel>(channel));
  return ncclSuccess;
}

Greeting Setup::LinkGreeting(uint32_t channel) const {
  Greeting greeting;
  greeting.kind = GreetingKind::kLink;
  greeting.secret = result_.secret;
  greeting.ranks = static_cast<uint32_t>(result_.ranks);
  greeting.rank = static_cast<uint32_t>(result_.rank);
  greeting.channel = channel;
  return greeting;
}

ncclResult_t Setup::CallPeer(int peer) {
  if (result_.peers[peer].node == request_.self.node) {
    auto socket = ConnectLocal(result_.peers[peer].local_name);
    // Another network namespace cannot be reached that way; TCP can.
    if (socket.ok()) {
      auto dial =
          std::make_unique<Dial>(std::move(*socket), LinkGreeting(kControlChannel), result_.inbox->fd());
      callers_.push_back({peer, kControlChannel, std::move(dial), {}, {}, {}, true});
      return ncclSuccess;
    }
  }
  CallOverTcp(peer);
  return ncclSuccess;
}

void Setup::CallOverTcp(int peer) {
  for (uint32_t channel = 0; channel < kLinkChannels; channel++) {
    auto dial = std::make_unique<Dial>(result_.peers[peer].address, LinkGreeting(channel));
    callers_.push_back({peer, channel, std::move(dial), {}, {}, {}, false});
  }
}

ncclResult_t Setup::StepCaller(Caller* caller, bool* done) {
  *done = false;
  auto through = caller->dial->Step();
  if (!through.ok()) return FromStatus(through.status(), "connection to a rank");
  if (!*through) return ncclSuccess;
  auto answered = caller->transfer.Receive(caller->dial->socket(), &caller->welcome, sizeof caller->welcome,
                                           &caller->descriptor);
  if (!answered.ok()) return FromStatus(answered.status(), "connection to a rank");
  if (!*answered) return ncclSuccess;
  if (caller->welcome.magic != kMagic || caller->welcome.secret != result_.secret)
    return Fail(ncclInternalError, "rank %d answers with another protocol", caller->peer);
  *done = true;
  return Connect(caller->peer, caller->channel, caller->dial->TakeSocket(), std::move(caller->descriptor),
                 caller->local);
}

ncclResult_t Setup::StepCallers() {
  for (auto each = callers_.begin(); each != callers_.end();) {
    bool done = false;
    NCCL_TRY(StepCaller(&*each, &done));
    each = done ? callers_.erase(each) : std::next(each);
  }
  return ncclSuccess;
}

ncclResult_t Setup::AdmitVisitors() {
  result_.door->Look();
  while (auto visitor = result_.door->Take([this](const Greeting& greeting) {
    return greeting.kind == GreetingKind::kLink && greeting.secret == result_.secret;
  })) {
    NCCL_TRY(Admit(std::move(*visitor)));
  }
  if (missing_ > 0) return ncclSuccess;
  result_.inbox->CloseDescriptor();
  state_ = State::kDone;
  return ncclSuccess;
}

ncclResult_t Setup::Admit(Visitor visitor) {
  const int peer = static_cast<int>(visitor.greeting.rank);
  if (visitor.greeting.ranks != static_cast<uint32_t>(result_.ranks) || peer <= result_.rank ||
      InThisProcess(peer))
    return Fail(ncclInternalError, "an unexpected connection from rank %d", peer);
  Welcome welcome;
  welcome.secret = result_.secret;
  Transfer transfer;
  auto sent =
      transfer.Send(visitor.socket.get(), &welcome, sizeof welcome, visitor.local ? result_.inbox->fd() : -1);
  if (!sent.ok()) return FromStatus(sent.status(), "connection from a rank");
  if (!*sent) return Fail(ncclSystemError, "a new connection takes no bytes");
  return Connect(peer, visitor.greeting.channel, std::move(visitor.socket), std::move(visitor.descriptor),
                 visitor.local);
}

ncclResult_t Setup::Connect(int peer, uint32_t channel, Fd socket, Fd descriptor, bool local) {
  Link& link = result_.links[peer];
  Fd& place = channel == kControlChannel ? link.control : link.data[channel];
  if (place.valid() || (local && (channel != kControlChannel || !descriptor.valid())))
    return Fail(ncclInternalError, "a wrong connection with rank %d", peer);
  place = std::move(socket);
  if (local) {
    auto outbox = Inbox::Open(descriptor.get(), result_.ranks);
    if (!outbox.ok()) return FromStatus(outbox.status(), "shared memory");
    link.outbox = std::move(*outbox);
    missing_--;
    return FinishLink(peer);
  }
  if (!link.control.valid() || !link.data[kCollectives].valid() || !link.data[kMessages].valid())
    return ncclSuccess;
  auto outbox = Inbox::Create(1);
  if (!outbox.ok()) return FromStatus(outbox.status(), "memory for a connection");
  link.outbox = std::move(*outbox);
  link.outbox->CloseDescriptor();
  for (int each = 0; each < kChannels; each++)
    link.out[each] = link.outbox->RingFrom(0, static_cast<Channel>(each));
  missing_--;
  return ncclSuccess;
}

void Setup::AddPolls(std::vector<pollfd>* polls) const {
  if (meeting_ && !meeting_over_) meeting_->AddPolls(polls);
  if (join_) join_->AddPolls(polls);
  if (joined_.valid()) polls->push_back({joined_.get(), POLLIN, 0});
  if (state_ != State::kLink) return;
  result_.door->AddPolls(polls);
  for (const Caller& each : callers_) {
    if (each.dial->through()) {
      polls->push_back({each.dial->socket(), POLLIN, 0});
    } else {
      each.dial->AddPolls(polls);
    }
  }
}

int Setup::PollTimeout() const {
  int timeout = meeting_ && !meeting_over_ ? meeting_->PollTimeout() : -1;
  if (join_) timeout = Sooner(timeout, join_->PollTimeout());
  if (state_ != State::kLink) return timeout;
  timeout = Sooner(timeout, result_.door->PollTimeout());
  for (const Caller& each : callers_) timeout = Sooner(timeout, each.dial->PollTimeout());
  return timeout;
}

SetupRun::SetupRun() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

SetupRun::~SetupRun() {
  Cancel();
  Join();
}

ncclResult_t SetupRun::Run() {
  std::vector<pollfd> polls;
  for (;;) {
    if (cancelled_.load()) return Fail(ncclInternalError, "the initialisation was aborted");
    bool waiting = false;
    int timeout = -1;
    polls.assign(1, {wake_.get(), POLLIN, 0});
    for (const auto& setup : setups_) {
      const ncclResult_t result = setup->Step();
      if (result != ncclSuccess && result != ncclInProgress) return result;
      if (result == ncclSuccess) continue;
      waiting = true;
      setup->AddPolls(&polls);
      timeout = Sooner(timeout, setup->PollTimeout());
    }
    if (!waiting) return ncclSuccess;
    poll(polls.data(), polls.size(), timeout);
  }
}

bool SetupRun::RunInBackground(std::function<void(ncclResult_t)> done) {
  return thread_.Start("nccl-init", [this, done = std::move(done)] { done(Run()); });
}

void SetupRun::Cancel() {
  cancelled_.store(true);
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof one));
}

void SetupRun::Join() {
  std::lock_guard lock(join_mutex_);
  thread_.Join(stasis::Deadline::Never());
}

}  // namespace softgpu::nccl

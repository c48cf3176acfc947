#include "ghost/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/raw_log.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr uint32_t kRequest = 1, kEvent = 2, kResult = 3;
constexpr size_t kMaxRequest = 1 << 20;
constexpr MessageLimits kLimits = {kMaxMeetPayload, 0};
// A client that does not read is not waited for.
constexpr std::chrono::seconds kSendTime(5);
// How long a ghost waits for the client that had it started.
constexpr int kFirstClientMs = 10000;
// No event tells that a signal waits for a frozen process.
constexpr int kSignalPollMs = 500;

}  // namespace

Server::Server(Job& job, UnixListener listener)
    : job_(job), listener_(std::move(listener)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Server::~Server() {
  if (worker_.joinable()) worker_.join();
}

bool Server::Idle() const { return clients_.empty() && !running_ && !job_.held(); }

void Server::Run(bool expect_client) {
  if (expect_client) {
    pollfd wait{listener_.fd(), POLLIN, 0};
    if (poll(&wait, 1, kFirstClientMs) > 0) Accept();
  }
  do {
    while (!Idle()) Poll(job_.held() && !running_ ? kSignalPollMs : -1);
  } while (LateClients());
}

// Nobody finds the socket any more, so who has connected until now is all there will be. They are not turned
// away.
bool Server::LateClients() {
  std::string path = listener_.path();
  (void)unlink(path.c_str());
  for (size_t before = clients_.size() + 1; clients_.size() != before;) {
    before = clients_.size();
    Accept();
  }
  listener_.Close();
  if (clients_.empty()) return false;
  Result<UnixListener> again = UnixListener::Listen(path);
  if (!again.ok()) {
    // Another ghost was started in between, and is the one to ask.
    RawLog(LogLevel::kWarning, "listen again: %s", again.status().ToString().c_str());
    return false;
  }
  listener_ = *std::move(again);
  return true;
}

void Server::Poll(int timeout_ms) {
  WatchTask();
  std::vector<pollfd> waits = {{listener_.fd(), POLLIN, 0},
                               {wake_.get(), POLLIN, 0},
                               {running_ ? -1 : job_.guard_fd(), POLLIN, 0},
                               {root_.get(), POLLIN, 0}};
  for (Client& client : clients_) waits.push_back({client.socket.get(), POLLIN, 0});
  int ready = poll(waits.data(), waits.size(), timeout_ms);
  if (ready == 0 && !running_) return job_.DeliverSignals();
  if (ready < 0) return;
  if (waits[3].revents != 0 && running_) {
    meeting_->TaskEnded();
    root_.Reset();
  } else if (waits[3].revents != 0) {
    (void)waitpid(job_.root(), nullptr, WNOHANG);
    root_.Reset();
    return job_.TaskEnded();
  }
  if (waits[2].revents != 0 && !running_) job_.GuardDied();
  size_t i = 4;
  for (auto client = clients_.begin(); i < waits.size(); ++i) {
    Client& each = *client++;
    if (waits[i].revents != 0) Read(each);
  }
  DropClients();
  if (waits[0].revents != 0) Accept();
  if (waits[1].revents != 0) {
    uint64_t count;
    (void)!read(wake_.get(), &count, sizeof count);
    Flush();
    Finish();
  }
}

// The other ranks wait for one that ends while its ghost waits for them.
void Server::WatchRank() {
  root_.Reset();
  if (!meeting_ || running_->request.verb == Verb::kRestore) return;
  Result<Fd> root = OpenPidFd(job_.root());
  if (root.ok()) root_ = *std::move(root);
}

void Server::WatchTask() {
  if (running_) return;
  if (!job_.held()) {
    root_.Reset();
  } else if (!root_.valid()) {
    Result<Fd> root = OpenPidFd(job_.root());
    if (root.ok()) {
      root_ = *std::move(root);
    } else if (root.status().code() == StatusCode::kNotFound) {
      job_.TaskEnded();
    }
  }
}

void Server::Accept() {
  Result<Fd> socket = listener_.Accept();
  if (!socket.ok()) return;
  Result<PeerCredentials> peer = GetPeerCredentials(socket->get());
  if (!peer.ok() || (peer->uid != geteuid() && peer->uid != 0)) {
    RawLog(LogLevel::kWarning, "a connection by user %u is refused", peer.ok() ? peer->uid : ~0u);
    return;
  }
  clients_.emplace_back();
  clients_.back().id = next_client_++;
  clients_.back().socket = *std::move(socket);
  clients_.back().decoder = MessageDecoder(kLimits);
}

void Server::Read(Client& client) {
  for (;;) {
    Result<bool> complete = ReceiveSome(client.socket.get(), client.decoder);
    if (!complete.ok()) return client.socket.Reset();
    if (!*complete) return;
    Handle(client, client.decoder.Take());
    if (!client.socket.valid()) return;
  }
}

void Server::Handle(Client& client, Message message) {
  if (message.type == kGhostAnswer) return HandleAnswer(client, message);
  if (message.type != kRequest || message.payload.size() > kMaxRequest) return client.socket.Reset();
  std::string text(reinterpret_cast<const char*>(message.payload.data()), message.payload.size());
  Result<Request> request = ParseRequest(text);
  if (request.ok()) return HandleRequest(client, message.request_id, *std::move(request));
  Answer answer;
  answer.left = "unchanged";
  Post(client.id, message.request_id, kResult, ResultJson("", request.status(), answer));
}

void Server::HandleRequest(Client& client, uint64_t request_id, Request request) {
  Answer answer;
  answer.left = "unchanged";
  const Verb verb = request.verb;
  Asked asked{client.id, request_id, std::move(request)};
  Status mine = job_.CheckRank(asked.request, &answer);
  if (!mine.ok()) {
    Post(client.id, request_id, kResult, ResultJson(VerbName(verb), mine, answer));
  } else if (verb == Verb::kStatus) {
    answer.fields = StatusFields();
    Post(client.id, request_id, kResult, ResultJson("status", Status(), answer));
  } else if (HandleKnown(asked)) {
    return;
  } else if (verb == Verb::kCancel) {
    HandleCancel(asked);
  } else if (running_) {
    Status busy(StatusCode::kFailedPrecondition,
                std::string("a ") + VerbName(running_->request.verb) + " of this task is running");
    answer.remedy = "wait for it, or give it up with: stasis cancel --operation";
    Post(client.id, request_id, kResult, ResultJson(VerbName(verb), busy, answer));
  } else {
    Start(std::move(asked));
  }
}

// A client that lost its connection, or was killed, asks for the same operation again: it is carried out
// once.
bool Server::HandleKnown(const Asked& asked) {
  const std::string& operation = asked.request.operation;
  if (operation.empty()) return false;
  if (running_ && running_->request.operation == operation) {
    running_->client = asked.client;
    running_->request_id = asked.request_id;
    Post(asked.client, asked.request_id, kEvent, {{"phase", "begin"}, {"done", 0}, {"total", 0}});
    return true;
  }
  if (queued_ && queued_->request.operation == operation) {
    queued_ = asked;
    return true;
  }
  TaskRecord record = job_.record();
  if (record.last_operation != operation) return false;
  Post(asked.client, asked.request_id, kResult, record.last_result);
  return true;
}

// An answer that comes when nobody waits for it any more is nobody's fault.
void Server::HandleAnswer(Client& client, const Message& message) {
  Result<QuestionAnswer> answer = DecodeQuestionAnswer(message.payload);
  if (!answer.ok()) return client.socket.Reset();
  if (!meeting_ || running_->client != client.id || running_->request_id != message.request_id) return;
  Status taken = meeting_->Answered(*std::move(answer));
  if (taken.ok()) return;
  RawLog(LogLevel::kError, "the coordinator: %s", taken.ToString().c_str());
  client.socket.Reset();
}

void Server::HandleCancel(const Asked& asked) {
  Answer answer;
  answer.left = "unchanged";
  if (running_) job_.Cancel();
  if (meeting_) meeting_->Cancel();
  if (!asked.request.whole_task) {
    Status status = running_ ? Status() : Status(StatusCode::kFailedPrecondition, "no operation is running");
    answer.fields = {{"what", "operation"}, {"signal", 0}};
    return Post(asked.client, asked.request_id, kResult, ResultJson("cancel", status, answer));
  }
  if (!running_) return Start(asked);
  if (queued_) {
    Status busy(StatusCode::kFailedPrecondition, "the task is being ended already");
    return Post(asked.client, asked.request_id, kResult, ResultJson("cancel", busy, answer));
  }
  queued_ = asked;
}

std::unique_ptr<RemoteCoordination> Server::Meet(const Asked& asked) {
  if (!asked.request.job || asked.request.verb == Verb::kCancel) return nullptr;
  auto send = [this, client = asked.client, id = asked.request_id](uint32_t number,
                                                                   std::vector<std::byte> question) {
    Posted posted{client, Message(), number};
    posted.message.type = kGhostQuestion;
    posted.message.request_id = id;
    posted.message.payload = std::move(question);
    Post(std::move(posted));
  };
  auto meeting = std::make_unique<RemoteCoordination>(std::move(send), asked.request.patience);
  meeting->WhileWaiting([this] { job_.DeliverSignals(); });
  return meeting;
}

void Server::Start(Asked asked) {
  running_ = asked;
  meeting_ = Meet(asked);
  WatchRank();
  // Before anything is done: a client that has not heard this may ask another ghost.
  Post(asked.client, asked.request_id, kEvent, {{"phase", "begin"}, {"done", 0}, {"total", 0}});
  Flush();
  worker_ = std::thread([this, asked = std::move(asked), meeting = meeting_.get()] {
    Progress progress([&](const Progress::Report& report) {
      Post(0, 0, kEvent, {{"phase", report.phase}, {"done", report.done}, {"total", report.total}});
    });
    Json result = job_.Run(asked.request, progress, meeting);
    std::lock_guard lock(mutex_);
    result_ = std::move(result);
    uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
  });
}

// The result goes out when everything is ready for the client's next request.
void Server::Finish() {
  std::optional<Json> result;
  {
    std::lock_guard lock(mutex_);
    result.swap(result_);
  }
  if (!result) return;
  worker_.join();
  meeting_.reset();
  root_.Reset();
  Asked done = *std::exchange(running_, std::nullopt);
  Post(done.client, done.request_id, kResult, *result);
  Flush();
  if (!queued_) return;
  Asked next = *std::exchange(queued_, std::nullopt);
  Start(std::move(next));
}

void Server::Post(uint64_t client, uint64_t request_id, uint32_t type, const Json& json) {
  std::string text = JsonText(json);
  Posted posted{client, Message(), 0};
  posted.message.type = type;
  posted.message.request_id = request_id;
  std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  posted.message.payload.assign(bytes.begin(), bytes.end());
  Post(std::move(posted));
}

void Server::Post(Posted posted) {
  std::lock_guard lock(mutex_);
  posted_.push_back(std::move(posted));
  uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void Server::Flush() {
  std::vector<Posted> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(posted_);
  }
  for (Posted& posted : all) {
    if (posted.client == 0 && running_) {
      posted.client = running_->client;
      posted.message.request_id = running_->request_id;
    }
    bool sent = SendTo(FindClient(posted.client), std::move(posted.message));
    if (sent && posted.question != 0 && meeting_) meeting_->Sent(posted.question);
  }
  DropClients();
}

bool Server::SendTo(Client* client, Message message) {
  if (client == nullptr) return false;
  Status sent = SendMessage(client->socket.get(), std::move(message), Deadline::After(kSendTime), kLimits);
  if (!sent.ok()) client->socket.Reset();
  return sent.ok();
}

Server::Client* Server::FindClient(uint64_t id) {
  for (Client& client : clients_) {
    if (client.id == id && client.socket.valid()) return &client;
  }
  return nullptr;
}

void Server::DropClients() {
  clients_.remove_if([](const Client& client) { return !client.socket.valid(); });
  if (meeting_ && FindClient(running_->client) == nullptr) meeting_->Lost();
}

Json Server::StatusFields() {
  Json fields = RecordJson(job_.record());
  fields["phase"] = PhaseName(job_.phase());
  if (const std::optional<JobRank>& rank = job_.rank(); rank)
    fields["job"] = {{"name", rank->job}, {"rank", rank->rank}, {"ranks", rank->ranks}};
  fields["operation"] = running_ ? VerbName(running_->request.verb) : "";
  fields["operation_id"] = running_ ? running_->request.operation : "";
  fields["members"] = running_ ? Json::array() : job_.MemberStatus();
  return fields;
}

}  // namespace stasis

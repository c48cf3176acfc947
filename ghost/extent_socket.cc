#include "ghost/extent_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/message.h"
#include "base/payload.h"
#include "base/quiet_thread.h"
#include "base/raw_log.h"

namespace stasis {
namespace {

constexpr uint32_t kAsk = 1, kGiven = 2, kRefused = 3;
// Extents in one message.
constexpr size_t kBatch = 1024;
constexpr MessageLimits kLimits = {64 << 10, kBatch};
// One that does not speak is not waited for any longer; others may be waiting.
constexpr std::chrono::seconds kTalkTime(10);

Result<std::vector<ExtentName>> ParseNames(const std::vector<std::byte>& payload) {
  PayloadReader in(payload);
  std::vector<ExtentName> names(in.Count(8));
  for (ExtentName& name : names) name = {in.U32(), in.U32()};
  RETURN_IF_ERROR(in.Finish());
  if (names.size() > kBatch) return Status(StatusCode::kCorrupt, "too many extents at once");
  return names;
}

Status CheckPeer(int socket) {
  ASSIGN_OR_RETURN(PeerCredentials peer, GetPeerCredentials(socket));
  if (peer.uid == geteuid() || peer.uid == 0) return Status();
  return Errorf(StatusCode::kPermissionDenied, "a connection by user %u", peer.uid);
}

Result<std::vector<Fd>> FetchBatch(int socket, std::span<const ExtentName> names, const Deadline& deadline) {
  PayloadWriter out;
  out.U32(static_cast<uint32_t>(names.size()));
  for (const ExtentName& name : names) {
    out.U32(name.member);
    out.U32(name.extent);
  }
  RETURN_IF_ERROR(SendMessage(socket, {kAsk, 0, out.Take(), {}}, deadline, kLimits));
  MessageDecoder decoder(kLimits);
  ASSIGN_OR_RETURN(Message answer, ReceiveMessage(socket, decoder, deadline));
  if (answer.type == kRefused) return Status(StatusCode::kNotFound, "no such device memory is held there");
  if (answer.type != kGiven || answer.fds.size() != names.size()) {
    return Status(StatusCode::kCorrupt, "an answer that cannot be");
  }
  return std::move(answer.fds);
}

}  // namespace

ExtentServer::ExtentServer(UnixListener listener, std::vector<std::vector<Fd>> extents)
    : listener_(std::move(listener)), extents_(std::move(extents)), stop_(eventfd(0, EFD_CLOEXEC)) {}

Result<std::unique_ptr<ExtentServer>> ExtentServer::Start(const std::string& path,
                                                          const std::vector<HeldMember>& members) {
  std::vector<std::vector<Fd>> extents;
  for (const HeldMember& member : members) {
    extents.emplace_back();
    for (const HeldExtent& e : member.extents) {
      extents.back().push_back(e.fd.valid() ? e.fd.Duplicate() : Fd());
      if (e.fd.valid() && !extents.back().back().valid()) return ErrnoStatus(errno, "duplicate a descriptor");
    }
  }
  ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Listen(path));
  std::unique_ptr<ExtentServer> server(new ExtentServer(std::move(listener), std::move(extents)));
  if (!server->stop_.valid()) return ErrnoStatus(errno, "eventfd");
  // Signals are for the threads that the process has chosen for them.
  server->thread_ = StartQuietThread([server = server.get()] { server->Serve(); });
  return server;
}

ExtentServer::~ExtentServer() {
  uint64_t one = 1;
  if (stop_.valid()) (void)!write(stop_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void ExtentServer::Serve() {
  for (;;) {
    pollfd waits[] = {{listener_.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if (waits[1].revents != 0) return;
    Result<Fd> socket = listener_.Accept();
    if (!socket.ok()) continue;
    Status status = CheckPeer(socket->get());
    while (status.ok()) status = Answer(socket->get());
    if (status.code() == StatusCode::kPeerDied) continue;
    RawLog(LogLevel::kWarning, "a ghost that asks for device memory: %s", status.ToString().c_str());
  }
}

Status ExtentServer::Answer(int socket) const {
  Deadline deadline = Deadline::After(kTalkTime);
  MessageDecoder decoder(kLimits);
  ASSIGN_OR_RETURN(Message question, ReceiveMessage(socket, decoder, deadline));
  if (question.type != kAsk || !question.fds.empty()) return Status(StatusCode::kCorrupt, "no question");
  ASSIGN_OR_RETURN(std::vector<ExtentName> names, ParseNames(question.payload));
  Message answer{kGiven, 0, {}, {}};
  for (const ExtentName& name : names) {
    bool held = name.member < extents_.size() && name.extent < extents_[name.member].size() &&
                extents_[name.member][name.extent].valid();
    if (held) answer.fds.push_back(extents_[name.member][name.extent].Duplicate());
    if (!held || !answer.fds.back().valid()) {
      answer = Message{kRefused, 0, {}, {}};
      break;
    }
  }
  return SendMessage(socket, std::move(answer), deadline, kLimits);
}

Result<std::vector<Fd>> FetchExtents(const std::string& path, const std::vector<ExtentName>& names,
                                     const Deadline& deadline) {
  ASSIGN_OR_RETURN(Fd socket, ConnectUnix(path, deadline));
  RETURN_IF_ERROR(CheckPeer(socket.get()));
  std::vector<Fd> fds;
  for (size_t at = 0; at < names.size(); at += kBatch) {
    std::span<const ExtentName> batch = std::span(names).subspan(at, std::min(kBatch, names.size() - at));
    ASSIGN_OR_RETURN(std::vector<Fd> some, FetchBatch(socket.get(), batch, deadline));
    std::move(some.begin(), some.end(), std::back_inserter(fds));
  }
  return fds;
}

}  // namespace stasis

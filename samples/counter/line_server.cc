#include "line_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "../common/fail.h"

namespace counter {
namespace {

constexpr size_t kMaxLine = 256;
constexpr int kBacklog = 64;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

int Listen(uint16_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  const sockaddr_in address = Loopback(port);
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, kBacklog) != 0) {
    sample::Fail(sample::kExitFailure, "cannot listen on 127.0.0.1 port %d: %s", port, strerror(errno));
  }
  return listener;
}

uint16_t BoundPort(int listener) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    sample::Fail(sample::kExitFailure, "getsockname: %s", strerror(errno));
  }
  return ntohs(address.sin_port);
}

}  // namespace

LineServer::LineServer(uint16_t port) : listener_(Listen(port)), port_(BoundPort(listener_)) {}

LineServer::~LineServer() {
  for (const auto& client : clients_) close(client.first);
  close(listener_);
}

void LineServer::Run(const Handler& handler) {
  while (true) {
    std::vector<pollfd> waiting = {{listener_, POLLIN, 0}};
    for (const auto& client : clients_) waiting.push_back({client.first, POLLIN, 0});
    if (poll(waiting.data(), waiting.size(), -1) < 0) {
      if (errno == EINTR) continue;
      sample::Fail(sample::kExitFailure, "poll: %s", strerror(errno));
    }
    for (size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0 && Serve(waiting[i].fd, handler) == Next::kStop) return;
    }
    if (waiting[0].revents != 0) Accept();
  }
}

void LineServer::Accept() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client >= 0) {
    clients_[client] = "";
    return;
  }
  // The client may be gone again, which is its own affair.
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
  sample::Fail(sample::kExitFailure, "accept: %s", strerror(errno));
}

LineServer::Next LineServer::Serve(int client, const Handler& handler) {
  char bytes[4096];
  const ssize_t received = recv(client, bytes, sizeof(bytes), 0);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return Next::kGoOn;
  if (received <= 0) {
    Drop(client);
    return Next::kGoOn;
  }
  clients_[client].append(bytes, received);
  return AnswerLines(client, handler);
}

LineServer::Next LineServer::AnswerLines(int client, const Handler& handler) {
  std::string& pending = clients_[client];
  Next next = Next::kGoOn;
  size_t end;
  while (next == Next::kGoOn && (end = pending.find('\n')) != std::string::npos) {
    std::string line = pending.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    pending.erase(0, end + 1);
    std::string reply;
    next = handler(line, &reply);
    reply += '\n';
    if (send(client, reply.data(), reply.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(reply.size())) {
      Drop(client);
      return next;
    }
  }
  if (pending.size() > kMaxLine) Drop(client);
  return next;
}

void LineServer::Drop(int client) {
  close(client);
  clients_.erase(client);
}

}  // namespace counter

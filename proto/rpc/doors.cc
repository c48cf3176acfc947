#include "proto/rpc/doors.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace stasis {
namespace {

constexpr int kBacklog = 512;
// While there are no descriptors left, clients wait in the backlog.
constexpr int kOutOfDescriptorsWaitMs = 100;

Result<Fd> ListenTcp(const Endpoint& endpoint) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  int error = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0)
    return Errorf(StatusCode::kInvalidArgument, "%s: %s", endpoint.host.c_str(), gai_strerror(error));
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, freeaddrinfo);
  Fd fd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), address->ai_addr, address->ai_addrlen) != 0 || listen(fd.get(), kBacklog) != 0) {
    bool taken = errno == EADDRINUSE;
    Status failed = ErrnoStatus(errno, "listen on " + endpoint.Target());
    return taken ? Status(StatusCode::kAlreadyExists, std::string(failed.message())) : failed;
  }
  return fd;
}

Result<int> PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return ErrnoStatus(errno, "getsockname");
  return address.ss_family == AF_INET ? ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port)
                                      : ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
}

Result<uid_t> OwnerOfClient(const Endpoint& endpoint, int fd) {
  if (!endpoint.unix_socket) return OwnerOfTcpPeer(fd);
  ASSIGN_OR_RETURN(PeerCredentials credentials, GetPeerCredentials(fd));
  return credentials.uid;
}

}  // namespace

Result<Doors::Door> Doors::OpenOne(const Endpoint& endpoint) {
  Door door;
  door.endpoint = endpoint;
  if (endpoint.unix_socket) {
    ASSIGN_OR_RETURN(door.unix_socket, UnixListener::Listen(endpoint.path));
    return door;
  }
  if (!endpoint.loopback()) {
    return Status(StatusCode::kPermissionDenied,
                  endpoint.Target() + " can be reached by others: without TLS only loopback is listened on");
  }
  ASSIGN_OR_RETURN(door.tcp, ListenTcp(endpoint));
  ASSIGN_OR_RETURN(door.endpoint.port, PortOf(door.tcp.get()));
  return door;
}

Result<std::unique_ptr<Doors>> Doors::Open(const std::vector<Endpoint>& endpoints) {
  std::unique_ptr<Doors> doors(new Doors);
  doors->stop_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doors->stop_.valid()) return ErrnoStatus(errno, "eventfd");
  for (const Endpoint& endpoint : endpoints) {
    ASSIGN_OR_RETURN(Door door, OpenOne(endpoint));
    doors->endpoints_.push_back(door.endpoint);
    doors->doors_.push_back(std::move(door));
  }
  return doors;
}

Doors::~Doors() { Stop(); }

Status Doors::Begin(Serve serve, Refused refused) {
  serve_ = std::move(serve);
  refused_ = std::move(refused);
  thread_ = std::thread([this] { Loop(); });
  return Status();
}

void Doors::Stop() {
  uint64_t one = 1;
  if (thread_.joinable()) {
    while (write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  doors_.clear();
}

std::optional<uid_t> Doors::OwnerOf(int fd) const {
  std::lock_guard lock(mutex_);
  auto found = owners_.find(fd);
  if (found == owners_.end()) return std::nullopt;
  return found->second;
}

void Doors::Loop() {
  std::vector<pollfd> waits;
  for (Door& door : doors_) waits.push_back({door.fd(), POLLIN, 0});
  waits.push_back({stop_.get(), POLLIN, 0});
  for (;;) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
    if (waits.back().revents != 0) return;
    bool short_of_descriptors = false;
    for (Door& door : doors_) short_of_descriptors |= !TakeAll(door);
    if (short_of_descriptors) poll(&waits.back(), 1, kOutOfDescriptorsWaitMs);
  }
}

// False: there are clients, and no descriptors for them.
bool Doors::TakeAll(Door& door) {
  for (;;) {
    Result<Fd> client = Accept(door);
    if (client.ok()) {
      LetIn(door, std::move(*client));
      continue;
    }
    if (client.status().code() == StatusCode::kUnavailable) return true;
    refused_(client.status());
    return client.status().code() != StatusCode::kResourceExhausted;
  }
}

Result<Fd> Doors::Accept(Door& door) {
  if (door.endpoint.unix_socket) return door.unix_socket.Accept();
  Fd client(accept4(door.tcp.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (client.valid()) return client;
  bool none = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
  return none ? Status(StatusCode::kUnavailable, "nobody waits") : ErrnoStatus(errno, "accept");
}

void Doors::LetIn(Door& door, Fd client) {
  Result<uid_t> uid = OwnerOfClient(door.endpoint, client.get());
  if (!uid.ok()) return refused_(uid.status().WithContext(door.endpoint.Target() + ": who has connected"));
  if (*uid != geteuid() && *uid != 0) {
    return refused_(Errorf(StatusCode::kPermissionDenied, "%s: uid %u may not come in",
                           door.endpoint.Target().c_str(), *uid));
  }
  if (!door.endpoint.unix_socket) {
    int on = 1;
    setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  {
    std::lock_guard lock(mutex_);
    owners_[client.get()] = *uid;
  }
  serve_(client.Release());
}

}  // namespace stasis

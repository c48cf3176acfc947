#include "softgpu/nccl/net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace softgpu::nccl {

namespace {

using stasis::ErrnoStatus;
using stasis::Errorf;
using stasis::StatusCode;

sockaddr_in SocketAddress(const Address& address) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = address.ip;
  out.sin_port = address.port;
  return out;
}

// What NCCL_SOCKET_IFNAME says.
class InterfaceFilter {
 public:
  explicit InterfaceFilter(const char* text) : given_(text != nullptr && *text != '\0') {
    if (!given_) return;
    std::string rest = text;
    inverted_ = rest.starts_with('^');
    exact_ = rest.starts_with('=') || rest.starts_with("^=");
    rest.erase(0, static_cast<size_t>(inverted_) + static_cast<size_t>(exact_));
    for (size_t at = 0; at <= rest.size();) {
      const size_t end = std::min(rest.find(',', at), rest.size());
      names_.push_back(rest.substr(at, end - at));
      at = end + 1;
    }
  }

  bool given() const { return given_; }
  bool Admits(const std::string& name) const {
    if (!given_) return true;
    for (const std::string& each : names_) {
      if (exact_ ? name == each : name.starts_with(each)) return !inverted_;
    }
    return inverted_;
  }

 private:
  const bool given_;
  bool inverted_ = false;
  bool exact_ = false;
  std::vector<std::string> names_;
};

Result<Fd> Bind(int domain, const sockaddr* address, socklen_t size) {
  Fd socket_fd(socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return ErrnoStatus(errno, "socket");
  const int on = 1;
  if (domain == AF_INET) setsockopt(socket_fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket_fd.get(), address, size) != 0) return ErrnoStatus(errno, "bind");
  if (listen(socket_fd.get(), SOMAXCONN) != 0) return ErrnoStatus(errno, "listen");
  return socket_fd;
}

// Address and length of an abstract name.
socklen_t LocalSocketAddress(const std::string& name, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  std::memcpy(out->sun_path + 1, name.data(), std::min(name.size(), sizeof out->sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Result<Address> LocalAddress() {
  const InterfaceFilter filter(getenv("NCCL_SOCKET_IFNAME"));
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  const ifaddrs* best = nullptr;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || !filter.Admits(each->ifa_name)) continue;
    const bool loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
    if (best == nullptr || (!loopback && (best->ifa_flags & IFF_LOOPBACK) != 0 && !filter.given()))
      best = each;
  }
  if (best == nullptr) return Errorf(StatusCode::kNotFound, "no network interface with an IPv4 address fits");
  Address address;
  address.ip = reinterpret_cast<const sockaddr_in*>(best->ifa_addr)->sin_addr.s_addr;
  return address;
}

Result<Address> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos)
    return Errorf(StatusCode::kInvalidArgument, "'%s' is not HOST:PORT", text.c_str());
  const std::string host = text.substr(0, colon), port = text.substr(colon + 1);
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
    return Errorf(StatusCode::kInvalidArgument, "'%s' is no IPv4 address and port", text.c_str());
  const auto* in = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  Address address;
  address.ip = in->sin_addr.s_addr;
  address.port = in->sin_port;
  freeaddrinfo(found);
  return address;
}

std::string AddressText(const Address& address) {
  char ip[INET_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET, &address.ip, ip, sizeof ip);
  return std::string(ip) + ":" + std::to_string(ntohs(address.port));
}

Result<Fd> ListenTcp(const Address& address) {
  const sockaddr_in in = SocketAddress(address);
  return Bind(AF_INET, reinterpret_cast<const sockaddr*>(&in), sizeof in);
}

Result<Address> BoundAddress(int socket) {
  sockaddr_in in{};
  socklen_t size = sizeof in;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&in), &size) != 0)
    return ErrnoStatus(errno, "getsockname");
  Address address;
  address.ip = in.sin_addr.s_addr;
  address.port = in.sin_port;
  return address;
}

Result<Fd> ListenLocal(const std::string& name) {
  sockaddr_un un;
  const socklen_t size = LocalSocketAddress(name, &un);
  return Bind(AF_UNIX, reinterpret_cast<const sockaddr*>(&un), size);
}

Result<Fd> StartConnect(const Address& address) {
  Fd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return ErrnoStatus(errno, "socket");
  const int on = 1;
  setsockopt(socket_fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const sockaddr_in in = SocketAddress(address);
  const int result = connect(socket_fd.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in);
  if (result != 0 && errno == ECONNREFUSED) return Errorf(StatusCode::kUnavailable, "connection refused");
  if (result != 0 && errno != EINPROGRESS) return ErrnoStatus(errno, "connect");
  return socket_fd;
}

Result<Fd> ConnectLocal(const std::string& name) {
  Fd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return ErrnoStatus(errno, "socket");
  sockaddr_un un;
  const socklen_t size = LocalSocketAddress(name, &un);
  if (connect(socket_fd.get(), reinterpret_cast<const sockaddr*>(&un), size) != 0)
    return ErrnoStatus(errno, "connect");
  return socket_fd;
}

int ConnectError(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Fd Accept(int listener) {
  Fd socket_fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int on = 1;
  if (socket_fd.valid()) setsockopt(socket_fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket_fd;
}

Result<bool> Transfer::Send(int socket, const void* bytes, size_t size, int descriptor) {
  while (done_ < size) {
    iovec part{const_cast<char*>(static_cast<const char*>(bytes)) + done_, size - done_};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (descriptor >= 0 && done_ == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && WouldBlock()) return false;
    if (sent < 0) return ErrnoStatus(errno, "send");
    done_ += static_cast<size_t>(sent);
  }
  return true;
}

namespace {

void TakeDescriptors(msghdr* message, Fd* descriptor) {
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr; header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int received;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof received, sizeof received);
      Fd owned(received);
      if (descriptor != nullptr && !descriptor->valid()) *descriptor = std::move(owned);
    }
  }
}

}  // namespace

Result<bool> Transfer::Receive(int socket, void* bytes, size_t size, Fd* descriptor) {
  while (done_ < size) {
    iovec part{static_cast<char*>(bytes) + done_, size - done_};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t received = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && WouldBlock()) return false;
    if (received < 0) return ErrnoStatus(errno, "receive");
    TakeDescriptors(&message, descriptor);
    if (received == 0) return Errorf(StatusCode::kPeerDied, "the connection was closed");
    done_ += static_cast<size_t>(received);
  }
  return true;
}

}  // namespace softgpu::nccl

#include "ghost/tcp.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "base/files.h"

namespace stasis {
namespace {

constexpr size_t kMaxTable = 256 << 20;
constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

// Takes hexadecimal digits from the front of `text`.
template <typename Number>
bool TakeHex(std::string_view* text, size_t digits, Number* value) {
  if (text->size() < digits) return false;
  auto [end, error] = std::from_chars(text->data(), text->data() + digits, *value, 16);
  text->remove_prefix(digits);
  return error == std::errc() && end == text->data();
}

// "0100007F:1F90": words in the byte order of the machine, then the port.
bool ParseTableAddress(std::string_view text, TcpAddress* address) {
  size_t words = text.size() == 13 ? 1 : text.size() == 37 ? 4 : 0;
  if (words == 0) return false;
  if (words == 1) std::copy(kMapped.begin(), kMapped.end(), address->ip.begin());
  for (size_t i = 4 - words; i < 4; ++i) {
    uint32_t word = 0;
    if (!TakeHex(&text, 8, &word)) return false;
    std::memcpy(address->ip.data() + 4 * i, &word, sizeof word);
  }
  // An IPv6 socket that is bound to no address has no mapped one either; both are "any".
  text.remove_prefix(1);
  return TakeHex(&text, 4, &address->port);
}

bool ParseTableLine(const std::string& line, TcpSocket* socket) {
  std::istringstream in(line);
  std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout;
  in >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> socket->inode;
  if (!in || state.size() != 2 || queues.size() != 17) return false;
  std::string_view digits(state), waiting(queues);
  waiting.remove_prefix(9);
  unsigned number = 0;
  if (!TakeHex(&digits, 2, &number)) return false;
  // Connection requests have a state of their own number in newer kernels.
  socket->state = number > static_cast<unsigned>(TcpState::kClosing) ? TcpState::kSynReceived
                                                                     : static_cast<TcpState>(number);
  uint32_t unaccepted = 0;
  if (!TakeHex(&waiting, 8, &unaccepted)) return false;
  if (socket->state == TcpState::kListening) socket->unaccepted = unaccepted;
  return ParseTableAddress(local, &socket->local) && ParseTableAddress(remote, &socket->remote);
}

const TcpSocket* FindOtherEnd(const TcpSocket& socket, const std::vector<TcpSocket>& all) {
  for (const TcpSocket& one : all) {
    if (one.local == socket.remote && one.remote == socket.local) return &one;
  }
  return nullptr;
}

const TcpSocket* FindListener(const TcpAddress& address, const std::vector<TcpSocket>& all) {
  for (const TcpSocket& one : all) {
    if (one.state == TcpState::kListening && one.local.Overlaps(address)) return &one;
  }
  return nullptr;
}

// Whoever listens for it will get it.
TcpFinding JudgeUnaccepted(const TcpSocket& socket, const std::vector<TcpSocket>& all,
                           const std::set<uint64_t>& tree, TcpVerdict inside) {
  const TcpSocket* listener = FindListener(socket.remote, all);
  if (listener == nullptr || tree.count(listener->inode) == 0) return {TcpVerdict::kOutside, listener};
  return {inside, listener};
}

bool EndsByItself(const TcpSocket& socket) {
  return socket.inode == 0 && (socket.state == TcpState::kTimeWait || socket.state == TcpState::kFinWait2);
}

bool Local(const TcpAddress& address, const std::set<TcpAddress>& local) {
  return address.IsAny() || IsLocal(address, local);
}

}  // namespace

bool TcpAddress::IsV4() const { return std::equal(kMapped.begin(), kMapped.end(), ip.begin()); }

bool TcpAddress::IsAny() const {
  size_t first = IsV4() ? kMapped.size() : 0;
  return std::all_of(ip.begin() + static_cast<ptrdiff_t>(first), ip.end(), [](uint8_t b) { return b == 0; });
}

std::string TcpAddress::IpText() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (IsV4()) {
    inet_ntop(AF_INET, ip.data() + kMapped.size(), text, sizeof text);
  } else {
    inet_ntop(AF_INET6, ip.data(), text, sizeof text);
  }
  return text;
}

std::string TcpAddress::Text() const {
  std::string host = IsV4() ? IpText() : "[" + IpText() + "]";
  return host + ":" + std::to_string(port);
}

bool TcpAddress::Overlaps(const TcpAddress& other) const {
  return port == other.port && (ip == other.ip || IsAny() || other.IsAny());
}

Result<TcpAddress> ParseTcpAddress(const std::string& text) {
  Status bad(StatusCode::kInvalidArgument, "'" + text + "' is no address with a port");
  size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  TcpAddress address;
  auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), address.port);
  if (error != std::errc() || end != text.data() + text.size()) return bad;
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), address.ip.data()) != 1) return bad;
    return address;
  }
  std::copy(kMapped.begin(), kMapped.end(), address.ip.begin());
  if (inet_pton(AF_INET, host.c_str(), address.ip.data() + kMapped.size()) != 1) return bad;
  return address;
}

std::vector<TcpSocket> ParseTcpTable(const std::string& text) {
  std::vector<TcpSocket> sockets;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    TcpSocket socket;
    if (ParseTableLine(line, &socket)) sockets.push_back(socket);
  }
  return sockets;
}

Result<std::vector<TcpSocket>> TcpSocketsOf(pid_t pid) {
  std::vector<TcpSocket> sockets;
  for (const char* table : {"tcp", "tcp6"}) {
    Result<std::string> text = ReadFile("/proc/" + std::to_string(pid) + "/net/" + table, kMaxTable);
    // A kernel without IPv6 has no such table.
    if (text.status().code() == StatusCode::kNotFound) continue;
    RETURN_IF_ERROR(text.status());
    std::vector<TcpSocket> some = ParseTcpTable(*text);
    sockets.insert(sockets.end(), some.begin(), some.end());
  }
  return sockets;
}

Result<std::set<TcpAddress>> LocalAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus(errno, "list the addresses of this node");
  std::set<TcpAddress> addresses;
  for (ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    TcpAddress address;
    if (one->ifa_addr == nullptr) continue;
    if (one->ifa_addr->sa_family == AF_INET) {
      std::copy(kMapped.begin(), kMapped.end(), address.ip.begin());
      std::memcpy(address.ip.data() + kMapped.size(),
                  &reinterpret_cast<sockaddr_in*>(one->ifa_addr)->sin_addr, sizeof(in_addr));
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      std::memcpy(address.ip.data(), &reinterpret_cast<sockaddr_in6*>(one->ifa_addr)->sin6_addr,
                  sizeof(in6_addr));
    } else {
      continue;
    }
    addresses.insert(address);
  }
  freeifaddrs(list);
  return addresses;
}

bool IsLocal(const TcpAddress& address, const std::set<TcpAddress>& local) {
  if (address.IsV4() && address.ip[kMapped.size()] == IN_LOOPBACKNET) return true;
  TcpAddress host = address;
  host.port = 0;
  return local.count(host) != 0;
}

TcpFinding JudgeTcp(const TcpSocket& socket, const std::vector<TcpSocket>& all,
                    const std::set<uint64_t>& tree, const std::set<TcpAddress>& local) {
  if (socket.state == TcpState::kListening)
    return {socket.unaccepted != 0 ? TcpVerdict::kNotAccepted : TcpVerdict::kCarried, nullptr};
  if (!socket.connected() || socket.state == TcpState::kClosed) return {};
  const TcpSocket* peer = FindOtherEnd(socket, all);
  if (peer == nullptr) {
    if (!IsLocal(socket.remote, local)) return {TcpVerdict::kOutside, nullptr};
    if (socket.state == TcpState::kSynSent) return JudgeUnaccepted(socket, all, tree, TcpVerdict::kMoving);
    return {socket.heard_the_end() ? TcpVerdict::kCarried : TcpVerdict::kOutside, nullptr};
  }
  if (peer->inode != 0) {
    if (tree.count(peer->inode) != 0) return {};
    return {TcpVerdict::kOutside, peer};
  }
  if (socket.heard_the_end()) return {};
  bool ended = peer->state != TcpState::kEstablished && peer->state != TcpState::kCloseWait &&
               peer->state != TcpState::kSynReceived;
  if (ended) return {TcpVerdict::kMoving, nullptr};
  return JudgeUnaccepted(socket, all, tree, TcpVerdict::kNotAccepted);
}

Status CheckDumpedTcp(const std::vector<TcpSocket>& dumped) {
  for (const TcpSocket& socket : dumped) {
    if (!socket.connected() || socket.state == TcpState::kClosed || socket.heard_the_end()) continue;
    if (FindOtherEnd(socket, dumped) != nullptr) continue;
    return Status(StatusCode::kUnsupported,
                  "a TCP connection from " + socket.local.Text() + " to " + socket.remote.Text() +
                      " was opened meanwhile, and its other end is not in the image");
  }
  return Status();
}

TcpPlaces FindTcpPlaces(const std::vector<TcpSocket>& dumped, const std::vector<TcpSocket>& all,
                        const std::set<TcpAddress>& local) {
  TcpPlaces places;
  for (const TcpSocket& wanted : dumped) {
    if (wanted.local.port == 0) continue;
    if (!Local(wanted.local, local)) {
      places.status =
          Status(StatusCode::kNotFound, "a TCP socket of the image is at " + wanted.local.Text() +
                                            ", and this node has no address " + wanted.local.IpText());
      return places;
    }
    for (const TcpSocket& there : all) {
      bool same = wanted.connected() ? there.local == wanted.local && there.remote == wanted.remote
                                     : there.local.Overlaps(wanted.local);
      if (!same) continue;
      if (EndsByItself(there)) {
        if (wanted.connected() || Local(there.remote, local)) places.stale.push_back(there);
        continue;
      }
      places.status = Status(StatusCode::kAlreadyExists,
                             wanted.connected() ? "there is a TCP connection from " + wanted.local.Text() +
                                                      " to " + wanted.remote.Text() + " already"
                                                : "TCP port " + wanted.local.Text() + " is taken");
      places.taken_by = there;
      return places;
    }
  }
  return places;
}

}  // namespace stasis

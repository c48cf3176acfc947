// TCP sockets as the kernel lists them, and which of them can go into an image with their processes.
//
// A connection can be dumped when both of its ends are in the tree: what one end has sent and the other has
// not got lies in one of their queues, and both queues are in the image. The end of a connection whose other
// end is closed can be dumped as well, once the close has arrived: nothing is on its way to it any more.
//
// Everything is about the network namespace of one process. Thread-safe.
#ifndef GHOST_TCP_H_
#define GHOST_TCP_H_

#include <sys/types.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace stasis {

// IPv4 as ::ffff:a.b.c.d, so that the two ends of a connection compare equal whatever family each is of.
struct TcpAddress {
  std::array<uint8_t, 16> ip{};
  uint16_t port = 0;

  auto operator<=>(const TcpAddress&) const = default;
  bool IsV4() const;
  bool IsAny() const;                            // 0.0.0.0 or ::
  std::string IpText() const;                    // "10.0.0.1", "fe80::1"
  std::string Text() const;                      // "10.0.0.1:80", "[fe80::1]:80"
  bool Overlaps(const TcpAddress& other) const;  // the same port, and no address that tells them apart
};
// What Text() writes; kInvalidArgument for anything else.
Result<TcpAddress> ParseTcpAddress(const std::string& text);

// The kernel's numbers.
enum class TcpState : uint8_t {
  kEstablished = 1,
  kSynSent,
  kSynReceived,
  kFinWait1,
  kFinWait2,
  kTimeWait,
  kClosed,
  kCloseWait,
  kLastAck,
  kListening,
  kClosing
};

struct TcpSocket {
  uint64_t inode = 0;  // 0: no process has it
  TcpState state = TcpState::kClosed;
  TcpAddress local;
  TcpAddress remote;        // port 0: not connected
  uint32_t unaccepted = 0;  // kListening: connections that wait for accept()

  bool connected() const { return state != TcpState::kListening && remote.port != 0; }
  // The other end has closed, and all that it had sent is here.
  bool heard_the_end() const {
    return state == TcpState::kCloseWait || state == TcpState::kLastAck || state == TcpState::kClosing;
  }
};

// One of /proc/PID/net/tcp or tcp6, or its text.
std::vector<TcpSocket> ParseTcpTable(const std::string& text);
Result<std::vector<TcpSocket>> TcpSocketsOf(pid_t pid);
// The addresses of this node in the namespace of the calling thread, port 0; without 127.0.0.0/8.
Result<std::set<TcpAddress>> LocalAddresses();
bool IsLocal(const TcpAddress& address, const std::set<TcpAddress>& local);

enum class TcpVerdict {
  kCarried,
  kOutside,      // the other end is not in the tree
  kNotAccepted,  // a process of the tree has yet to accept it
  kMoving,       // it is being opened or closed
};
struct TcpFinding {
  TcpVerdict verdict = TcpVerdict::kCarried;
  const TcpSocket* peer = nullptr;  // kOutside: the other end, or who listens for it, if it is on this node
};
// `all`: every socket of the namespace; `tree`: the inodes of the tree's sockets; `socket` one of those.
TcpFinding JudgeTcp(const TcpSocket& socket, const std::vector<TcpSocket>& all,
                    const std::set<uint64_t>& tree, const std::set<TcpAddress>& local);

// What a dump holds. kUnsupported names a connection whose other end is not in it: one that was made after
// the tree had been looked at.
Status CheckDumpedTcp(const std::vector<TcpSocket>& dumped);

// Whether sockets of a dump can be made again among `all`, those of the namespace.
struct TcpPlaces {
  Status status;  // kNotFound: this node lacks an address; kAlreadyExists: a port is taken
  std::optional<TcpSocket> taken_by;
  // What the kernel keeps of earlier lives of the connections: in nobody's hands, and in the way.
  std::vector<TcpSocket> stale;
};
TcpPlaces FindTcpPlaces(const std::vector<TcpSocket>& dumped, const std::vector<TcpSocket>& all,
                        const std::set<TcpAddress>& local);

}  // namespace stasis

#endif  // GHOST_TCP_H_

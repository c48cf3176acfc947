// Where clients of this machine come in without TLS: unix sockets and loopback addresses. Who connects is
// known from the kernel, by uid; another user than this process's own and root is turned away and logged.
#ifndef PROTO_RPC_DOORS_H_
#define PROTO_RPC_DOORS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/unix_socket.h"
#include "proto/rpc/endpoint.h"

namespace stasis {

class Doors {
 public:
  // Binds and listens; a port 0 is replaced by the one that was free. kAlreadyExists: somebody listens there;
  // kPermissionDenied: an address that is not of loopback.
  static Result<std::unique_ptr<Doors>> Open(const std::vector<Endpoint>& endpoints);
  ~Doors();
  Doors(const Doors&) = delete;
  Doors& operator=(const Doors&) = delete;

  // Lets clients in from now on, in a thread of its own: `serve` gets each connection's descriptor to own.
  // `refused` is told of those that were turned away.
  using Serve = std::function<void(int)>;
  using Refused = std::function<void(const Status&)>;
  Status Begin(Serve serve, Refused refused);
  // Nobody comes in any more. Idempotent.
  void Stop();

  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  // Of the connection that has this descriptor, or had it last.
  std::optional<uid_t> OwnerOf(int fd) const;

 private:
  struct Door {
    Endpoint endpoint;
    UnixListener unix_socket;
    Fd tcp;
    int fd() const { return endpoint.unix_socket ? unix_socket.fd() : tcp.get(); }
  };
  Doors() = default;
  static Result<Door> OpenOne(const Endpoint& endpoint);
  void Loop();
  bool TakeAll(Door& door);
  Result<Fd> Accept(Door& door);
  void LetIn(Door& door, Fd client);

  std::vector<Door> doors_;
  std::vector<Endpoint> endpoints_;
  Serve serve_;
  Refused refused_;
  Fd stop_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::map<int, uid_t> owners_;
};

// Whose the socket at the other end of a TCP connection within this machine is. kNotFound: it is closed
// already, or of another network namespace.
Result<uid_t> OwnerOfTcpPeer(int fd);

}  // namespace stasis

#endif  // PROTO_RPC_DOORS_H_

// Sockets of the library: non-blocking and close-on-exec all of them.
#ifndef SOFTGPU_NCCL_NET_H_
#define SOFTGPU_NCCL_NET_H_

#include <poll.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "softgpu/nccl/wire.h"

namespace softgpu::nccl {

using stasis::Fd;
using stasis::Result;
using stasis::Status;

// The address that other machines reach this one by. NCCL_SOCKET_IFNAME chooses the interface as for NCCL:
// prefixes separated by commas, "=" in front for whole names, "^" for all but these; unset, any that is not
// the loopback, else the loopback. kNotFound: no interface fits.
Result<Address> LocalAddress();
// "host:port" of NCCL_COMM_ID.
Result<Address> ParseAddress(const std::string& text);
// "10.0.0.1:1234"
std::string AddressText(const Address& address);

// `address.port` 0: the system chooses.
Result<Fd> ListenTcp(const Address& address);
Result<Address> BoundAddress(int socket);
// In the abstract namespace, whose names vanish with their sockets.
Result<Fd> ListenLocal(const std::string& name);
// The connection may still be on its way: see ConnectError() once it is writable. kUnavailable: refused.
Result<Fd> StartConnect(const Address& address);
Result<Fd> ConnectLocal(const std::string& name);
// 0, or the errno with which the connection failed.
int ConnectError(int socket);
// An invalid Fd when nobody is waiting.
Fd Accept(int listener);

// Part of a structure on its way. Send() and Receive() give true when it is through, false when the socket
// would block, a status when the connection is gone.
class Transfer {
 public:
  Result<bool> Send(int socket, const void* bytes, size_t size, int descriptor = -1);
  // A descriptor that comes along is put in `descriptor`, others are closed.
  Result<bool> Receive(int socket, void* bytes, size_t size, Fd* descriptor = nullptr);

 private:
  size_t done_ = 0;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_NET_H_

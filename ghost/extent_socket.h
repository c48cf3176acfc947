// Descriptors of device memory from one ghost to another on the same node, for as long as it takes to copy
// from it.
#ifndef GHOST_EXTENT_SOCKET_H_
#define GHOST_EXTENT_SOCKET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/unix_socket.h"
#include "ghost/held_member.h"

namespace stasis {

// An extent of a rank: its member, and the extent's place among those of the member.
struct ExtentName {
  uint32_t member = 0;
  uint32_t extent = 0;
  auto operator<=>(const ExtentName&) const = default;
};

// Gives out descriptors of the extents that are on a device to ghosts of the same user, one after another,
// until it is destroyed. Has a thread and descriptors of its own.
class ExtentServer {
 public:
  static Result<std::unique_ptr<ExtentServer>> Start(const std::string& path,
                                                     const std::vector<HeldMember>& members);
  ~ExtentServer();
  ExtentServer(const ExtentServer&) = delete;
  ExtentServer& operator=(const ExtentServer&) = delete;

 private:
  ExtentServer(UnixListener listener, std::vector<std::vector<Fd>> extents);
  void Serve();
  Status Answer(int socket) const;

  UnixListener listener_;
  const std::vector<std::vector<Fd>> extents_;  // [member][extent]
  Fd stop_;
  std::thread thread_;
};

// In the order of `names`. kNotFound: it has no such extent on a device.
Result<std::vector<Fd>> FetchExtents(const std::string& path, const std::vector<ExtentName>& names,
                                     const Deadline& deadline);

}  // namespace stasis

#endif  // GHOST_EXTENT_SOCKET_H_

// Listening, connecting and accepting on unix stream sockets with a path, and who is at the other end.
#ifndef BASE_UNIX_SOCKET_H_
#define BASE_UNIX_SOCKET_H_

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace stasis {

// A listening socket and the lock that makes it the only one on its path. Removes the socket file when
// destroyed, unless the process that destroys it is not the one that created it (a forked child).
class UnixListener {
 public:
  // Binds `path`, mode 0600. Missing directories are created, the last one for this user alone. A socket file
  // that nobody answers is replaced. kAlreadyExists: somebody listens there, or the path is no socket.
  // kPermissionDenied: the directory belongs to somebody else, or others may rename in it. kInvalidArgument:
  // path empty or too long for a socket address.
  static Result<UnixListener> Listen(const std::string& path);

  UnixListener() = default;
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener() { Close(); }

  // Non-blocking, close-on-exec; -1 once closed.
  int fd() const { return socket_.get(); }
  // The lock's descriptor, for those who close by number; -1 once closed.
  int lock_fd() const { return lock_.get(); }
  const std::string& path() const { return path_; }
  // The next connection: non-blocking, close-on-exec. kUnavailable when there is none at the moment.
  Result<Fd> Accept();
  void Close();
  // Gives both descriptors numbers of at least `lowest`, so that others find the low ones free.
  Status MoveDescriptors(int lowest);

 private:
  std::string path_;
  Fd lock_;
  Fd socket_;
  pid_t owner_ = 0;
};

// Creates the missing directories above `path`, the last one for this user alone, and checks that others
// cannot replace what is in it (kPermissionDenied). Listen() does this by itself.
Status PrepareSocketDirectory(const std::string& path);
// kPermissionDenied: somebody else may put his own files where ours are looked for. OK when it is not there
// yet.
Status CheckRunFolder(const std::string& folder);

// A non-blocking, close-on-exec connection to the listener at `path`. kNotFound: no such path; kUnavailable:
// nobody listens there; kTimeout: the listener's backlog stayed full.
Result<Fd> ConnectUnix(const std::string& path, const Deadline& deadline);

// Two connected non-blocking, close-on-exec sockets.
Result<std::pair<Fd, Fd>> UnixSocketPair();

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};
// Who connected (or listens): as the kernel recorded it at connect(2) or listen(2), not as the peer claims.
Result<PeerCredentials> GetPeerCredentials(int socket);

}  // namespace stasis

#endif  // BASE_UNIX_SOCKET_H_

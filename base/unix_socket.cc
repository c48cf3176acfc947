#include "base/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace stasis {
namespace {

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Errorf(StatusCode::kInvalidArgument, "socket path '%s' must have 1 to %zu bytes", path.c_str(),
                  sizeof address.sun_path - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Fd> NewSocket() {
  Fd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_fd.valid()) return ErrnoStatus(errno, "socket");
  return socket_fd;
}

std::string DirectoryOf(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status MakeDirectories(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return Status();
  if (errno != ENOENT) return ErrnoStatus(errno, "create directory " + directory);
  RETURN_IF_ERROR(MakeDirectories(DirectoryOf(directory)));
  if (mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return Status();
  return ErrnoStatus(errno, "create directory " + directory);
}

// From a fork to the exec after it.
constexpr auto kExecTime = std::chrono::seconds(5);

// In a user namespace the owner of what is not of it, as root's, has this number.
constexpr uid_t kNobodyHere = 65534;

Status CheckOwner(const std::string& path, const struct stat& info) {
  if (info.st_uid == geteuid() || info.st_uid == 0 || info.st_uid == kNobodyHere) return Status();
  return Status(StatusCode::kPermissionDenied, path + " belongs to another user");
}

// Who owns a directory above ours, or may write it, may put another one in its place. That of a group may be
// written by the group: users have groups of their own.
Status CheckAbove(const std::string& directory) {
  for (std::string above = directory; above != "/" && above != ".";) {
    above = DirectoryOf(above);
    struct stat info, link;
    if (stat(above.c_str(), &info) != 0 || lstat(above.c_str(), &link) != 0)
      return ErrnoStatus(errno, "stat " + above);
    RETURN_IF_ERROR(CheckOwner(above, info));
    RETURN_IF_ERROR(CheckOwner(above, link));
    if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0)
      return Status(StatusCode::kPermissionDenied, "directory " + above + " is open to other users");
  }
  return Status();
}

// Whoever may rename in the directory may put a socket of their own in our place.
Status CheckDirectory(const std::string& directory) {
  struct stat info;
  if (stat(directory.c_str(), &info) != 0) return ErrnoStatus(errno, "stat " + directory);
  if (!S_ISDIR(info.st_mode)) return Status(StatusCode::kInvalidArgument, directory + " is no directory");
  bool ours = info.st_uid == geteuid() || info.st_uid == 0;
  bool closed = (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 || (info.st_mode & S_ISVTX) != 0;
  if (ours && closed) return Status();
  return Status(StatusCode::kPermissionDenied, "directory " + directory + " is open to other users");
}

// Whether who listens is dead, and only a child that has not come to its exec yet has the socket still. Then
// this waits a moment for the child, until `limit`.
bool WaitedForTheDead(const Result<Fd>& connection, const Deadline& limit) {
  if (!connection.ok() || limit.Expired()) return false;
  Result<PeerCredentials> peer = GetPeerCredentials(connection->get());
  if (!peer.ok() || peer->pid <= 0 || kill(peer->pid, 0) == 0 || errno != ESRCH) return false;
  (void)poll(nullptr, 0, 5);
  return true;
}

// The lock outlives its holder's crash without leaving anything to clean up: the kernel drops it with the
// process.
Result<Fd> LockPath(const std::string& path, const Deadline& limit) {
  std::string lock_path = path + ".lock";
  for (;;) {
    Fd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock.valid()) return ErrnoStatus(errno, "open " + lock_path);
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + lock_path);
      if (WaitedForTheDead(ConnectUnix(path, Deadline::After(Duration::zero())), limit)) continue;
      return Status(StatusCode::kAlreadyExists, "somebody already listens on " + path);
    }
    // A holder that ended in between removed the file; the lock would be on a file that nobody else can find.
    struct stat held, named;
    if (fstat(lock.get(), &held) != 0) return ErrnoStatus(errno, "fstat " + lock_path);
    if (stat(lock_path.c_str(), &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
      return lock;
    }
  }
}

Status RemoveStaleSocket(const std::string& path, const Deadline& limit) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status() : ErrnoStatus(errno, "stat " + path);
  }
  if (!S_ISSOCK(info.st_mode)) return Status(StatusCode::kAlreadyExists, path + " exists and is no socket");
  Result<Fd> answer = ConnectUnix(path, Deadline::After(Duration::zero()));
  while (WaitedForTheDead(answer, limit)) answer = ConnectUnix(path, Deadline::After(Duration::zero()));
  // A full backlog is an answer too.
  if (answer.ok() || answer.status().code() == StatusCode::kTimeout) {
    return Status(StatusCode::kAlreadyExists, "somebody already listens on " + path);
  }
  if (answer.status().code() != StatusCode::kUnavailable) return std::move(answer).status();
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "unlink " + path);
  return Status();
}

}  // namespace

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  if (this != &other) {
    Close();
    path_ = std::move(other.path_);
    lock_ = std::move(other.lock_);
    socket_ = std::move(other.socket_);
    owner_ = other.owner_;
  }
  return *this;
}

Status PrepareSocketDirectory(const std::string& path) {
  std::string directory = DirectoryOf(path);
  RETURN_IF_ERROR(MakeDirectories(directory));
  RETURN_IF_ERROR(CheckDirectory(directory));
  return CheckAbove(directory);
}

Status CheckRunFolder(const std::string& folder) {
  struct stat info;
  if (lstat(folder.c_str(), &info) != 0) return errno == ENOENT ? Status() : ErrnoStatus(errno, folder);
  RETURN_IF_ERROR(CheckOwner(folder, info));  // of a link, too
  RETURN_IF_ERROR(CheckDirectory(folder));
  return CheckAbove(folder);
}

Result<UnixListener> UnixListener::Listen(const std::string& path) {
  ASSIGN_OR_RETURN(sockaddr_un address, AddressOf(path));
  RETURN_IF_ERROR(PrepareSocketDirectory(path));
  UnixListener listener;
  const Deadline limit = Deadline::After(kExecTime);
  ASSIGN_OR_RETURN(listener.lock_, LockPath(path, limit));
  RETURN_IF_ERROR(RemoveStaleSocket(path, limit));
  ASSIGN_OR_RETURN(Fd socket_fd, NewSocket());
  // The mode of the socket inode is that of the file to be created: no moment in which others could connect.
  if (fchmod(socket_fd.get(), 0600) != 0) return ErrnoStatus(errno, "fchmod socket");
  if (bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoStatus(errno, "bind " + path);
  }
  listener.socket_ = std::move(socket_fd);
  listener.path_ = path;
  listener.owner_ = getpid();
  if (listen(listener.socket_.get(), SOMAXCONN) != 0) return ErrnoStatus(errno, "listen on " + path);
  return listener;
}

Result<Fd> UnixListener::Accept() {
  for (;;) {
    Fd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) return connection;
    // A connection that was given up before it was accepted is no reason to stop.
    if (errno != EINTR && errno != ECONNABORTED) return ErrnoStatus(errno, "accept");
  }
}

void UnixListener::Close() {
  if (socket_.valid() && owner_ == getpid()) {
    (void)unlink(path_.c_str());
    (void)unlink((path_ + ".lock").c_str());
  }
  socket_.Reset();
  lock_.Reset();
}

Status UnixListener::MoveDescriptors(int lowest) {
  for (Fd* fd : {&socket_, &lock_}) {
    Fd moved(fcntl(fd->get(), F_DUPFD_CLOEXEC, lowest));
    if (!moved.valid()) return ErrnoStatus(errno, "move a descriptor of " + path_);
    *fd = std::move(moved);
  }
  return Status();
}

Result<Fd> ConnectUnix(const std::string& path, const Deadline& deadline) {
  ASSIGN_OR_RETURN(sockaddr_un address, AddressOf(path));
  ASSIGN_OR_RETURN(Fd socket_fd, NewSocket());
  while (connect(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return ErrnoStatus(errno, "connect to " + path);
    if (deadline.Expired()) {
      return Status(StatusCode::kTimeout, "connect to " + path + ": the listener does not accept");
    }
    // The kernel tells nobody when a unix listener's backlog has room again, so this one wait is by time.
    (void)poll(nullptr, 0, 1);
  }
  return socket_fd;
}

Result<std::pair<Fd, Fd>> UnixSocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  return std::pair<Fd, Fd>(Fd(fds[0]), Fd(fds[1]));
}

Result<PeerCredentials> GetPeerCredentials(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

}  // namespace stasis

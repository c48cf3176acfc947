#include "ghost/dumpable.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>

#include "base/files.h"
#include "ghost/dumpable_tcp.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

using Inode = uint64_t;

std::string FdPath(pid_t pid, int fd) { return "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd); }

Status Refuse(pid_t pid, int fd, const std::string& what) {
  return Status(StatusCode::kUnsupported,
                "process " + Named(pid) + ", descriptor " + std::to_string(fd) + ": " + what);
}

// "socket:[123]" with prefix "socket:[" -> 123; 0 when it is something else.
Inode InodeIn(const std::string& target, const char* prefix) {
  if (!target.starts_with(prefix)) return 0;
  return std::strtoull(target.c_str() + std::strlen(prefix), nullptr, 10);
}

bool IsDeleted(const std::string& target) { return target.ends_with(" (deleted)"); }
bool IsMemfd(const std::string& target) { return target.starts_with("/memfd:"); }

struct Unsupported {
  const char* prefix;
  const char* what;
  const char* remedy;
};
constexpr Unsupported kUnsupportedFiles[] = {
    {"anon_inode:[io_uring]", "io_uring is in use", "run the program without io_uring"},
    {"anon_inode:[perf_event]", "a performance counter is open", "run the program without the profiler"},
    {"anon_inode:[userfaultfd]", "userfaultfd is in use", "run the program without it"},
    {"anon_inode:bpf", "a BPF object is open", "close it before the checkpoint"},
    {"anon_inode:kvm", "a virtual machine is open", "end the virtual machine before the checkpoint"},
};

// The kernel's names of the protocols that CRIU knows.
constexpr const char* kCarriedSockets[] = {"UNIX",  "UNIX-STREAM", "TCP",       "TCPv6",  "UDP",
                                           "UDPv6", "UDP-Lite",    "UDPLITEv6", "RAW",    "RAWv6",
                                           "PING",  "PINGv6",      "PACKET",    "NETLINK"};
// And of files without a path.
constexpr const char* kCarriedFiles[] = {"eventfd",  "eventpoll", "inotify", "fanotify",
                                         "signalfd", "timerfd",   "pidfd"};

template <size_t kSize>
bool IsOneOf(const std::string& word, const char* const (&words)[kSize]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

Status CheckSocket(pid_t pid, const ProcFd& fd, std::string* remedy) {
  char protocol[64];
  const ssize_t size =
      getxattr(FdPath(pid, fd.fd).c_str(), "system.sockprotoname", protocol, sizeof protocol - 1);
  if (size <= 0) return Status();  // it has been closed, or the kernel does not say
  protocol[size] = '\0';
  if (IsOneOf(protocol, kCarriedSockets)) return Status();
  *remedy = "close the socket before the checkpoint, or run the program without it";
  return Refuse(pid, fd.fd, std::string("a socket of protocol ") + protocol + " is open");
}

// By major number: of memory (null, random), tunnels and autofs, and terminals.
bool IsCarriedDevice(dev_t device) {
  constexpr unsigned kMemory = 1, kTty = 4, kTtyAux = 5, kMisc = 10, kHvc = 229;
  constexpr unsigned kTun = 200, kAutofs = 235;
  constexpr unsigned kFirstPty = 128, kLastPty = 143;
  const unsigned kind = major(device);
  if (kind == kMisc) return minor(device) == kTun || minor(device) == kAutofs;
  return kind == kMemory || kind == kTty || kind == kTtyAux || kind == kHvc ||
         (kind >= kFirstPty && kind <= kLastPty);
}

Status CheckDevice(pid_t pid, const ProcFd& fd, std::string* remedy) {
  struct stat info;
  if (stat(FdPath(pid, fd.fd).c_str(), &info) != 0) return Status();
  if (!S_ISBLK(info.st_mode) && !(S_ISCHR(info.st_mode) && !IsCarriedDevice(info.st_rdev))) return Status();
  *remedy = "close the device before the checkpoint, or run the program without it";
  return Refuse(pid, fd.fd, "the device " + fd.target + " is open");
}

Status CheckAnonymous(pid_t pid, const ProcFd& fd, std::string* remedy) {
  constexpr std::string_view kPrefix = "anon_inode:";
  if (!fd.target.starts_with(kPrefix)) return Status();
  std::string name = fd.target.substr(kPrefix.size());
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (IsOneOf(name, kCarriedFiles)) return Status();
  *remedy = "close it before the checkpoint, or run the program without it";
  return Refuse(pid, fd.fd, "the kernel's object " + fd.target + " is open");
}

// The kernel's own name of a device folder that no process may have open when CRIU looks.
bool IsGpuFile(const std::string& path) {
  return path.starts_with("/dev/nvidia") || path.starts_with("/dev/dri/");
}

// What the driver and NCCL let go of for the dump.
bool IsClosedForTheDump(const std::string& path) {
  return IsGpuFile(path) || path.starts_with("/dev/infiniband/") || path == "/dev/dxg";
}

Result<bool> HoldsTerminalMaster(const std::vector<pid_t>& tree) {
  for (pid_t pid : tree) {
    ASSIGN_OR_RETURN(const std::vector<ProcFd> fds, FdsOf(pid));
    for (const ProcFd& fd : fds) {
      if (fd.target == "/dev/ptmx" || fd.target == "/dev/pts/ptmx") return true;
    }
  }
  return false;
}

bool IsTerminal(const std::string& target) {
  return (target.starts_with("/dev/pts/") && target != "/dev/pts/ptmx") || target == "/dev/tty" ||
         target == "/dev/console" || target.starts_with("/dev/ttyS");
}

Status CheckDeleted(pid_t pid, const ProcFd& fd, std::string* remedy) {
  struct stat info;
  if (stat(FdPath(pid, fd.fd).c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_nlink == 0)
    return Status();
  *remedy = "close the file before the checkpoint";
  return Refuse(pid, fd.fd, fd.target + " was replaced while it is open, and has another name now");
}

Status CheckOne(pid_t pid, const ProcFd& fd, bool own_terminals, std::string* remedy) {
  for (const Unsupported& row : kUnsupportedFiles) {
    if (!fd.target.starts_with(row.prefix)) continue;
    *remedy = row.remedy;
    return Refuse(pid, fd.fd, row.what);
  }
  if (IsTerminal(fd.target) && !own_terminals) {
    *remedy = "start the program with its input and output connected to files (stasis run does)";
    return Refuse(pid, fd.fd, "the terminal " + fd.target + " is open");
  }
  if (fd.target.starts_with("socket:")) return CheckSocket(pid, fd, remedy);
  if (fd.target.starts_with("/dev/") && !IsClosedForTheDump(fd.target)) return CheckDevice(pid, fd, remedy);
  return IsDeleted(fd.target) && !IsMemfd(fd.target) ? CheckDeleted(pid, fd, remedy) : Status();
}

// Which unix socket is connected to which, by inode.
Result<std::map<Inode, Inode>> UnixPeers() {
  Fd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.valid()) return ErrnoStatus(errno, "netlink socket");
  struct {
    nlmsghdr header;
    unix_diag_req body;
  } request{};
  request.header = {sizeof request, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0};
  request.body.sdiag_family = AF_UNIX;
  request.body.udiag_states = ~0u;
  request.body.udiag_show = UDIAG_SHOW_PEER;
  if (send(netlink.get(), &request, sizeof request, 0) < 0) return ErrnoStatus(errno, "ask for unix sockets");
  std::map<Inode, Inode> peers;
  alignas(nlmsghdr) char buffer[32768];
  for (;;) {
    ssize_t got = recv(netlink.get(), buffer, sizeof buffer, 0);
    if (got < 0) return ErrnoStatus(errno, "list unix sockets");
    unsigned left = static_cast<unsigned>(got);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return peers;
      if (header->nlmsg_type == NLMSG_ERROR)
        return Status(StatusCode::kUnsupported, "the kernel lists no unix sockets");
      auto* message = static_cast<unix_diag_msg*>(NLMSG_DATA(header));
      unsigned size = static_cast<unsigned>(header->nlmsg_len - NLMSG_LENGTH(sizeof *message));
      for (auto* a = reinterpret_cast<rtattr*>(message + 1); RTA_OK(a, size); a = RTA_NEXT(a, size)) {
        if (a->rta_type == UNIX_DIAG_PEER) peers[message->udiag_ino] = *static_cast<uint32_t*>(RTA_DATA(a));
      }
    }
  }
}

// Where something of the tree was seen first.
struct Holder {
  pid_t pid = 0;
  int fd = -1;  // -1: a mapping
};

struct SharedThings {
  std::map<Inode, Holder> pipes;
  std::map<Inode, Holder> sockets;
  std::map<Inode, Holder> memory;  // shared mappings of nameless files
  bool empty() const { return pipes.empty() && sockets.empty() && memory.empty(); }
};

bool IsSharedMemory(const ProcMap& map) {
  return map.protection[3] == 's' && map.inode != 0 && IsDeleted(map.path);
}

Result<SharedThings> Collect(const std::vector<pid_t>& tree) {
  SharedThings things;
  for (pid_t pid : tree) {
    ASSIGN_OR_RETURN(const std::vector<ProcFd> fds, FdsOf(pid));
    for (const ProcFd& fd : fds) {
      if (Inode inode = InodeIn(fd.target, "pipe:[")) things.pipes.emplace(inode, Holder{pid, fd.fd});
      if (Inode inode = InodeIn(fd.target, "socket:[")) things.sockets.emplace(inode, Holder{pid, fd.fd});
    }
    ASSIGN_OR_RETURN(const std::vector<ProcMap> maps, MapsOf(pid));
    for (const ProcMap& map : maps) {
      if (IsSharedMemory(map)) things.memory.emplace(map.inode, Holder{pid, -1});
    }
  }
  return things;
}

// Peers of the tree's sockets that are not in the tree, with the socket that leads there.
Status FindOutsidePeers(const SharedThings& things, std::map<Inode, Holder>* outside_peers) {
  if (things.sockets.empty()) return Status();
  ASSIGN_OR_RETURN(auto peers, UnixPeers());
  for (const auto& [inode, holder] : things.sockets) {
    auto peer = peers.find(inode);
    if (peer == peers.end() || peer->second == 0 || things.sockets.count(peer->second) != 0) continue;
    (*outside_peers)[peer->second] = holder;
  }
  return Status();
}

Status RefuseShared(const Holder& holder, const char* what, pid_t other, std::string* remedy) {
  *remedy = "end the connection before the checkpoint, or run process " + std::to_string(other) +
            " inside the task";
  std::string where = holder.fd >= 0 ? ", descriptor " + std::to_string(holder.fd) : "";
  return Status(StatusCode::kUnsupported, "process " + Named(holder.pid) + where + ": " + what + " process " +
                                              Named(other) + ", which is outside of the task");
}

Status CheckOutsider(pid_t other, const SharedThings& things, const std::map<Inode, Holder>& peers,
                     std::string* remedy) {
  const Result<std::vector<ProcFd>> fds = FdsOf(other);
  if (!fds.ok()) return Status();  // others' processes may be hidden from this user
  for (const ProcFd& fd : *fds) {
    auto pipe = things.pipes.find(InodeIn(fd.target, "pipe:["));
    if (pipe != things.pipes.end()) return RefuseShared(pipe->second, "a pipe to", other, remedy);
    auto peer = peers.find(InodeIn(fd.target, "socket:["));
    if (peer != peers.end()) return RefuseShared(peer->second, "a unix socket connected to", other, remedy);
    struct stat info;
    if (things.memory.empty() || !IsDeleted(fd.target) || stat(FdPath(other, fd.fd).c_str(), &info) != 0)
      continue;
    auto memory = things.memory.find(info.st_ino);
    if (memory != things.memory.end())
      return RefuseShared(memory->second, "memory shared with", other, remedy);
  }
  if (things.memory.empty()) return Status();
  Result<std::vector<ProcMap>> maps = MapsOf(other);
  if (!maps.ok()) return Status();
  for (const ProcMap& map : *maps) {
    auto memory = IsSharedMemory(map) ? things.memory.find(map.inode) : things.memory.end();
    if (memory != things.memory.end())
      return RefuseShared(memory->second, "memory shared with", other, remedy);
  }
  return Status();
}

bool HasNvml(const std::vector<ProcMap>& maps) {
  return std::any_of(maps.begin(), maps.end(), [](const ProcMap& map) {
    return map.path.find("/libnvidia-ml.so") != std::string::npos;
  });
}

Status CheckDriverLeft(pid_t pid, const struct stat* library, std::string* remedy) {
  *remedy = "the program can go on; this is a fault of the driver or of stasis: see docs/checkpoint.md";
  ASSIGN_OR_RETURN(std::vector<ProcMap> maps, MapsOf(pid));
  ASSIGN_OR_RETURN(const std::vector<ProcFd> fds, FdsOf(pid));
  for (const ProcFd& fd : fds) {
    if (!IsGpuFile(fd.target)) continue;
    // A process that uses CUDA is made to let go of NVML; one that only watches the devices is not.
    if (!HasNvml(maps)) return Refuse(pid, fd.fd, "the driver left " + fd.target + " open");
    *remedy = "call nvmlShutdown in that process, or end it, before the checkpoint";
    return Refuse(pid, fd.fd, "NVML holds " + fd.target + " open");
  }
  for (const ProcMap& map : maps) {
    bool library_left =
        library && map.inode == library->st_ino && map.path.starts_with("/") && !IsMemfd(map.path);
    if (!IsGpuFile(map.path) && !library_left) continue;
    return Status(StatusCode::kUnsupported,
                  "process " + Named(pid) + ": the driver left " + map.path + " mapped");
  }
  remedy->clear();
  return Status();
}

// What the driver may have had open rightly until now.
Status CheckFilesLeft(pid_t pid, std::string* remedy) {
  ASSIGN_OR_RETURN(const std::vector<ProcFd> fds, FdsOf(pid));
  for (const ProcFd& fd : fds) {
    RETURN_IF_ERROR(CheckDevice(pid, fd, remedy));
    RETURN_IF_ERROR(CheckAnonymous(pid, fd, remedy));
  }
  return Status();
}

}  // namespace

Status CheckDescriptors(const std::vector<pid_t>& tree, std::string* remedy) {
  ASSIGN_OR_RETURN(const bool own_terminals, HoldsTerminalMaster(tree));
  for (pid_t pid : tree) {
    ASSIGN_OR_RETURN(const std::vector<ProcFd> fds, FdsOf(pid));
    for (const ProcFd& fd : fds) RETURN_IF_ERROR(CheckOne(pid, fd, own_terminals, remedy));
  }
  return CheckTcp(tree, TcpCheck::kWhileRunning, remedy);
}

Status CheckResidue(const std::vector<pid_t>& tree, const std::vector<pid_t>& closed,
                    const std::string& driver, std::string* remedy) {
  struct stat library {};
  bool found = stat(driver.c_str(), &library) == 0;
  for (pid_t pid : tree) {
    bool look = found && std::find(closed.begin(), closed.end(), pid) != closed.end();
    RETURN_IF_ERROR(CheckDriverLeft(pid, look ? &library : nullptr, remedy));
    RETURN_IF_ERROR(CheckFilesLeft(pid, remedy));
  }
  RETURN_IF_ERROR(CheckTcp(tree, TcpCheck::kStandingStill, remedy));
  ASSIGN_OR_RETURN(const SharedThings things, Collect(tree));
  if (things.empty()) return Status();
  std::map<Inode, Holder> peers;
  RETURN_IF_ERROR(FindOutsidePeers(things, &peers));
  if (things.pipes.empty() && peers.empty() && things.memory.empty()) return Status();
  ASSIGN_OR_RETURN(const std::vector<pid_t> all, AllProcesses());
  for (pid_t other : all) {
    if (std::find(tree.begin(), tree.end(), other) != tree.end()) continue;
    RETURN_IF_ERROR(CheckOutsider(other, things, peers, remedy));
  }
  // A peer that no process holds is in flight to one, or its owner is hidden from us.
  if (peers.empty()) return Status();
  *remedy = "close the connection before the checkpoint";
  const Holder& holder = peers.begin()->second;
  return Refuse(holder.pid, holder.fd, "a unix socket is connected to something outside of the task");
}

}  // namespace stasis

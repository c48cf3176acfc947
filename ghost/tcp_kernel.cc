#include "ghost/tcp_kernel.h"

#include <endian.h>
#include <linux/in.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/fd.h"
#include "base/files.h"
#include "base/raw_log.h"
#include "ghost/criu.h"
#include "ghost/criu_wire.h"
#include "ghost/nftables.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr uint32_t kInventoryMagic = 0x58313116;
// CRIU 4 cuts the name of its table, with the family before it.
constexpr size_t kMaxTable = 31;
constexpr size_t kMaxInventory = 1 << 20;
constexpr size_t kMaxFiles = 1u << 30;

struct DestroyRequest {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

void PutAddress(const TcpAddress& address, bool v4, __be32 (*words)[4], __be16* port) {
  if (v4) {
    std::memcpy(*words, address.ip.data() + 12, 4);
  } else {
    std::memcpy(*words, address.ip.data(), 16);
  }
  *port = htobe16(address.port);
}

// 0, or the errno that the kernel answers.
int AskSockDiag(const DestroyRequest& request) {
  Fd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.valid() || send(netlink.get(), &request, sizeof request, 0) < 0) return errno;
  alignas(nlmsghdr) char answer[8192];
  ssize_t got = recv(netlink.get(), answer, sizeof answer, 0);
  if (got < 0) return errno;
  auto* header = reinterpret_cast<nlmsghdr*>(answer);
  if (!NLMSG_OK(header, static_cast<unsigned>(got)) || header->nlmsg_type != NLMSG_ERROR) return EPROTO;
  return -static_cast<nlmsgerr*>(NLMSG_DATA(header))->error;
}

// CRIU's id of the run. The image may come from anywhere, and the id goes into commands.
bool IsRunId(const std::string& id) {
  return !id.empty() && id.size() <= 64 && id.find_first_not_of("0123456789abcdef-") == std::string::npos;
}

Result<std::string> LockTable(const std::string& images) {
  ASSIGN_OR_RETURN(std::string bytes, ReadFile(images + "/inventory.img", kMaxInventory));
  // Alone of all images it has no common magic word in front of its own.
  bytes.insert(0, reinterpret_cast<const char*>(&kCriuCommonMagic), sizeof kCriuCommonMagic);
  std::string id;
  auto read = [&](std::span<const std::byte> entry) {
    constexpr uint64_t kRunId = 13;
    Wire wire(entry);
    bool ok = true;
    while (ok && !wire.empty()) {
      Field field = NextField(wire, &ok);
      if (field.number == kRunId)
        id.assign(reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size());
    }
    return ok;
  };
  Status status = ForCriuEntries(std::as_bytes(std::span(bytes)), kInventoryMagic, read);
  if (status.ok() && !IsRunId(id)) status = Status(StatusCode::kCorrupt, "there is no id of the run in it");
  RETURN_IF_ERROR(status.WithContext("inventory.img"));
  return ("inet CRIU-" + id).substr(0, kMaxTable);
}

std::string Elements(const std::vector<TcpSocket>& tcp, bool v4) {
  std::string elements;
  for (const TcpSocket& socket : tcp) {
    if (!socket.connected() || socket.local.IsV4() != v4) continue;
    elements += (elements.empty() ? "" : ", ") + socket.local.IpText() + " . " +
                std::to_string(socket.local.port) + " . " + socket.remote.IpText() + " . " +
                std::to_string(socket.remote.port);
  }
  return elements;
}

// Packets that make a half-closed socket are CRIU's own and marked.
constexpr char kChain[] =
    " output { type filter hook output priority 0; }\n"
    "add rule %T output meta mark 0xC114 accept\n";

std::string LockCommands(const std::string& table, const std::vector<TcpSocket>& tcp) {
  // One that was left over makes way.
  std::string commands = "add table %T\ndelete table %T\nadd table %T\nadd chain %T" + std::string(kChain);
  struct {
    bool v4;
    const char* set;
    const char* ip;
    const char* type;
  } families[] = {{true, "conns4", "ip", "ipv4_addr"}, {false, "conns6", "ip6", "ipv6_addr"}};
  for (const auto& family : families) {
    std::string elements = Elements(tcp, family.v4), set = family.set, ip = family.ip, type = family.type;
    if (elements.empty()) continue;
    commands +=
        "add set %T " + set + " { type " + type + " . inet_service . " + type + " . inet_service; }\n";
    commands += "add element %T " + set + " { " + elements + " }\n";
    commands +=
        "add rule %T output " + ip + " saddr . tcp sport . " + ip + " daddr . tcp dport @" + set + " drop\n";
  }
  for (size_t at = commands.find("%T"); at != std::string::npos; at = commands.find("%T", at))
    commands.replace(at, 2, table);
  return commands;
}

Result<Fd> TakeFd(int pidfd, int fd) {
  Fd taken(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0)));
  if (!taken.valid()) return ErrnoStatus(errno, "pidfd_getfd");
  return taken;
}

Status EndRepairOf(int socket, bool reuse_address) {
  int repair = 0, reuse = reuse_address ? 1 : 0;
  socklen_t size = sizeof repair;
  if (getsockopt(socket, IPPROTO_TCP, TCP_REPAIR, &repair, &size) != 0 || repair == 0) return Status();
  int queue = TCP_NO_QUEUE, off = TCP_REPAIR_OFF;
  (void)setsockopt(socket, IPPROTO_TCP, TCP_REPAIR_QUEUE, &queue, sizeof queue);
  if (setsockopt(socket, IPPROTO_TCP, TCP_REPAIR, &off, sizeof off) != 0)
    return ErrnoStatus(errno, "end the repair of a TCP connection");
  // Repair has taken the program's own value away.
  (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
  return Status();
}

}  // namespace

Status ForgetTcp(const TcpSocket& stale) {
  bool v4 = stale.local.IsV4();
  DestroyRequest request{};
  request.header = {sizeof request, SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, 1, 0};
  request.body.sdiag_family = v4 ? AF_INET : AF_INET6;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0u;
  PutAddress(stale.local, v4, &request.body.id.idiag_src, &request.body.id.idiag_sport);
  PutAddress(stale.remote, v4, &request.body.id.idiag_dst, &request.body.id.idiag_dport);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  int error = AskSockDiag(request);
  if (error == 0 || error == ENOENT) return Status();
  return ErrnoStatus(error, "the end of an earlier TCP connection from " + stale.local.Text() + " to " +
                                stale.remote.Text() + " is still waited for");
}

Status LockTcp(const std::vector<TcpSocket>& tcp, const std::string& images) {
  if (std::none_of(tcp.begin(), tcp.end(), [](const TcpSocket& socket) { return socket.connected(); }))
    return Status();
  ASSIGN_OR_RETURN(std::string table, LockTable(images));
  return RunNftables(LockCommands(table, tcp));
}

Status LiftTcpLock(const std::string& images) {
  ASSIGN_OR_RETURN(std::string table, LockTable(images));
  return RunNftables("add table " + table + "\ndelete table " + table + "\n");
}

Status EndTcpRepair(const std::vector<pid_t>& tree, const std::string& images) {
  ASSIGN_OR_RETURN(std::string bytes, ReadFile(images + "/files.img", kMaxFiles));
  ASSIGN_OR_RETURN(std::vector<CriuTcp> sockets, ParseCriuTcp(std::as_bytes(std::span(bytes))));
  std::map<std::string, bool> reuse;
  for (const CriuTcp& tcp : sockets)
    reuse["socket:[" + std::to_string(tcp.socket.inode) + "]"] = tcp.reuse_address;
  Status first;
  for (pid_t pid : tree) {
    Result<Fd> pidfd = OpenPidFd(pid);
    if (!pidfd.ok()) continue;
    const Result<std::vector<ProcFd>> fds = FdsOf(pid);
    if (!fds.ok()) {
      if (first.ok()) first = fds.status();
      continue;
    }
    for (const ProcFd& fd : *fds) {
      auto known = reuse.find(fd.target);
      if (known == reuse.end()) continue;
      Result<Fd> socket = TakeFd(pidfd->get(), fd.fd);
      Status status = socket.ok() ? EndRepairOf(socket->get(), known->second) : socket.status();
      if (first.ok()) first = std::move(status);
    }
  }
  return first;
}

void LetTcpGoOn(pid_t root, const std::string& images) {
  Result<std::string> files = ReadFile(images + "/files.img", kMaxFiles);
  if (!files.ok()) return;
  Result<std::vector<CriuTcp>> sockets = ParseCriuTcp(std::as_bytes(std::span(*files)));
  bool connected = sockets.ok() && std::any_of(sockets->begin(), sockets->end(),
                                               [](const CriuTcp& tcp) { return tcp.socket.connected(); });
  if (!connected) return;
  Status lifted = LiftTcpLock(images), repaired;
  Result<std::vector<pid_t>> tree = ProcessTree(root);
  if (tree.ok()) repaired = EndTcpRepair(*tree, images);
  for (const Status& status : {lifted, repaired}) {
    if (!status.ok()) RawLog(LogLevel::kError, "let TCP connections go on: %s", status.ToString().c_str());
  }
}

}  // namespace stasis

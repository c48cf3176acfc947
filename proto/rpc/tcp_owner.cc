// Asks the kernel (sock_diag) whose a TCP socket of this machine is.
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/rpc/doors.h"

namespace stasis {
namespace {

constexpr uint32_t kAllStates = 0xffffffff;

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

void CopyAddress(const sockaddr_storage& address, __be16* port, __be32 (&words)[4]) {
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    *port = four.sin_port;
    std::memcpy(words, &four.sin_addr, sizeof four.sin_addr);
    return;
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  *port = six.sin6_port;
  std::memcpy(words, &six.sin6_addr, sizeof six.sin6_addr);
}

// The client's socket has our address as its destination.
Question Ask(const sockaddr_storage& client, const sockaddr_storage& here) {
  Question question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.body.sdiag_family = static_cast<uint8_t>(client.ss_family);
  question.body.sdiag_protocol = IPPROTO_TCP;
  question.body.idiag_states = kAllStates;
  inet_diag_sockid& id = question.body.id;
  CopyAddress(client, &id.idiag_sport, id.idiag_src);
  CopyAddress(here, &id.idiag_dport, id.idiag_dst);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

Result<uid_t> TakeAnswer(int netlink) {
  alignas(nlmsghdr) char buffer[8192];
  ssize_t got = recv(netlink, buffer, sizeof buffer, 0);
  if (got < 0) return ErrnoStatus(errno, "sock_diag");
  const auto* header = reinterpret_cast<const nlmsghdr*>(buffer);
  if (!NLMSG_OK(header, static_cast<unsigned>(got)))
    return Status(StatusCode::kCorrupt, "sock_diag: cut short");
  if (header->nlmsg_type == NLMSG_ERROR) {
    const auto* error = static_cast<const nlmsgerr*>(NLMSG_DATA(header));
    return ErrnoStatus(error->error == 0 ? ENOENT : -error->error, "sock_diag");
  }
  if (header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
    return Status(StatusCode::kCorrupt, "sock_diag: cut short");
  }
  const auto* message = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  // A socket that nobody has open any more is told as root's.
  if (message->idiag_inode == 0) return Status(StatusCode::kNotFound, "the client has closed its socket");
  return message->idiag_uid;
}

}  // namespace

Result<uid_t> OwnerOfTcpPeer(int fd) {
  sockaddr_storage client{}, here{};
  socklen_t client_size = sizeof client, here_size = sizeof here;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&client), &client_size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0) {
    return ErrnoStatus(errno, "the client's address");
  }
  Fd netlink(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink.valid()) return ErrnoStatus(errno, "sock_diag");
  Question question = Ask(client, here);
  if (send(netlink.get(), &question, sizeof question, 0) < 0) return ErrnoStatus(errno, "sock_diag");
  return TakeAnswer(netlink.get());
}

}  // namespace stasis

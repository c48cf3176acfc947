// Reads the TCP sockets of a dump from CRIU's files.img: inet_sk_entry of sk-inet.proto, field 4 of a file's
// entry. CRIU looks at them while every process stands still.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "ghost/criu.h"
#include "ghost/criu_wire.h"

namespace stasis {
namespace {

// Words of an address are as the socket's own structures hold them, so their bytes are in the right order.
struct RawSocket {
  uint64_t inode = 0, family = 0, type = 0, protocol = 0, state = 0;
  uint64_t local_port = 0, remote_port = 0;
  std::vector<uint32_t> local, remote;
  bool reuse = false;
};

bool ReadReuse(std::span<const std::byte> bytes, bool* ok) {
  bool reuse = false;
  Wire wire(bytes);
  while (*ok && !wire.empty()) {
    Field field = NextField(wire, ok);
    if (field.number == 7) reuse = field.value != 0;
  }
  return reuse;
}

RawSocket ReadRaw(std::span<const std::byte> bytes, bool* ok) {
  RawSocket raw;
  Wire wire(bytes);
  while (*ok && !wire.empty()) {
    Field field = NextField(wire, ok);
    switch (field.number) {
      case 2:
        raw.inode = field.value;
        break;
      case 3:
        raw.family = field.value;
        break;
      case 4:
        raw.type = field.value;
        break;
      case 5:
        raw.protocol = field.value;
        break;
      case 6:
        raw.state = field.value;
        break;
      case 7:
        raw.local_port = field.value;
        break;
      case 8:
        raw.remote_port = field.value;
        break;
      case 11:
        raw.local.push_back(static_cast<uint32_t>(field.value));
        break;
      case 12:
        raw.remote.push_back(static_cast<uint32_t>(field.value));
        break;
      case 14:
        raw.reuse = ReadReuse(field.bytes, ok);
        break;
    }
  }
  return raw;
}

bool SetAddress(uint64_t family, const std::vector<uint32_t>& words, uint64_t port, TcpAddress* address) {
  size_t needed = family == AF_INET ? 1 : 4;
  if (words.size() < needed || port > UINT16_MAX) return false;
  address->port = static_cast<uint16_t>(port);
  if (family == AF_INET) address->ip[10] = address->ip[11] = 0xff;
  std::memcpy(address->ip.data() + 16 - 4 * needed, words.data(), 4 * needed);
  return true;
}

bool IsTcp(const RawSocket& raw) {
  return (raw.family == AF_INET || raw.family == AF_INET6) && raw.type == SOCK_STREAM &&
         (raw.protocol == IPPROTO_TCP || raw.protocol == IPPROTO_IP);
}

bool ReadSocket(std::span<const std::byte> bytes, std::vector<CriuTcp>* sockets) {
  bool ok = true;
  RawSocket raw = ReadRaw(bytes, &ok);
  if (!ok || !IsTcp(raw)) return ok;
  CriuTcp tcp;
  tcp.reuse_address = raw.reuse;
  tcp.socket.inode = raw.inode;
  if (raw.state == 0 || raw.state > static_cast<uint64_t>(TcpState::kClosing)) return false;
  tcp.socket.state = static_cast<TcpState>(raw.state);
  if (!SetAddress(raw.family, raw.local, raw.local_port, &tcp.socket.local)) return false;
  if (!SetAddress(raw.family, raw.remote, raw.remote_port, &tcp.socket.remote)) return false;
  sockets->push_back(tcp);
  return true;
}

}  // namespace

Result<std::vector<CriuTcp>> ParseCriuTcp(std::span<const std::byte> image) {
  std::vector<CriuTcp> sockets;
  RETURN_IF_ERROR(ForCriuEntries(image, kCriuFilesMagic, [&](std::span<const std::byte> entry) {
                    Wire wire(entry);
                    bool ok = true;
                    while (ok && !wire.empty()) {
                      Field field = NextField(wire, &ok);
                      if (ok && field.number == 4) ok = ReadSocket(field.bytes, &sockets);
                    }
                    return ok;
                  }).WithContext("files.img"));
  return sockets;
}

}  // namespace stasis

#include "proto/rpc/endpoint.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <charconv>
#include <cstdlib>

namespace stasis {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un{}.sun_path) - 1;
constexpr size_t kMaxHost = 253;

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(four->sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family != AF_INET6) return false;
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&six)) return six.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&six);
}

bool IsHostCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.' || c == ':' || c == '%';
}

Status BadEndpoint(std::string_view text) {
  return Errorf(StatusCode::kInvalidArgument, "'%.*s' is no endpoint: unix:/PATH or HOST:PORT is expected",
                static_cast<int>(std::min<size_t>(text.size(), 200)), text.data());
}

Result<Endpoint> ParseSocket(std::string_view text, std::string_view path) {
  if (path.empty() || path[0] != '/' || path.size() > kMaxSocketPath ||
      path.find('\0') != std::string_view::npos) {
    return BadEndpoint(text);
  }
  Endpoint endpoint;
  endpoint.unix_socket = true;
  endpoint.path = std::string(path);
  return endpoint;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool Endpoint::loopback() const {
  if (unix_socket) return true;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  bool all = found != nullptr;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    all = all && IsLoopback(entry->ai_addr);
  }
  freeaddrinfo(found);
  return all;
}

std::string Endpoint::Target() const {
  if (unix_socket) return "unix:" + path;
  bool six = host.find(':') != std::string::npos;
  return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Endpoint> ParseEndpoint(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) return ParseSocket(text, text.substr(kUnix.size()));
  size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return BadEndpoint(text);
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  bool several = host.find(':') != std::string_view::npos;
  if (host.empty() || host.size() > kMaxHost || several != brackets) return BadEndpoint(text);
  for (char c : host) {
    if (!IsHostCharacter(c)) return BadEndpoint(text);
  }
  Endpoint endpoint;
  endpoint.host = std::string(host);
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size() || endpoint.port < 0 ||
      endpoint.port > 65535) {
    return BadEndpoint(text);
  }
  return endpoint;
}

TlsFiles TlsFromEnvironment() {
  return {Variable("STASIS_TLS_CA"), Variable("STASIS_TLS_CERT"), Variable("STASIS_TLS_KEY")};
}

}  // namespace stasis

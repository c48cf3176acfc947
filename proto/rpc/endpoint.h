// Where a service listens and how it is reached: "unix:/path" or "host:port".
#ifndef PROTO_RPC_ENDPOINT_H_
#define PROTO_RPC_ENDPOINT_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace stasis {

struct Endpoint {
  bool unix_socket = false;
  std::string path;  // of a socket, absolute
  std::string host;  // name or address; IPv6 without brackets
  int port = 0;      // 0: any that is free (of a server)

  bool loopback() const;  // an address that only this machine reaches; a name is looked up
  // As gRPC takes it.
  std::string Target() const;
};
// kInvalidArgument, saying what is expected.
Result<Endpoint> ParseEndpoint(std::string_view text);

// The files of mutual TLS, PEM. All three or none.
struct TlsFiles {
  std::string ca;           // who signs the certificates of the other side
  std::string certificate;  // ours, with what is between it and the CA
  std::string key;          // 0600

  bool empty() const { return ca.empty() && certificate.empty() && key.empty(); }
};
// From $STASIS_TLS_CA, $STASIS_TLS_CERT, $STASIS_TLS_KEY; may be empty.
TlsFiles TlsFromEnvironment();

// Of a client: what it needs for `endpoint`. kPermissionDenied: TCP without TLS to another machine. A call
// that waits when the network is cut fails with kUnavailable within a minute.
Result<std::shared_ptr<grpc::Channel>> OpenChannel(const Endpoint& endpoint, const TlsFiles& tls);

// Of a server. kPermissionDenied: TCP without TLS on an address that others reach; kInvalidArgument: files
// that are no certificate or key, or a key that others can read. Certificates that are replaced on disk are
// taken within a minute.
Result<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(const Endpoint& endpoint,
                                                                      const TlsFiles& tls);

inline constexpr int kMaxMessageBytes = 16 << 20;  // received by any of our services and clients
// What gRPC itself lets through to a service, which then refuses what is too large and knows whose it was;
// beyond this gRPC refuses, and nobody is told.
inline constexpr int kMaxReadBytes = 4 * kMaxMessageBytes;

}  // namespace stasis

#endif  // PROTO_RPC_ENDPOINT_H_

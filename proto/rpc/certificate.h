// What a client's certificate says of it. The signature, and that it was valid when the connection was made,
// has been checked by TLS.
#ifndef PROTO_RPC_CERTIFICATE_H_
#define PROTO_RPC_CERTIFICATE_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/status.h"
#include "proto/rpc/actor.h"

namespace stasis {

struct Certificate {
  Actor actor;            // "cn NAME"
  int64_t not_after = 0;  // seconds since 1970
};

// Of a certificate in PEM. kPermissionDenied: it has no common name, or not exactly one organizational unit
// that is a role.
Result<Certificate> ReadClientCertificate(const std::string& pem);

// The same, and remembers what it has read: a call costs no parsing. kPermissionDenied: it has expired since
// the connection was made. Thread-safe.
class Certificates {
 public:
  Result<Actor> ActorOf(const std::string& pem, int64_t now_seconds);

 private:
  std::mutex mutex_;
  std::map<std::string, Certificate> known_;
};

}  // namespace stasis

#endif  // PROTO_RPC_CERTIFICATE_H_

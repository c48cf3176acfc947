// Mutual TLS: gRPC's credentials out of three files.
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/files.h"
#include "proto/rpc/endpoint.h"

namespace stasis {
namespace {

constexpr unsigned kRefreshSeconds = 20;
constexpr size_t kMaxPem = 1 << 20;
// Who waits for an answer asks this often whether the other side is still there; a service of ours takes that
// every five seconds. A network that was cut says nothing by itself.
constexpr int kKeepaliveMs = 10000;
constexpr int kKeepaliveAnswerMs = 20000;

using BioPointer = std::unique_ptr<BIO, decltype(&BIO_free)>;
using KeyPointer = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using CertificatePointer = std::unique_ptr<X509, decltype(&X509_free)>;

Status BadFile(const std::string& path, const char* what) {
  return Status(StatusCode::kInvalidArgument, path + " " + what);
}

Result<CertificatePointer> ReadCertificate(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxPem));
  BioPointer memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  CertificatePointer certificate(PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr), X509_free);
  if (certificate == nullptr) return BadFile(path, "holds no certificate in PEM");
  return certificate;
}

int NoPassword(char*, int, int, void*) { return 0; }

Result<KeyPointer> ReadKey(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  if ((info.st_mode & 0077) != 0)
    return BadFile(path, "can be read by others; `chmod 600` keeps it a secret");
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxPem));
  BioPointer memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  KeyPointer key(PEM_read_bio_PrivateKey(memory.get(), nullptr, NoPassword, nullptr), EVP_PKEY_free);
  if (key == nullptr) return BadFile(path, "holds no key in PEM that needs no password");
  return key;
}

Status CheckFiles(const TlsFiles& tls) {
  if (tls.ca.empty() || tls.certificate.empty() || tls.key.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "TLS needs a CA, a certificate and a key: one of them is missing");
  }
  RETURN_IF_ERROR(ReadCertificate(tls.ca).status());
  ASSIGN_OR_RETURN(CertificatePointer certificate, ReadCertificate(tls.certificate));
  ASSIGN_OR_RETURN(KeyPointer key, ReadKey(tls.key));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return BadFile(tls.key, ("is not the key of " + tls.certificate).c_str());
  }
  return Status();
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> Provider(const TlsFiles& tls) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(tls.key, tls.certificate,
                                                                              tls.ca, kRefreshSeconds);
}

void KeepAlive(grpc::ChannelArguments& arguments) {
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveAnswerMs);
  // A stream may have nothing to tell for hours.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace

Result<std::shared_ptr<grpc::Channel>> OpenChannel(const Endpoint& endpoint, const TlsFiles& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  if (!endpoint.unix_socket) KeepAlive(arguments);
  bool clear = endpoint.unix_socket || tls.empty();
  if (clear && !endpoint.loopback()) {
    return Status(StatusCode::kPermissionDenied,
                  endpoint.Target() +
                      " is another machine: it is spoken to by TLS only (--tls-ca, --tls-cert, "
                      "--tls-key)");
  }
  // A proxy is for the web; what it would be told is not for it.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Who connects again wants a connection now, and not when one that failed would have been tried again.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (clear) {
    if (endpoint.unix_socket) arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    return grpc::CreateCustomChannel(endpoint.Target(), grpc::InsecureChannelCredentials(), arguments);
  }
  RETURN_IF_ERROR(CheckFiles(tls));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Provider(tls));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::CreateCustomChannel(endpoint.Target(), grpc::experimental::TlsCredentials(options), arguments);
}

Result<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(const Endpoint& endpoint,
                                                                      const TlsFiles& tls) {
  if (endpoint.unix_socket || (tls.empty() && endpoint.loopback())) return grpc::InsecureServerCredentials();
  if (tls.empty()) {
    return Status(StatusCode::kPermissionDenied,
                  endpoint.Target() +
                      " can be reached by others: without TLS only loopback is listened on "
                      "(--tls-ca, --tls-cert, --tls-key)");
  }
  RETURN_IF_ERROR(CheckFiles(tls));
  grpc::experimental::TlsServerCredentialsOptions options(Provider(tls));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace stasis

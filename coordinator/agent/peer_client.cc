#include <grpcpp/client_context.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "coordinator/agent/peer_link.h"
#include "proto/rpc/status.h"
#include "stasis/v1/peer.grpc.pb.h"

namespace stasis {
namespace {

constexpr auto kShort = std::chrono::seconds(10);
// The target looks for a driver and at every file.
constexpr auto kOfferTime = std::chrono::seconds(90);
// The target ends a job: its program has 5 s for that.
constexpr auto kLetGoTime = std::chrono::seconds(30);
// A few MiB; what takes longer is no network to move a job over while it stands still.
constexpr auto kPutTime = std::chrono::seconds(15);

std::chrono::system_clock::time_point After(Duration wait) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(wait);
}

class PeerClient : public PeerLink {
 public:
  explicit PeerClient(std::shared_ptr<grpc::Channel> channel) : stub_(v1::Peer::NewStub(channel)) {}

  Result<v1::HelloReply> Hello(const v1::HelloRequest& request) override {
    return Call<v1::HelloReply>(kShort, &v1::Peer::Stub::Hello, request);
  }
  Result<v1::OfferReply> Offer(const v1::OfferRequest& request) override {
    return Call<v1::OfferReply>(kOfferTime, &v1::Peer::Stub::Offer, request);
  }
  Result<std::vector<bool>> Missing(const std::string& token, std::span<const Hash128> hashes) override;
  Status StillAtIt(const std::string& token) override {
    v1::MissingRequest request;
    request.set_token(token);
    return Call<v1::MissingReply>(kShort, &v1::Peer::Stub::Missing, request).status();
  }
  Status Put(const std::string& token, std::string records) override {
    v1::PutRequest request;
    request.set_token(token);
    request.set_records(std::move(records));
    return Call<v1::PutReply>(kPutTime, &v1::Peer::Stub::Put, request).status();
  }
  Status PutManifest(const std::string& token, uint32_t rank, std::span<const std::byte> bytes) override;
  Result<v1::Outcome> HandOver(const v1::HandOverRequest& request, Duration wait) override {
    return Call<v1::Outcome>(wait, &v1::Peer::Stub::HandOver, request);
  }
  Result<v1::Outcome> AskOutcome(const std::string& token, Duration wait) override {
    v1::AskOutcomeRequest request;
    request.set_token(token);
    request.set_wait_ms(
        static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(wait).count()));
    return Call<v1::Outcome>(wait + kShort, &v1::Peer::Stub::AskOutcome, request);
  }
  Result<v1::KeepReply> Keep(const v1::KeepRequest& request, Duration wait) override {
    return Call<v1::KeepReply>(wait, &v1::Peer::Stub::Keep, request);
  }
  Result<v1::Outcome> LetGo(const v1::LetGoRequest& request) override {
    return Call<v1::Outcome>(kLetGoTime, &v1::Peer::Stub::LetGo, request);
  }
  Status Settle(const std::string& token) override {
    v1::SettleRequest request;
    request.set_token(token);
    return Call<v1::SettleReply>(kShort, &v1::Peer::Stub::Settle, request).status();
  }

 private:
  template <typename Reply, typename Method, typename Request>
  Result<Reply> Call(Duration wait, Method method, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(After(wait));
    Reply reply;
    Status status = FromRpcStatus(((*stub_).*method)(&context, request, &reply), context, nullptr);
    if (!status.ok()) return status;
    return reply;
  }

  const std::unique_ptr<v1::Peer::Stub> stub_;
};

Result<std::vector<bool>> PeerClient::Missing(const std::string& token, std::span<const Hash128> hashes) {
  std::vector<bool> missing;
  missing.reserve(hashes.size());
  while (missing.size() < hashes.size()) {
    auto part = hashes.subspan(missing.size(), std::min(kMaxHashesAsked, hashes.size() - missing.size()));
    v1::MissingRequest request;
    request.set_token(token);
    request.set_hashes(PackHashes(part));
    ASSIGN_OR_RETURN(auto reply, Call<v1::MissingReply>(kPutTime, &v1::Peer::Stub::Missing, request));
    if (reply.missing().size() != part.size()) {
      return Status(StatusCode::kInternal, "the target tells of another number of chunks than it was asked");
    }
    for (char each : reply.missing()) missing.push_back(each != 0);
  }
  return missing;
}

Status PeerClient::PutManifest(const std::string& token, uint32_t rank, std::span<const std::byte> bytes) {
  for (size_t offset = 0; offset == 0 || offset < bytes.size(); offset += kMaxPutBytes) {
    auto part = bytes.subspan(offset, std::min(kMaxPutBytes, bytes.size() - offset));
    v1::PutManifestRequest request;
    request.set_token(token);
    request.set_rank(rank);
    request.set_offset(offset);
    request.set_size(bytes.size());
    request.set_part(part.data(), part.size());
    RETURN_IF_ERROR(Call<v1::PutManifestReply>(kPutTime, &v1::Peer::Stub::PutManifest, request).status());
  }
  return Status();
}

}  // namespace

std::string PackHashes(std::span<const Hash128> hashes) {
  std::string bytes(hashes.size_bytes(), '\0');
  if (!hashes.empty()) std::memcpy(bytes.data(), hashes.data(), bytes.size());
  return bytes;
}

std::vector<Hash128> UnpackHashes(std::string_view bytes) {
  if (bytes.size() % sizeof(Hash128) != 0) return {};
  std::vector<Hash128> hashes(bytes.size() / sizeof(Hash128));
  if (!hashes.empty()) std::memcpy(hashes.data(), bytes.data(), bytes.size());
  return hashes;
}

Result<std::unique_ptr<PeerLink>> ConnectPeer(const Endpoint& endpoint, const TlsFiles& tls) {
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, OpenChannel(endpoint, tls));
  return std::unique_ptr<PeerLink>(new PeerClient(std::move(channel)));
}

}  // namespace stasis

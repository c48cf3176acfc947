// Doubles for the tests of migrations.
#ifndef COORDINATOR_AGENT_MIGRATION_TESTING_H_
#define COORDINATOR_AGENT_MIGRATION_TESTING_H_

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/agent/incoming.h"
#include "coordinator/agent/peer_link.h"

namespace stasis {

// Another node's agent without a network. `fail` is asked before each call, by the call's name: an error is
// what the caller gets, and nothing is done.
class DirectPeer : public PeerLink {
 public:
  explicit DirectPeer(Incoming& incoming) : incoming_(incoming) {}
  std::function<Status(const std::string& call)> fail = [](const std::string&) { return Status(); };
  std::atomic<uint64_t> put_bytes{0};
  std::atomic<uint64_t> longest_put{0};
  std::atomic<int> puts{0}, signs{0};

  Result<v1::HelloReply> Hello(const v1::HelloRequest& request) override {
    RETURN_IF_ERROR(fail("Hello"));
    v1::HelloReply reply;
    reply.set_api(request.api());
    reply.set_node("there");
    return reply;
  }
  Result<v1::OfferReply> Offer(const v1::OfferRequest& request) override {
    RETURN_IF_ERROR(fail("Offer"));
    return incoming_.Offer(request);
  }
  Result<std::vector<bool>> Missing(const std::string& token, std::span<const Hash128> hashes) override {
    RETURN_IF_ERROR(fail("Missing"));
    v1::MissingRequest request;
    request.set_token(token);
    request.set_hashes(PackHashes(hashes));
    ASSIGN_OR_RETURN(v1::MissingReply reply, incoming_.Missing(request));
    std::vector<bool> missing;
    for (char each : reply.missing()) missing.push_back(each != 0);
    return missing;
  }
  Status StillAtIt(const std::string& token) override {
    ++signs;
    RETURN_IF_ERROR(fail("StillAtIt"));
    v1::MissingRequest request;
    request.set_token(token);
    return incoming_.Missing(request).status();
  }
  Status Put(const std::string& token, std::string records) override {
    RETURN_IF_ERROR(fail("Put"));
    put_bytes += records.size();
    for (uint64_t longest = longest_put; records.size() > longest;) {
      if (longest_put.compare_exchange_weak(longest, records.size())) break;
    }
    ++puts;
    v1::PutRequest request;
    request.set_token(token);
    request.set_records(std::move(records));
    return incoming_.Put(request);
  }
  Status PutManifest(const std::string& token, uint32_t rank, std::span<const std::byte> bytes) override {
    RETURN_IF_ERROR(fail("PutManifest"));
    v1::PutManifestRequest request;
    request.set_token(token);
    request.set_rank(rank);
    request.set_size(bytes.size());
    request.set_part(bytes.data(), bytes.size());
    return incoming_.PutManifest(request);
  }
  Result<v1::Outcome> HandOver(const v1::HandOverRequest& request, Duration) override {
    RETURN_IF_ERROR(fail("HandOver"));
    return incoming_.HandOver(request);
  }
  Result<v1::Outcome> AskOutcome(const std::string& token, Duration) override {
    RETURN_IF_ERROR(fail("AskOutcome"));
    v1::AskOutcomeRequest request;
    request.set_token(token);
    return incoming_.AskOutcome(request);
  }
  Result<v1::KeepReply> Keep(const v1::KeepRequest& request, Duration) override {
    RETURN_IF_ERROR(fail("Keep"));
    return incoming_.Keep(request);
  }
  Result<v1::Outcome> LetGo(const v1::LetGoRequest& request) override {
    RETURN_IF_ERROR(fail("LetGo"));
    return incoming_.LetGo(request);
  }
  Status Settle(const std::string& token) override {
    RETURN_IF_ERROR(fail("Settle"));
    v1::SettleRequest request;
    request.set_token(token);
    return incoming_.Settle(request);
  }

 private:
  Incoming& incoming_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_MIGRATION_TESTING_H_

// The agent of another node, as the side that gives a job away, or a copy of an image,
// sees it (proto/stasis/v1/peer.proto).
//
// Thread-safe. Every call has a deadline of its own. kUnavailable or kTimeout: nothing could be heard, and
// what was asked for may have been done all the same; any other error is the target's own.
#ifndef COORDINATOR_AGENT_PEER_LINK_H_
#define COORDINATOR_AGENT_PEER_LINK_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "dedup/hash.h"
#include "proto/rpc/endpoint.h"
#include "stasis/v1/peer.pb.h"

namespace stasis {

inline constexpr uint32_t kPeerApi = 1;
inline constexpr size_t kMaxHashesAsked = 65536;
inline constexpr size_t kMaxPutBytes = 8 << 20;
inline constexpr size_t kMaxPadding = 4 << 20;
inline constexpr uint64_t kMaxPeerManifest = 1 << 30;
// How often the source of a migration is heard at least, until it hands over.
inline constexpr Duration kSignOfLife = std::chrono::seconds(5);

class PeerLink {
 public:
  virtual ~PeerLink() = default;
  virtual Result<v1::HelloReply> Hello(const v1::HelloRequest& request) = 0;
  virtual Result<v1::OfferReply> Offer(const v1::OfferRequest& request) = 0;
  virtual Result<std::vector<bool>> Missing(const std::string& token, std::span<const Hash128> hashes) = 0;
  // Something is still to come by the token, and nothing has to be sent now.
  virtual Status StillAtIt(const std::string& token) = 0;
  virtual Status Put(const std::string& token, std::string records) = 0;
  virtual Status PutManifest(const std::string& token, uint32_t rank, std::span<const std::byte> bytes) = 0;
  virtual Result<v1::Outcome> HandOver(const v1::HandOverRequest& request, Duration wait) = 0;
  virtual Result<v1::Outcome> AskOutcome(const std::string& token, Duration wait) = 0;
  virtual Result<v1::KeepReply> Keep(const v1::KeepRequest& request, Duration wait) = 0;
  virtual Result<v1::Outcome> LetGo(const v1::LetGoRequest& request) = 0;
  virtual Status Settle(const std::string& token) = 0;
};

Result<std::unique_ptr<PeerLink>> ConnectPeer(const Endpoint& endpoint, const TlsFiles& tls);

// Hashes as they are on the wire, and back; nothing where `bytes` are no whole number of them.
std::string PackHashes(std::span<const Hash128> hashes);
std::vector<Hash128> UnpackHashes(std::string_view bytes);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_PEER_LINK_H_

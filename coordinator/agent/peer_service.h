// The Peer service: for other agents only. Checks who calls and hands on to Incoming, on threads of its own:
// what arrives is written to disk, and a hand-over lasts as long as a restore.
#ifndef COORDINATOR_AGENT_PEER_SERVICE_H_
#define COORDINATOR_AGENT_PEER_SERVICE_H_

#include <string>

#include "base/worker_pool.h"
#include "coordinator/agent/incoming.h"
#include "coordinator/agent/outcome_memory.h"
#include "proto/rpc/audit.h"
#include "proto/rpc/gate.h"
#include "stasis/v1/peer.grpc.pb.h"

namespace stasis {

class PeerService final : public v1::Peer::CallbackService {
 public:
  // `identity`: what Hello answers. The references outlive the object.
  PeerService(Gate& gate, Audit& audit, Incoming& incoming, v1::HelloReply identity);

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Hello(Context* context, const v1::HelloRequest* request, v1::HelloReply* reply) override;
  Reactor* Offer(Context* context, const v1::OfferRequest* request, v1::OfferReply* reply) override;
  Reactor* Missing(Context* context, const v1::MissingRequest* request, v1::MissingReply* reply) override;
  Reactor* Put(Context* context, const v1::PutRequest* request, v1::PutReply* reply) override;
  Reactor* PutManifest(Context* context, const v1::PutManifestRequest* request,
                       v1::PutManifestReply* reply) override;
  Reactor* HandOver(Context* context, const v1::HandOverRequest* request, v1::Outcome* reply) override;
  Reactor* AskOutcome(Context* context, const v1::AskOutcomeRequest* request, v1::Outcome* reply) override;
  Reactor* Keep(Context* context, const v1::KeepRequest* request, v1::KeepReply* reply) override;
  Reactor* LetGo(Context* context, const v1::LetGoRequest* request, v1::Outcome* reply) override;
  Reactor* Settle(Context* context, const v1::SettleRequest* request, v1::SettleReply* reply) override;

 private:
  // Answers with what `work` returns, from a thread of `pool`; who may not come in is put on record.
  Reactor* Answer(Context* context, const char* verb, const google::protobuf::Message& request,
                  WorkerPool& pool, std::function<Status()> work);

  void Record(const Context& context, const char* verb, const std::string& job, const Status& outcome);

  Gate& gate_;
  Audit& audit_;
  Incoming& incoming_;
  const v1::HelloReply identity_;
  OutcomeMemory let_go_;
  WorkerPool chunks_;
  WorkerPool slow_;  // what waits for restores and drivers
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_PEER_SERVICE_H_

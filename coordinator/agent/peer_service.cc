#include "coordinator/agent/peer_service.h"

#include <utility>

#include "coordinator/agent/peer_link.h"
#include "proto/rpc/status.h"

namespace stasis {
namespace {

constexpr int kChunkThreads = 4;
constexpr int kSlowThreads = 16;
constexpr size_t kMaxWaiting = 512;

template <typename Reply>
Status Into(Result<Reply> result, Reply* reply) {
  if (!result.ok()) return std::move(result).status();
  *reply = *std::move(result);
  return Status();
}

}  // namespace

PeerService::PeerService(Gate& gate, Audit& audit, Incoming& incoming, v1::HelloReply identity)
    : gate_(gate),
      audit_(audit),
      incoming_(incoming),
      identity_(std::move(identity)),
      chunks_(kChunkThreads, kMaxWaiting),
      slow_(kSlowThreads, kMaxWaiting) {}

void PeerService::Record(const Context& context, const char* verb, const std::string& job,
                         const Status& outcome) {
  Result<Actor> who = gate_.Identify(context);
  audit_.Record({who.ok() ? who->name : "", who.ok() ? RoleName(who->role) : "", context.peer(), verb, job,
                 "", outcome});
}

PeerService::Reactor* PeerService::Answer(Context* context, const char* verb,
                                          const google::protobuf::Message& request, WorkerPool& pool,
                                          std::function<Status()> work) {
  Reactor* reactor = context->DefaultReactor();
  Result<Actor> actor = gate_.Admit(*context, Access::kPeer, request);
  if (!actor.ok()) {
    Record(*context, verb, "", actor.status());
    reactor->Finish(ToRpcStatus(actor.status(), "", context));
    return reactor;
  }
  bool posted = pool.Post(
      [context, reactor, work = std::move(work)] { reactor->Finish(ToRpcStatus(work(), "", context)); });
  if (!posted) {
    Status busy(StatusCode::kUnavailable, "too many calls of other agents wait already");
    reactor->Finish(ToRpcStatus(busy, "", context));
  }
  return reactor;
}

PeerService::Reactor* PeerService::Hello(Context* context, const v1::HelloRequest* request,
                                         v1::HelloReply* reply) {
  return Answer(context, "peer-hello", *request, chunks_, [this, request, reply]() -> Status {
    if (request->api() != kPeerApi) {
      return Errorf(StatusCode::kUnsupported, "the agents speak different versions: %u and %u",
                    request->api(), kPeerApi);
    }
    *reply = identity_;
    return Status();
  });
}

PeerService::Reactor* PeerService::Offer(Context* context, const v1::OfferRequest* request,
                                         v1::OfferReply* reply) {
  return Answer(context, "peer-offer", *request, slow_,
                [this, request, reply] { return Into(incoming_.Offer(*request), reply); });
}

PeerService::Reactor* PeerService::Missing(Context* context, const v1::MissingRequest* request,
                                           v1::MissingReply* reply) {
  return Answer(context, "peer-missing", *request, chunks_,
                [this, request, reply] { return Into(incoming_.Missing(*request), reply); });
}

PeerService::Reactor* PeerService::Put(Context* context, const v1::PutRequest* request, v1::PutReply*) {
  return Answer(context, "peer-put", *request, chunks_, [this, request] { return incoming_.Put(*request); });
}

PeerService::Reactor* PeerService::PutManifest(Context* context, const v1::PutManifestRequest* request,
                                               v1::PutManifestReply*) {
  return Answer(context, "peer-put-manifest", *request, chunks_,
                [this, request] { return incoming_.PutManifest(*request); });
}

PeerService::Reactor* PeerService::HandOver(Context* context, const v1::HandOverRequest* request,
                                            v1::Outcome* reply) {
  return Answer(context, "peer-hand-over", *request, slow_, [this, context, request, reply] {
    const std::string job = incoming_.JobOf(request->token());
    Status taken = Into(incoming_.HandOver(*request), reply);
    Record(*context, "peer-hand-over", job, taken);
    return taken;
  });
}

PeerService::Reactor* PeerService::AskOutcome(Context* context, const v1::AskOutcomeRequest* request,
                                              v1::Outcome* reply) {
  return Answer(context, "peer-ask-outcome", *request, slow_,
                [this, request, reply] { return Into(incoming_.AskOutcome(*request), reply); });
}

PeerService::Reactor* PeerService::Keep(Context* context, const v1::KeepRequest* request,
                                        v1::KeepReply* reply) {
  return Answer(context, "peer-keep", *request, slow_, [this, context, request, reply] {
    const std::string job = incoming_.JobOf(request->token());
    Status kept = Into(incoming_.Keep(*request), reply);
    Record(*context, "peer-keep", job, kept);
    return kept;
  });
}

PeerService::Reactor* PeerService::LetGo(Context* context, const v1::LetGoRequest* request,
                                         v1::Outcome* reply) {
  return Answer(context, "peer-let-go", *request, slow_, [this, context, request, reply] {
    const std::string job = incoming_.JobOnRecord(request->token());
    Status let_go = Into(incoming_.LetGo(*request), reply);
    // A source asks again until it has ended.
    const std::string outcome = let_go.ok() ? v1::OutcomeKind_Name(reply->kind()) : let_go.ToString();
    if (let_go_.IsNews(request->token(), outcome)) Record(*context, "peer-let-go", job, let_go);
    return let_go;
  });
}

PeerService::Reactor* PeerService::Settle(Context* context, const v1::SettleRequest* request,
                                          v1::SettleReply*) {
  return Answer(context, "peer-settle", *request, slow_,
                [this, request] { return incoming_.Settle(*request); });
}

}  // namespace stasis

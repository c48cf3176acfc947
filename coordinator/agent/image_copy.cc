#include "coordinator/agent/image_copy.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "coordinator/agent/chunk_sender.h"
#include "coordinator/agent/refusal_text.h"
#include "coordinator/agent/source_job.h"
#include "coordinator/job_json.h"
#include "coordinator/job_result.h"
#include "coordinator/node/image_names.h"
#include "dedup/image_manifest.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {
namespace {

// An answer that takes longer is asked for again: the target brings gigabytes to stable storage before it.
constexpr auto kKeepWait = std::chrono::seconds(30);
constexpr int kKeepTries = 10;
constexpr int kKeepPauseMs = 500;

MonotonicTime Now() { return Clock::Real().Now(); }

class ImageCopyRun {
 public:
  ImageCopyRun(const MigrationOptions& options, OperationContext& context, v1::CopyImageRequest request)
      : options_(options), context_(context), request_(std::move(request)) {}

  Json Carry() {
    begun_ = Now();
    Status status = OpenSource();
    if (status.ok()) status = Meet();
    if (status.ok()) status = MakeOffer();
    if (status.ok()) status = SendChunks();
    if (status.ok()) status = SendManifests();
    if (status.ok()) status = Keep();
    // What the target has not kept it lets go of.
    if (!token_.empty()) (void)peer_->Settle(token_);
    return status.ok() ? Done() : Failed(status);
  }

  // The target has it or has not; asked for again it says so.
  Json Recover() {
    const std::string token = TextField(context_.remembered(), "token");
    Result<std::unique_ptr<PeerLink>> peer = options_.connect(request_.node());
    if (peer.ok() && !token.empty()) (void)(*peer)->Settle(token);
    return Carry();
  }

 private:
  Status OpenSource();
  Status Meet();
  Status MakeOffer();
  Status SendChunks();
  Status SendManifests();
  Status Keep();
  Status CheckInterrupt();
  void Pause(int milliseconds);
  Json Done() const;
  Json Failed(const Status& status) const;

  const MigrationOptions& options_;
  OperationContext& context_;
  const v1::CopyImageRequest request_;

  std::optional<SourceJob> job_;
  std::shared_ptr<Store> store_;
  SourceImage image_;
  std::vector<std::unique_ptr<ImageReader>> readers_;  // by rank: keep what they name
  std::unique_ptr<PeerLink> peer_;
  std::string target_;  // name of the node
  std::string token_;
  uint64_t sent_bytes_ = 0;
  v1::KeepReply kept_;
  MonotonicTime begun_{};
};

Status ImageCopyRun::OpenSource() {
  ASSIGN_OR_RETURN(job_, SourceJob::Open(options_.site, context_.job(), context_, "images copy"));
  ASSIGN_OR_RETURN(image_, job_->FindImage(request_.image()));
  ASSIGN_OR_RETURN(store_, OpenStore(options_.site.folders));
  for (size_t rank = 0; rank < image_.tasks.size(); ++rank) {
    ASSIGN_OR_RETURN(auto reader, ImageReader::Open(store_, job_->tasks()[rank], image_.tasks[rank]));
    readers_.push_back(std::move(reader));
  }
  return Status();
}

Status ImageCopyRun::Meet() {
  ASSIGN_OR_RETURN(peer_, options_.connect(request_.node()));
  v1::HelloRequest hello;
  hello.set_api(kPeerApi);
  hello.set_agent_id(options_.agent_id);
  hello.set_node(options_.node);
  ASSIGN_OR_RETURN(v1::HelloReply reply, peer_->Hello(hello));
  if (reply.agent_id() == options_.agent_id)
    return Status(StatusCode::kFailedPrecondition, "that is the node where the image is");
  target_ = reply.node();
  return CheckInterrupt();
}

Status ImageCopyRun::MakeOffer() {
  ScopedSpan span(context_, "offer");
  context_.Progress("look whether it could run there", 0, 0);
  v1::OfferRequest offer;
  offer.set_purpose(v1::OFFER_PURPOSE_COPY);
  offer.set_job(job_->name());
  offer.set_ranked(job_->ranked());
  for (const auto& reader : readers_) {
    ASSIGN_OR_RETURN(Manifest needs, ParseManifest(reader->meta()));
    for (ManifestMember& member : needs.members) {
      member.ranges.clear();
      member.stream.clear();
    }
    v1::RankNeeds* each = offer.add_ranks();
    each->set_task(reader->task());
    each->set_manifest_json(ManifestJson(needs).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  offer.set_from_node(options_.node);
  offer.set_from_agent(options_.agent_id);
  offer.set_chunk_bytes(static_cast<uint32_t>(store_->options().chunk_bytes));
  ASSIGN_OR_RETURN(v1::OfferReply reply, peer_->Offer(offer));
  for (const std::string& note : reply.notes()) context_.Note(note);
  if (reply.token().empty()) {
    return Status(StatusCode::kFailedPrecondition, "node " + target_ + " can not keep an image of " +
                                                       job_->name() + ": " + RefusalText(reply));
  }
  token_ = reply.token();
  RETURN_IF_ERROR(context_.Remember({{"token", token_}}));
  return CheckInterrupt();
}

Status ImageCopyRun::SendChunks() {
  ScopedSpan span(context_, "send");
  ChunkSender sender(*peer_, token_);
  std::vector<ChunkRef> lacking;
  std::unordered_set<Hash128, HashLowBits> seen;
  for (const auto& reader : readers_) {
    ASSIGN_OR_RETURN(std::vector<ChunkRef> each, sender.Lacking(reader->distinct_chunks()));
    std::copy_if(each.begin(), each.end(), std::back_inserter(lacking),
                 [&](const ChunkRef& chunk) { return seen.insert(chunk.hash).second; });
    RETURN_IF_ERROR(CheckInterrupt());
  }
  RETURN_IF_ERROR(sender.Send(store_, lacking, [&](uint64_t now, uint64_t total) {
    context_.Progress("send", now, total);
    if (Status go_on = CheckInterrupt(); !go_on.ok()) sender.GiveUp(go_on);
  }));
  sent_bytes_ = sender.sent_bytes();
  span.set_bytes(sent_bytes_);
  return Status();
}

Status ImageCopyRun::SendManifests() {
  for (size_t rank = 0; rank < readers_.size(); ++rank) {
    ASSIGN_OR_RETURN(std::vector<std::byte> bytes, SerializeImageManifest(readers_[rank]->manifest()));
    RETURN_IF_ERROR(peer_->PutManifest(token_, static_cast<uint32_t>(rank), bytes));
    RETURN_IF_ERROR(CheckInterrupt());
  }
  return Status();
}

// An answer that was lost is asked for.
Status ImageCopyRun::Keep() {
  ScopedSpan span(context_, "keep");
  context_.Progress("keep", 0, 0);
  v1::KeepRequest request;
  request.set_token(token_);
  request.set_keep(request_.keep());
  if (job_->ranked()) request.set_job_json(JobRecordText(job_->record()));
  for (int tries = 1;; ++tries) {
    Result<v1::KeepReply> kept = peer_->Keep(request, kKeepWait);
    if (kept.ok()) {
      kept_ = *std::move(kept);
      return Status();
    }
    const StatusCode code = kept.status().code();
    if (tries == kKeepTries || (code != StatusCode::kUnavailable && code != StatusCode::kTimeout))
      return std::move(kept).status().WithContext("node " + target_);
    Pause(kKeepPauseMs);
    RETURN_IF_ERROR(CheckInterrupt());
  }
}

void ImageCopyRun::Pause(int milliseconds) {
  pollfd wait{context_.interrupt().fd(), POLLIN, 0};
  (void)poll(&wait, 1, milliseconds);
}

Status ImageCopyRun::CheckInterrupt() {
  pollfd wait{context_.interrupt().fd(), POLLIN, 0};
  if (poll(&wait, 1, 0) <= 0 || !context_.interrupt().Take()) return Status();
  return Status(StatusCode::kCancelled, "given up on request");
}

Json ImageCopyRun::Done() const {
  const double total = std::chrono::duration<double, std::milli>(Now() - begun_).count();
  return {{"ok", true},
          {"verb", "copy"},
          {"image", image_.id},
          {"copy", kept_.image()},
          {"known", kept_.known()},
          {"node", target_},
          {"sent_bytes", sent_bytes_},
          {"total_ms", total}};
}

Json ImageCopyRun::Failed(const Status& status) const {
  Json result = FailureJson("copy", status, "");
  result["left"] = "unchanged";
  return result;
}

class ImageCopy final : public OperationKind {
 public:
  explicit ImageCopy(MigrationOptions options) : options_(std::move(options)) {}

  Json Carry(OperationContext& context) override {
    v1::CopyImageRequest request;
    if (!request.ParseFromString(context.request())) return Unreadable();
    return ImageCopyRun(options_, context, std::move(request)).Carry();
  }
  Json Recover(OperationContext& context) override {
    v1::CopyImageRequest request;
    if (!request.ParseFromString(context.request())) return Unreadable();
    return ImageCopyRun(options_, context, std::move(request)).Recover();
  }
  // It reads what is in the store.
  bool beside() const override { return true; }

 private:
  static Json Unreadable() {
    return FailureJson("copy", Status(StatusCode::kCorrupt, "the request cannot be read"), "");
  }
  const MigrationOptions options_;
};

}  // namespace

std::unique_ptr<OperationKind> MakeImageCopy(MigrationOptions options) {
  return std::make_unique<ImageCopy>(std::move(options));
}

}  // namespace stasis

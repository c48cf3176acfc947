#include "coordinator/agent/migration_run.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "coordinator/agent/pack_tail.h"
#include "coordinator/agent/refusal_text.h"
#include "coordinator/job_json.h"
#include "coordinator/job_result.h"
#include "coordinator/node/image_names.h"
#include "dedup/image.h"
#include "dedup/image_manifest.h"

namespace stasis {
namespace {

constexpr size_t kMeasureBytes = 1 << 20;
constexpr int kMeasurements = 3;
constexpr double kMs = 1000;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
MonotonicTime Now() { return Clock::Real().Now(); }

Precopy PrecopyOf(const std::string& word) {
  if (word == "always") return Precopy::kAlways;
  return word == "never" ? Precopy::kNever : Precopy::kAuto;
}

Json ImageJson(const SourceImage& image) { return {{"id", image.id}, {"tasks", image.tasks}}; }
SourceImage ImageOf(const Json& json) { return {TextField(json, "id"), TextsField(json, "tasks")}; }

}  // namespace

// --- what is remembered

Status MigrationRun::Remember(const std::string& stage) {
  Json early = Json::array();
  for (const SourceImage& image : memory_.early) early.push_back(ImageJson(image));
  Status kept = context_.Remember({{"stage", stage},
                                   {"token", memory_.token},
                                   {"target", memory_.target},
                                   {"was_paused", memory_.was_paused},
                                   {"early", early},
                                   {"image", ImageJson(memory_.image)},
                                   {"order", memory_.order}});
  if (kept.ok()) memory_.stage = stage;
  return kept;
}

void MigrationRun::TakeMemory(const Json& json) {
  memory_.stage = TextField(json, "stage");
  memory_.token = TextField(json, "token");
  memory_.target = TextField(json, "target");
  memory_.was_paused = BoolField(json, "was_paused");
  memory_.order = TextField(json, "order");
  auto image = json.find("image");
  if (image != json.end() && image->is_object()) memory_.image = ImageOf(*image);
  auto early = json.find("early");
  if (early == json.end() || !early->is_array()) return;
  for (const Json& each : *early) {
    if (each.is_object()) memory_.early.push_back(ImageOf(each));
  }
}

// --- before anything is touched

Status MigrationRun::Meet() {
  ASSIGN_OR_RETURN(job_, SourceJob::Open(options_.site, context_.job(), context_));
  RETURN_IF_ERROR(job_->CheckMovable(&memory_.was_paused));
  ASSIGN_OR_RETURN(peer_, options_.connect(request_.node()));
  RETURN_IF_ERROR(MeasureWay());
  ASSIGN_OR_RETURN(store_, OpenOrCreateStore(options_.site.folders));
  return Status();
}

// By messages that are long enough to take longer than the way there and back. A connection is slow at first.
Status MigrationRun::MeasureWay() {
  ScopedSpan span(context_, "measure the way");
  v1::HelloRequest hello;
  hello.set_api(kPeerApi);
  hello.set_agent_id(options_.agent_id);
  hello.set_node(options_.node);
  ASSIGN_OR_RETURN(v1::HelloReply reply, peer_->Hello(hello));
  if (reply.agent_id() == options_.agent_id)
    return Status(StatusCode::kFailedPrecondition, "that is the node where the job is");
  memory_.target = reply.node();
  if (request_.precopy() == "never" || request_.precopy() == "always") return Status();
  MonotonicTime start = Now();
  RETURN_IF_ERROR(peer_->Hello(hello).status());
  Duration answer = Now() - start;
  hello.set_padding(std::string(kMeasureBytes, 'x'));
  for (int i = 0; i < kMeasurements; ++i) {
    start = Now();
    RETURN_IF_ERROR(peer_->Hello(hello).status());
    Duration longer = std::max<Duration>(Now() - start - answer, std::chrono::microseconds(1));
    bytes_per_second_ = std::max(bytes_per_second_, static_cast<double>(kMeasureBytes) / Seconds(longer));
  }
  figures_["link_bytes_per_second"] = bytes_per_second_;
  return Status();
}

Status MigrationRun::MakeOffer() {
  ScopedSpan span(context_, "offer");
  context_.Progress("look whether it can run there", 0, 0);
  ASSIGN_OR_RETURN(std::vector<Manifest> needs, job_->Describe(&device_bytes_));
  v1::OfferRequest offer;
  offer.set_job(job_->name());
  offer.set_ranked(job_->ranked());
  for (size_t rank = 0; rank < needs.size(); ++rank) {
    v1::RankNeeds* each = offer.add_ranks();
    each->set_task(job_->tasks()[rank]);
    each->set_manifest_json(ManifestJson(needs[rank]).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  for (uint32_t gpu : request_.gpus()) offer.add_gpus(gpu);
  offer.set_from_node(options_.node);
  offer.set_from_agent(options_.agent_id);
  offer.set_chunk_bytes(static_cast<uint32_t>(store_->options().chunk_bytes));
  ASSIGN_OR_RETURN(v1::OfferReply reply, peer_->Offer(offer));
  for (const std::string& note : reply.notes()) context_.Note(note);
  if (reply.token().empty()) {
    return Status(StatusCode::kFailedPrecondition,
                  "node " + memory_.target + " can not take " + job_->name() + ": " + RefusalText(reply));
  }
  memory_.token = reply.token();
  sender_ = std::make_unique<ChunkSender>(*peer_, memory_.token);
  signs_ = std::make_unique<SignsOfLife>(*peer_, memory_.token);
  return Remember("copying");
}

// --- while it runs

Result<std::vector<ChunkRef>> MigrationRun::ChunksOf(const SourceImage& image) {
  std::vector<ChunkRef> chunks;
  ChunkSet seen;
  for (size_t rank = 0; rank < image.tasks.size(); ++rank) {
    ASSIGN_OR_RETURN(auto reader, ImageReader::Open(store_, job_->tasks()[rank], image.tasks[rank]));
    for (const ChunkRef& chunk : reader->distinct_chunks()) {
      if (seen.insert(chunk.hash).second) chunks.push_back(chunk);
    }
  }
  return chunks;
}

uint64_t MigrationRun::StoredBytes(const std::vector<ChunkRef>& chunks) const {
  uint64_t bytes = 0;
  for (const ChunkRef& chunk : chunks) bytes += store_->StoredBytes(chunk.hash);
  return bytes;
}

Status MigrationRun::MakeEarlyImage() {
  ScopedSpan span(context_, "image of the running job");
  SourceImage image;
  const std::string step = fmt::format("early{}", memory_.early.size());
  RETURN_IF_ERROR(OkOf(job_->Checkpoint(request_.options(), true, step, &image)));
  memory_.early.push_back(image);
  precopy_standstill_ += early_standstill_;
  RETURN_IF_ERROR(Remember("copying"));
  return store_->Refresh();
}

// What is in the latest early image and in the one before it.
Status MigrationRun::SendStable(PrecopyFacts* facts) {
  ASSIGN_OR_RETURN(std::vector<ChunkRef> chunks, ChunksOf(memory_.early.back()));
  ASSIGN_OR_RETURN(std::vector<ChunkRef> lacking, sender_->Lacking(chunks));
  std::vector<ChunkRef> stable;
  std::copy_if(lacking.begin(), lacking.end(), std::back_inserter(stable),
               [&](const ChunkRef& chunk) { return early_chunks_.contains(chunk.hash); });
  early_chunks_.clear();
  for (const ChunkRef& chunk : chunks) early_chunks_.insert(chunk.hash);
  const uint64_t bytes = StoredBytes(stable);
  ++facts->images;
  facts->standstill = early_standstill_;
  facts->unsent_before = facts->unsent_bytes;
  facts->unsent_bytes = StoredBytes(lacking) - bytes;
  if (stable.empty()) return CheckInterrupt();
  ScopedSpan span(context_, fmt::format("send ahead, round {}", facts->images - 1));
  const MonotonicTime start = Now();
  RETURN_IF_ERROR(sender_->Send(
      store_, stable, [this](uint64_t now, uint64_t total) { context_.Progress("send ahead", now, total); }));
  span.set_bytes(bytes);
  if (bytes >= kMeasureBytes)
    facts->bytes_per_second = static_cast<double>(bytes) / std::max(1e-6, Seconds(Now() - start));
  return CheckInterrupt();
}

Status MigrationRun::SendAhead() {
  PrecopyFacts facts;
  facts.bytes_per_second = bytes_per_second_;
  facts.unsent_bytes = device_bytes_;
  while (!memory_.was_paused && WorthImage(PrecopyOf(request_.precopy()), facts)) {
    RETURN_IF_ERROR(MakeEarlyImage());
    RETURN_IF_ERROR(SendStable(&facts));
  }
  if (facts.images == 0) return Status();
  figures_["precopy_images"] = facts.images;
  figures_["precopy_bytes"] = sender_->sent_bytes();
  figures_["precopy_standstill_ms"] = precopy_standstill_ * kMs;
  return Status();
}

// --- while it stands still

Status MigrationRun::Stop() {
  RETURN_IF_ERROR(Remember("stopping"));
  stopped_ = Now();
  if (memory_.was_paused) return Status();
  ScopedSpan span(context_, "pause");
  return OkOf(job_->Pause(request_.options(), "pause"));
}

// What its ghosts write into the store is sent while they write it.
Status MigrationRun::CheckpointWhileSending() {
  ScopedSpan span(context_, "image of the paused job");
  Result<std::unique_ptr<PackTail>> tail =
      PackTail::Start(store_->root(), job_->Ghosts(),
                      [this](std::vector<ChunkRecord> records) { return sender_->Pass(std::move(records)); });
  if (!tail.ok()) context_.Note("chunks are not sent while they are written: " + tail.status().ToString());
  const uint64_t before = sender_->sent_bytes();
  Status made = OkOf(job_->Checkpoint(request_.options(), false, "image", &memory_.image));
  span.set_bytes(sender_->sent_bytes() - before);
  return made;
}

Status MigrationRun::SendRest() {
  ScopedSpan span(context_, "send the rest");
  context_.Progress("send", 0, 0);
  const uint64_t before = sender_->sent_bytes();
  // What was passed while it was written need not be asked for.
  RETURN_IF_ERROR(sender_->Flush());
  RETURN_IF_ERROR(store_->Refresh());
  ASSIGN_OR_RETURN(std::vector<ChunkRef> chunks, ChunksOf(memory_.image));
  ASSIGN_OR_RETURN(std::vector<ChunkRef> lacking, sender_->Lacking(chunks));
  RETURN_IF_ERROR(sender_->Send(
      store_, lacking, [this](uint64_t now, uint64_t total) { context_.Progress("send", now, total); }));
  for (size_t rank = 0; rank < memory_.image.tasks.size(); ++rank) {
    // As it is in the clear, also where it is encrypted here.
    ASSIGN_OR_RETURN(auto image, ImageReader::Open(store_, job_->tasks()[rank], memory_.image.tasks[rank]));
    ASSIGN_OR_RETURN(std::vector<std::byte> bytes, SerializeImageManifest(image->manifest()));
    RETURN_IF_ERROR(peer_->PutManifest(memory_.token, static_cast<uint32_t>(rank), bytes));
  }
  span.set_bytes(sender_->sent_bytes() - before);
  figures_["sent_bytes"] = sender_->sent_bytes();
  return CheckInterrupt();
}

// --- from start to end

Json MigrationRun::Carry() {
  begun_ = Now();
  Status status = Meet();
  if (status.ok()) status = MakeOffer();
  if (!status.ok()) {
    TellTargetItIsOver();
    return Failed(status, "unchanged");
  }
  status = SendAhead();
  if (status.ok()) status = CheckInterrupt();
  if (status.ok()) status = Stop();
  if (status.ok()) status = CheckpointWhileSending();
  if (status.ok()) status = SendRest();
  if (!status.ok()) return Back(status);
  return HandOverAndEnd(Giver());
}

Json MigrationRun::Recover() {
  begun_ = stopped_ = Now();
  recovered_ = true;
  TakeMemory(context_.remembered());
  if (memory_.stage.empty()) return Carry();
  const Giver::Record record = GiverRecordOf(memory_.stage);
  if (record == Giver::Record::kTakenBack) {
    // That much is owed, whatever can be found out of what is here.
    Status owed = options_.reclaim(ReclaimOf(context_.job()));
    if (!owed.ok()) return Failed(owed, "in-doubt");
  }
  Result<SourceJob> job = SourceJob::Open(options_.site, context_.job(), context_);
  if (!job.ok()) return Failed(job.status(), "in-doubt");
  job_ = *std::move(job);
  if (record == Giver::Record::kNone) {
    return Back(Status(StatusCode::kUnavailable, "the agent that led it was killed"));
  }
  return HandOverAndEnd(Giver::Recovered(record));
}

// Nothing was handed over: it is as it was.
Json MigrationRun::Back(const Status& why) {
  // Also a ghost that was killed at an image of the running job leaves it standing still.
  const bool kept = Keep();
  sender_.reset();
  TellTargetItIsOver();
  DropEarlyImages();
  Json result = Failed(why, kept ? "rolled-back" : "lost");
  for (auto& [key, value] : failure_.items()) {
    // What helps a job that is left standing is nothing for one that runs on.
    if (key == "remedy" && kept) continue;
    if (key == "code" || key == "message" || key == "remedy" || key == "blockers" || key == "failed_rank")
      result[key] = value;
  }
  return result;
}

// The token is void then, and what has been sent is dropped. A target that cannot be told does so by itself,
// as nothing is heard of the token any more.
void MigrationRun::TellTargetItIsOver() {
  signs_.reset();
  if (memory_.token.empty()) return;
  if (!peer_) {
    Result<std::unique_ptr<PeerLink>> peer = options_.connect(request_.node());
    if (!peer.ok()) return;
    peer_ = *std::move(peer);
  }
  (void)peer_->AskOutcome(memory_.token, Duration::zero());
}

// It runs on here, or stays paused where it was paused before. False: it is lost.
bool MigrationRun::Keep() {
  ScopedSpan span(context_, "run on here");
  bool paused = false, ended = false;
  if (!UnmarkHere().ok()) return false;
  if (!job_->AwaitRest(&paused, &ended).ok()) return false;
  if (ended) return BringBack();
  if (!paused || memory_.was_paused) return true;
  return BoolField(job_->Resume(recovered_ ? "resume-again" : "resume"), "ok");
}

// Its processes have ended here. Where the image of the stopped job is there, that is all of it. Else, where
// they were killed and did not end by themselves, as by a CRIU that dies at work, the newest image there is.
bool MigrationRun::BringBack() {
  SourceImage image = memory_.image;
  if (image.empty()) {
    if (!job_->Killed()) return false;
    Result<SourceImage> newest = memory_.early.empty() ? job_->FindImage("") : memory_.early.back();
    if (!newest.ok()) return false;
    image = *std::move(newest);
  }
  context_.Note("what was here has ended meanwhile, and is brought back from image " + image.id);
  (void)job_->EndPaused();
  return BoolField(job_->Restore(image.id, "bring-back"), "ok");
}

void MigrationRun::DropEarlyImages() {
  if (memory_.early.empty()) return;
  for (const SourceImage& image : memory_.early) job_->RemoveImage(image);
  memory_.early.clear();
  Result<std::shared_ptr<Store>> store = OpenStore(options_.site.folders);
  if (store.ok()) (void)(*store)->CollectGarbage();
}

Status MigrationRun::OkOf(const Json& result) {
  if (result.contains("standstill_ms")) early_standstill_ = NumberField(result, "standstill_ms") / kMs;
  if (BoolField(result, "ok")) return Status();
  failure_ = result;
  return Status(StatusCode::kUnavailable, TextField(result, "message"));
}

Status MigrationRun::CheckInterrupt() {
  pollfd wait{context_.interrupt().fd(), POLLIN, 0};
  if (poll(&wait, 1, 0) <= 0 || !context_.interrupt().Take()) return Status();
  return Status(StatusCode::kCancelled, "given up on request");
}

Json MigrationRun::Failed(const Status& status, const std::string& left) const {
  Json result = FailureJson("migrate", status, RemedyOfDamage(context_.job(), status));
  result["left"] = left;
  return result;
}

}  // namespace stasis

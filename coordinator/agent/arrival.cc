#include "coordinator/agent/arrival.h"

#include <optional>
#include <utility>

#include "coordinator/agent/arrival_job.h"
#include "coordinator/agent/peer_link.h"
#include "coordinator/job_json.h"
#include "coordinator/node/image_names.h"
#include "dedup/image_manifest.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

constexpr char kImages[] = "images";
constexpr uint32_t kRestoreMs = 5 * 60 * 1000;

ArrivedJob JobOf(const HandOverRow& row) { return {row.token, row.job, row.ranked, row.tasks}; }

Json FailureOf(const Status& status, const std::string& remedy) {
  return {{"ok", false},
          {"code", StatusCodeName(status.code())},
          {"message", std::string(status.message())},
          {"remedy", remedy}};
}

v1::OutcomeKind KindOf(HandOverAnswer answer) {
  switch (answer) {
    case HandOverAnswer::kUndecided:
      return v1::OUTCOME_KIND_UNDECIDED;
    case HandOverAnswer::kRuns:
      return v1::OUTCOME_KIND_RUNS;
    case HandOverAnswer::kNotTaken:
      return v1::OUTCOME_KIND_NOT_TAKEN;
    case HandOverAnswer::kNone:
      break;
  }
  return v1::OUTCOME_KIND_UNSPECIFIED;
}

// It must be the image of the task that was offered, and nothing else.
Result<ImageManifest> ParseArrived(std::span<const std::byte> bytes, const Arriving& rank) {
  ASSIGN_OR_RETURN(ImageManifest image, ParseImageManifest(bytes, "the manifest of " + rank.task));
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(image.meta));
  ASSIGN_OR_RETURN(TaskConfig config, ParseTaskConfig(manifest.task));
  if (config.name == rank.task && config.created == rank.config.created && config.rank == rank.config.rank)
    return image;
  return Status(StatusCode::kInvalidArgument, "the manifest is not of the task that was offered");
}

}  // namespace

Arrival::Arrival(const Parts& parts, HandOverRow row, Taker taker, std::vector<Arriving> ranks,
                 std::vector<std::vector<int>> gpus)
    : parts_(parts),
      ranks_(std::move(ranks)),
      gpus_(std::move(gpus)),
      row_(std::move(row)),
      taker_(taker),
      heard_(parts.clock->Now()),
      received_(ranks_.size()) {}

Result<std::shared_ptr<Arrival>> Arrival::Make(const Parts& parts, HandOverRow row,
                                               std::vector<Arriving> ranks,
                                               std::vector<std::vector<int>> gpus) {
  std::shared_ptr<Arrival> arrival(
      new Arrival(parts, std::move(row), Taker(), std::move(ranks), std::move(gpus)));
  ASSIGN_OR_RETURN(arrival->store_, OpenOrCreateStore(parts.site.folders));
  ASSIGN_OR_RETURN(arrival->writer_, StoreWriter::Begin(arrival->store_));
  return arrival;
}

std::shared_ptr<Arrival> Arrival::Recovered(const Parts& parts, HandOverRow row) {
  Taker taker = Taker::Recovered(row.record);
  std::vector<std::string> images = TextsField(row.result, kImages);
  std::shared_ptr<Arrival> arrival(new Arrival(parts, std::move(row), taker, {}, {}));
  arrival->images_ = std::move(images);
  return arrival;
}

bool Arrival::Silent(Duration how_long) const {
  std::lock_guard lock(mutex_);
  return parts_.clock->Now() - heard_ > how_long && !preparing_;
}

bool Arrival::Settled() const {
  std::lock_guard lock(mutex_);
  return !taker_.open() && !preparing_ && taker_.step() == Taker::Step::kWait;
}

Result<std::shared_ptr<StoreWriter>> Arrival::HearOf() {
  std::lock_guard lock(mutex_);
  heard_ = parts_.clock->Now();
  if (taker_.open() && !preparing_) return writer_;
  return Status(StatusCode::kFailedPrecondition, "nothing more is taken for " + row_.job);
}

Result<std::string> Arrival::Missing(std::string_view hashes) {
  ASSIGN_OR_RETURN(std::shared_ptr<StoreWriter> writer, HearOf());
  std::string missing;
  for (const Hash128& hash : UnpackHashes(hashes)) {
    ASSIGN_OR_RETURN(bool there, writer->Has(hash));
    missing += static_cast<char>(there ? 0 : 1);
  }
  return missing;
}

Status Arrival::Put(std::string_view records) {
  ASSIGN_OR_RETURN(std::shared_ptr<StoreWriter> writer, HearOf());
  std::span<const std::byte> bytes = std::as_bytes(std::span(records));
  while (!bytes.empty()) {
    if (bytes.size() < kRecordHeaderBytes) return Status(StatusCode::kCorrupt, "half of a chunk has come");
    ASSIGN_OR_RETURN(RecordHeader header, DecodeRecordHeader(bytes.first<kRecordHeaderBytes>()));
    bytes = bytes.subspan(kRecordHeaderBytes);
    if (bytes.size() < header.stored_size) return Status(StatusCode::kCorrupt, "half of a chunk has come");
    RETURN_IF_ERROR(writer->PutRecord(header, bytes.first(header.stored_size)));
    bytes = bytes.subspan(header.stored_size);
  }
  return Status();
}

Status Arrival::PutManifest(const v1::PutManifestRequest& request) {
  RETURN_IF_ERROR(HearOf().status());
  std::lock_guard lock(mutex_);
  if (request.rank() >= received_.size())
    return Status(StatusCode::kInvalidArgument, "there is no such rank");
  Received& received = received_[request.rank()];
  if (request.offset() == 0) received = {{}, request.size()};
  if (request.size() == 0 || request.size() > kMaxPeerManifest || request.size() != received.expected ||
      request.offset() != received.manifest.size() ||
      request.part().size() > request.size() - request.offset()) {
    return Status(StatusCode::kInvalidArgument,
                  "a part of a manifest that does not follow the one before it");
  }
  auto part = std::as_bytes(std::span(request.part()));
  received.manifest.insert(received.manifest.end(), part.begin(), part.end());
  return Status();
}

Result<std::vector<ImageManifest>> Arrival::Manifests() const {
  std::lock_guard lock(mutex_);
  std::vector<ImageManifest> manifests;
  for (size_t rank = 0; rank < received_.size(); ++rank) {
    const Received& received = received_[rank];
    if (received.expected == 0 || received.manifest.size() != received.expected) {
      return Status(StatusCode::kFailedPrecondition,
                    "the manifest of " + ranks_[rank].task + " has not come");
    }
    ASSIGN_OR_RETURN(ImageManifest manifest, ParseArrived(received.manifest, ranks_[rank]));
    manifests.push_back(std::move(manifest));
  }
  return manifests;
}

// Everything that can be done before it counts.
Status Arrival::Prepare(const v1::HandOverRequest& request) {
  ASSIGN_OR_RETURN(std::vector<ImageManifest> manifests, Manifests());
  std::optional<JobRecord> record;
  if (row_.ranked) {
    ASSIGN_OR_RETURN(record, ParseJobRecord(request.job_json()));
    if (record->name != row_.job || static_cast<size_t>(record->ranks()) != row_.tasks.size())
      return Status(StatusCode::kInvalidArgument, "the record is not of the job that was offered");
  }
  std::vector<TaskConfig> of;
  for (const Arriving& rank : ranks_) of.push_back(rank.config);
  ArrivedJob job = JobOf(row_);
  RETURN_IF_ERROR(CheckRoomFor(parts_.site.folders, job, of));
  ASSIGN_OR_RETURN(images_, CommitImages(store_, *writer_, job, manifests));
  return WriteRecords(parts_.site, job, manifests, images_, record);
}

v1::Outcome Arrival::HandOver(const v1::HandOverRequest& request) {
  {
    std::lock_guard lock(mutex_);
    heard_ = parts_.clock->Now();
    if (!taker_.open() || preparing_) return OutcomeNow();
    preparing_ = true;
  }
  Status ready = Prepare(request);
  bool taken = false;
  {
    std::lock_guard lock(mutex_);
    preparing_ = false;
    if (ready.ok()) taker_.Take();
    taken = taker_.step() == Taker::Step::kWriteMine;
  }
  if (taken) {
    Take(request.deadline_ms() > 0 ? request.deadline_ms() : kRestoreMs);
  } else {
    if (ready.ok()) RemoveRecords(parts_.site, JobOf(row_), images_);
    GiveUp(ready);
  }
  std::lock_guard lock(mutex_);
  return OutcomeNow();
}

// Nothing can make it this node's any more.
void Arrival::GiveUp(const Status& why) {
  std::lock_guard lock(mutex_);
  (void)taker_.Ask();
  if (!why.ok()) row_.result = FailureOf(why, "");
  writer_.reset();
  changed_.notify_all();
}

void Arrival::Take(uint32_t deadline_ms) {
  {
    std::lock_guard lock(mutex_);
    row_.result = {{kImages, images_}};
  }
  Status written = Write(Taker::Record::kMine);
  {
    std::lock_guard lock(mutex_);
    taker_.Done(written.ok());
  }
  if (written.ok()) return Restore(deadline_ms);
  RemoveRecords(parts_.site, JobOf(row_), images_);
  GiveUp(written);
}

void Arrival::Restore(uint32_t deadline_ms) {
  ArrivedJob job = JobOf(row_);
  Result<Json> answer = RestoreArrived(parts_.site, job, images_, gpus_, deadline_ms);
  bool runs = answer.ok() ? BoolField(*answer, "ok") : HasArrived(parts_.site, job);
  Conclude(runs, answer.ok() ? *answer : FailureOf(answer.status(), ""));
}

void Arrival::Probe() {
  {
    std::lock_guard lock(mutex_);
    if (taker_.step() != Taker::Step::kProbe) return;
  }
  bool runs = HasArrived(parts_.site, JobOf(row_));
  Status why(StatusCode::kPeerDied, "the agent of the target was killed before the job ran there");
  Conclude(runs, runs ? Json{{"ok", true}} : FailureOf(why, ""));
}

void Arrival::Conclude(bool runs, Json result) {
  // What is of no use any more goes before anybody is told that it is not here.
  if (!runs) RemoveRecords(parts_.site, JobOf(row_), images_);
  {
    std::lock_guard lock(mutex_);
    row_.result = std::move(result);
    taker_.Done(runs);
  }
  Status written = Write(runs ? Taker::Record::kRuns : Taker::Record::kReturned);
  if (runs) {
    parts_.registry->SetMovedTo(row_.job, "");
    parts_.registry->Refresh(row_.job);
  }
  std::lock_guard lock(mutex_);
  taker_.Done(written.ok());
  writer_.reset();
  changed_.notify_all();
}

Status Arrival::Write(Taker::Record record) {
  HandOverRow row;
  {
    std::lock_guard lock(mutex_);
    row_.record = record;
    row = row_;
  }
  return parts_.table->Write(row);
}

v1::Outcome Arrival::Ask(Duration wait) {
  std::unique_lock lock(mutex_);
  heard_ = parts_.clock->Now();
  const bool was_open = taker_.open();
  (void)taker_.Ask();
  if (was_open && !preparing_) writer_.reset();
  changed_.wait_for(lock, wait, [this] { return taker_.answer() != HandOverAnswer::kUndecided; });
  return OutcomeNow();
}

v1::Outcome Arrival::OutcomeNow() const {
  v1::Outcome outcome;
  HandOverAnswer answer = preparing_ && taker_.open() ? HandOverAnswer::kUndecided : taker_.answer();
  outcome.set_kind(KindOf(answer));
  if (answer == HandOverAnswer::kRuns || answer == HandOverAnswer::kNotTaken) {
    outcome.set_result_json(row_.result.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return outcome;
}

}  // namespace stasis

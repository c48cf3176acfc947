#include "coordinator/agent/receiving.h"

#include <span>
#include <utility>

#include "coordinator/agent/peer_link.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

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

Receiving::Receiving(const Clock& clock, std::vector<Arriving> ranks)
    : clock_(clock), ranks_(std::move(ranks)), heard_(clock.Now()), received_(ranks_.size()) {}

Status Receiving::Begin(std::shared_ptr<Store> store) {
  store_ = std::move(store);
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(writer_, StoreWriter::Begin(store_));
  sealed_ = false;
  return Status();
}

void Receiving::Touch() {
  std::lock_guard lock(mutex_);
  heard_ = clock_.Now();
}

bool Receiving::Silent(Duration how_long) const {
  std::lock_guard lock(mutex_);
  return clock_.Now() - heard_ > how_long;
}

Result<std::shared_ptr<StoreWriter>> Receiving::Hear() {
  std::lock_guard lock(mutex_);
  heard_ = clock_.Now();
  if (!sealed_) return writer_;
  return Status(StatusCode::kFailedPrecondition, "nothing more is taken by that token");
}

Result<std::string> Receiving::Missing(std::string_view hashes) {
  ASSIGN_OR_RETURN(std::shared_ptr<StoreWriter> writer, Hear());
  std::string missing;
  for (const Hash128& hash : UnpackHashes(hashes)) {
    ASSIGN_OR_RETURN(bool there, writer->Has(hash));
    missing += static_cast<char>(there ? 0 : 1);
  }
  return missing;
}

Status Receiving::Put(std::string_view records) {
  ASSIGN_OR_RETURN(std::shared_ptr<StoreWriter> writer, Hear());
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

Status Receiving::PutManifest(const v1::PutManifestRequest& request) {
  RETURN_IF_ERROR(Hear().status());
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

Result<std::vector<ImageManifest>> Receiving::Manifests() const {
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

void Receiving::Seal() {
  std::lock_guard lock(mutex_);
  heard_ = clock_.Now();
  sealed_ = true;
}

void Receiving::Drop() {
  std::shared_ptr<StoreWriter> writer;
  std::lock_guard lock(mutex_);
  sealed_ = true;
  writer.swap(writer_);
}

std::shared_ptr<StoreWriter> Receiving::writer() const {
  std::lock_guard lock(mutex_);
  return writer_;
}

}  // namespace stasis

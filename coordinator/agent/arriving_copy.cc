#include "coordinator/agent/arriving_copy.h"

#include <utility>

#include "coordinator/job_json.h"
#include "coordinator/node/image_names.h"

namespace stasis {

Result<std::shared_ptr<ArrivingCopy>> ArrivingCopy::Make(CopyShelf& shelf, const Site& site,
                                                         const Clock& clock, ArrivedJob job,
                                                         std::vector<Arriving> ranks,
                                                         std::vector<std::vector<int>> gpus) {
  std::shared_ptr<ArrivingCopy> copy(
      new ArrivingCopy(shelf, clock, std::move(job), std::move(ranks), std::move(gpus)));
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, OpenOrCreateStore(site.folders));
  RETURN_IF_ERROR(copy->receiving_.Begin(std::move(store)));
  return copy;
}

Result<v1::KeepReply> ArrivingCopy::Keep(const v1::KeepRequest& request) {
  {
    std::unique_lock lock(mutex_);
    receiving_.Touch();
    changed_.wait(lock, [this] { return !keeping_; });
    if (outcome_) return *outcome_;
    keeping_ = true;
    receiving_.Seal();
  }
  Result<v1::KeepReply> reply = TakeIn(request);
  receiving_.Drop();
  std::lock_guard lock(mutex_);
  keeping_ = false;
  receiving_.Touch();
  outcome_ = std::move(reply);
  changed_.notify_all();
  return *outcome_;
}

Result<v1::KeepReply> ArrivingCopy::TakeIn(const v1::KeepRequest& request) {
  std::optional<JobRecord> record;
  if (job_.ranked) {
    ASSIGN_OR_RETURN(record, ParseJobRecord(request.job_json()));
    if (record->name != job_.name || static_cast<size_t>(record->ranks()) != job_.tasks.size())
      return Status(StatusCode::kInvalidArgument, "the record is not of the job that was offered");
  }
  ASSIGN_OR_RETURN(CopyShelf::Kept kept, shelf_.Take(job_, record, gpus_, receiving_, request.keep()));
  v1::KeepReply reply;
  reply.set_image(kept.image);
  reply.set_known(kept.known);
  return reply;
}

void ArrivingCopy::GiveUp() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !keeping_; });
  if (outcome_) return;
  outcome_ = Result<v1::KeepReply>(Status(StatusCode::kCancelled, "the copy was given up"));
  receiving_.Drop();
}

bool ArrivingCopy::Silent(Duration how_long) const {
  std::lock_guard lock(mutex_);
  return !keeping_ && receiving_.Silent(how_long);
}

}  // namespace stasis

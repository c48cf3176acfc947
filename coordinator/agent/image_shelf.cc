#include "coordinator/agent/image_shelf.h"

#include <algorithm>

#include "coordinator/job_record.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/job.h"
#include "dedup/image.h"
#include "dedup/store.h"

namespace stasis {
namespace {

Status IgnoreMissing(Status status) { return status.code() == StatusCode::kNotFound ? Status() : status; }

class StoreShelf final : public ImageShelf {
 public:
  explicit StoreShelf(const Folders& folders) : folders_(folders) {}

  Result<std::vector<std::string>> List(const std::string& job) const override {
    if (IsJob(folders_, job)) return ListOfJob(job);
    Result<std::shared_ptr<Store>> store = OpenStore(folders_);
    if (store.status().code() == StatusCode::kNotFound) return std::vector<std::string>();
    if (!store.ok()) return store.status();
    return ListImages(**store, job);
  }

  Status Remove(const std::string& job, const std::vector<std::string>& ids) override {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, OpenStore(folders_));
    for (const std::string& id : ids) {
      RETURN_IF_ERROR(IsJob(folders_, job) ? RemoveOfJob(*store, job, id)
                                           : IgnoreMissing(RemoveImage(*store, job, id)));
    }
    Status collected = store->CollectGarbage().status();
    // Another one collects at the moment, and what it leaves goes with the next time.
    return collected.code() == StatusCode::kFailedPrecondition ? Status() : collected;
  }

 private:
  Result<std::vector<std::string>> ListOfJob(const std::string& job) const {
    return ListJobImageIds(folders_.state, job);
  }

  // The list first: without it the ranks' images are in nobody's way, and the next operation removes what is
  // left of them.
  Status RemoveOfJob(Store& store, const std::string& job, const std::string& id) {
    Result<JobImage> image = ReadJobImage(folders_.state, job, id);
    if (!image.ok() && image.status().code() != StatusCode::kCorrupt) return IgnoreMissing(image.status());
    RETURN_IF_ERROR(IgnoreMissing(RemoveJobImage(folders_.state, job, id)));
    if (!image.ok()) return Status();
    for (size_t rank = 0; rank < image->images.size(); rank++) {
      Status removed = RemoveImage(store, RankName(job, static_cast<int>(rank)), image->images[rank]);
      RETURN_IF_ERROR(IgnoreMissing(std::move(removed)));
    }
    return Status();
  }

  const Folders folders_;
};

}  // namespace

std::unique_ptr<ImageShelf> MakeImageShelf(const Folders& folders) {
  return std::make_unique<StoreShelf>(folders);
}

}  // namespace stasis

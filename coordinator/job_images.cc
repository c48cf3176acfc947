#include "coordinator/job_images.h"

#include <chrono>

#include "base/files.h"
#include "dedup/image.h"
#include "dedup/image_manifest.h"
#include "dedup/store.h"

namespace stasis {
namespace {

constexpr std::string_view kSuffix = ".image";

uint64_t SecondsNow() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace

Result<std::set<std::string>> JobImages::TaskImages(int rank) const {
  ASSIGN_OR_RETURN(std::vector<std::string> names,
                   ListFolder(state_dir_ + "/store/images/" + record_.TaskOf(rank)));
  std::set<std::string> ids;
  for (const std::string& name : names) {
    if (!name.ends_with(kSuffix)) continue;
    std::string id = name.substr(0, name.size() - kSuffix.size());
    if (IsImageId(id)) ids.insert(std::move(id));
  }
  return ids;
}

Result<int> JobImages::RemoveOrphans() {
  Result<std::vector<JobImage>> listed = ListJobImages(state_dir_, record_.name);
  // What a damaged one names is not known, so nobody's image is an orphan.
  if (listed.status().code() == StatusCode::kCorrupt) return 0;
  ASSIGN_OR_RETURN(std::vector<JobImage> images, std::move(listed));
  std::vector<std::pair<std::string, std::string>> orphans;
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    ASSIGN_OR_RETURN(std::set<std::string> ids, TaskImages(rank));
    for (const JobImage& image : images) ids.erase(image.images[static_cast<size_t>(rank)]);
    for (const std::string& id : ids) orphans.emplace_back(record_.TaskOf(rank), id);
  }
  if (orphans.empty()) return 0;
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(state_dir_ + "/store"));
  for (const auto& [task, id] : orphans) {
    Status removed = RemoveImage(*store, task, id);
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  }
  RETURN_IF_ERROR(store->CollectGarbage().status());
  return static_cast<int>(orphans.size());
}

Status JobImages::NoteBefore() {
  before_.clear();
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    ASSIGN_OR_RETURN(std::set<std::string> ids, TaskImages(rank));
    before_.push_back(std::move(ids));
  }
  return Status();
}

Result<JobImage> JobImages::Commit() {
  ASSIGN_OR_RETURN(std::vector<std::string> before, ListJobImageIds(state_dir_, record_.name));
  JobImage image;
  image.created = SecondsNow();
  image.id = "000001";
  if (!before.empty()) {
    ASSIGN_OR_RETURN(image.id, ImageIdAfter(before.back()));
  }
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    ASSIGN_OR_RETURN(std::set<std::string> ids, TaskImages(rank));
    for (const std::string& id : before_[static_cast<size_t>(rank)]) ids.erase(id);
    if (ids.size() != 1) {
      return Errorf(StatusCode::kInternal, "rank %d has written %zu images instead of one", rank, ids.size());
    }
    image.images.push_back(*ids.begin());
  }
  RETURN_IF_ERROR(WriteJobImage(state_dir_, record_.name, image));
  return image;
}

Result<JobImage> JobImages::Find(const std::string& id) const {
  if (!id.empty()) return ReadJobImage(state_dir_, record_.name, id);
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListJobImageIds(state_dir_, record_.name));
  if (ids.empty()) return Status(StatusCode::kNotFound, "job " + record_.name + " has no image");
  return ReadJobImage(state_dir_, record_.name, ids.back());
}

}  // namespace stasis

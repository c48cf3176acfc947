#include "coordinator/agent/image_list.h"

#include <map>
#include <memory>
#include <vector>

#include "base/log/log.h"
#include "coordinator/job_record.h"
#include "coordinator/node/image_figures.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

// Which images of ranks' tasks are parts of which image of a job.
std::map<std::string, ImageName> PartsOfJobs(const Folders& folders) {
  std::map<std::string, ImageName> parts;
  for (const std::string& job : ListJobs(folders.state)) {
    Result<std::vector<std::string>> ids = ListJobImageIds(folders.state, job);
    for (size_t i = 0; ids.ok() && i < ids->size(); i++) {
      Result<JobImage> image = ReadJobImage(folders.state, job, (*ids)[i]);
      if (!image.ok()) {
        Log(LogLevel::kWarning, "images", "an image of a job cannot be read",
            {{"job", job}, {"image", (*ids)[i]}, {"why", std::string(image.status().message())}});
        continue;
      }
      for (size_t rank = 0; rank < image->images.size(); rank++) {
        parts[RankName(job, static_cast<int>(rank)) + "/" + image->images[rank]] = {job, image->id};
      }
    }
  }
  return parts;
}

void Describe(const ImageFigures& figures, v1::Image* image) {
  image->set_job(figures.name.task);
  image->set_id(figures.name.id);
  image->set_created_ms(static_cast<int64_t>(figures.created) * 1000);
  image->set_device_bytes(figures.device_bytes);
  image->set_logical_bytes(figures.counts.bytes);
  image->set_stored_bytes(figures.stored_bytes);
  image->set_ranks(static_cast<uint32_t>(figures.ranks));
  image->set_damage(figures.damage);
}

}  // namespace

Result<v1::ImagesResponse> ListImagesOf(const Folders& folders, const std::string& job) {
  v1::ImagesResponse response;
  Result<std::shared_ptr<Store>> store = OpenStore(folders);
  if (!store.ok() && store.status().code() == StatusCode::kNotFound) return response;
  if (!store.ok()) return store.status();
  ASSIGN_OR_RETURN(std::vector<ImageFigures> images, ReadFigures(*store, PartsOfJobs(folders)));
  for (const ImageFigures& image : images) {
    bool checkpoint = IsCheckpointId(image.name.id) && (image.has_task || !image.damage.empty());
    if (checkpoint && (job.empty() || image.name.task == job)) Describe(image, response.add_images());
  }
  return response;
}

}  // namespace stasis

#include "cli/job_image_verbs.h"

#include <fmt/format.h>

#include "coordinator/node/job.h"
#include "ghost/manifest.h"

namespace stasis {
namespace {

struct Part {
  std::unique_ptr<ImageReader> image;
  Manifest manifest;
};

Result<Part> OpenPart(const std::shared_ptr<Store>& store, const ImageName& name) {
  Part part;
  ASSIGN_OR_RETURN(part.image, ImageReader::Open(store, name.task, name.id));
  Result<Manifest> manifest = ParseManifest(part.image->meta());
  if (!manifest.ok()) return std::move(manifest).status().WithContext(name.Text() + " is no checkpoint");
  part.manifest = *std::move(manifest);
  return part;
}

Result<Json> DescribePart(const std::shared_ptr<Store>& store, const JobRecord& record, int rank,
                          const ImageName& name) {
  ASSIGN_OR_RETURN(Part part, OpenPart(store, name));
  return Json{{"rank", rank},
              {"image", name.Text()},
              {"node", record.NodeOf(rank).name},
              {"processes", part.manifest.members.size()},
              {"device_bytes", part.manifest.DeviceBytes()},
              {"active_bytes", part.manifest.ActiveBytes()},
              {"bytes", part.image->counts().bytes},
              {"unique_bytes", part.image->counts().unique_bytes}};
}

std::string PartText(const Json& part) {
  auto size = [&](const char* key) { return SizeText(static_cast<uint64_t>(IntegerField(part, key))); };
  return fmt::format("rank {:<4} {:<24} {}: {} of device memory, {} active; {} in all\n",
                     IntegerField(part, "rank"), TextField(part, "image"), TextField(part, "node"),
                     size("device_bytes"), size("active_bytes"), size("bytes"));
}

Result<Json> DescribeParts(const JobRecord& record, const std::vector<ImageName>& parts,
                           const Folders& folders) {
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, OpenStore(folders));
  Json ranks = Json::array();
  for (size_t rank = 0; rank < parts.size(); rank++) {
    ASSIGN_OR_RETURN(Json part, DescribePart(store, record, static_cast<int>(rank), parts[rank]));
    ranks.push_back(std::move(part));
  }
  return ranks;
}

}  // namespace

std::map<std::string, ImageName> ImagesOfJobs(Context& context) {
  std::map<std::string, ImageName> images;
  for (const std::string& job : ListJobs(context.folders.state)) {
    Result<std::vector<std::string>> ids = ListJobImageIds(context.folders.state, job);
    if (!ids.ok()) context.reporter.Note(ids.status().ToString());
    for (size_t i = 0; ids.ok() && i < ids->size(); i++) {
      Result<JobImage> image = ReadJobImage(context.folders.state, job, (*ids)[i]);
      if (!image.ok()) {
        context.reporter.Note(image.status().ToString());
        continue;
      }
      for (size_t rank = 0; rank < image->images.size(); rank++) {
        images[RankName(job, static_cast<int>(rank)) + "/" + image->images[rank]] = {job, image->id};
      }
    }
  }
  return images;
}

Status RefuseRankImage(const ImageName& name, Context& context) {
  std::map<std::string, ImageName> images = ImagesOfJobs(context);
  auto found = images.find(name.Text());
  if (found == images.end()) return Status();
  return Status(StatusCode::kFailedPrecondition,
                fmt::format("{} is a part of the image {} of a job, and of no use without the other parts",
                            name.Text(), found->second.Text()));
}

Result<std::vector<ImageName>> PartsOf(const ImageName& image, const Folders& folders, std::string* id) {
  std::string wanted = image.id;
  if (wanted.empty()) {
    ASSIGN_OR_RETURN(std::vector<std::string> ids, ListJobImageIds(folders.state, image.task));
    if (ids.empty()) return Status(StatusCode::kNotFound, "job " + image.task + " has no image");
    wanted = ids.back();
  }
  ASSIGN_OR_RETURN(JobImage read, ReadJobImage(folders.state, image.task, wanted));
  std::vector<ImageName> parts;
  for (size_t rank = 0; rank < read.images.size(); rank++)
    parts.push_back({RankName(image.task, static_cast<int>(rank)), read.images[rank]});
  if (id != nullptr) *id = wanted;
  return parts;
}

int ShowJobImage(const ImageName& image, Context& context) {
  Result<JobRecord> record = ReadJobRecord(context.folders.state, image.task);
  if (!record.ok()) return context.reporter.Fail(record.status());
  std::string id;
  Result<std::vector<ImageName>> parts = PartsOf(image, context.folders, &id);
  if (!parts.ok()) return FailOfStore(parts.status(), context);
  Result<Json> ranks = DescribeParts(*record, *parts, context.folders);
  if (!ranks.ok()) return FailOfStore(ranks.status(), context);
  std::string text = fmt::format("image        {}/{}\n", image.task, id);
  for (const Json& rank : *ranks) text += PartText(rank);
  text += fmt::format("`stasis images show {}` says what rank 0 needs to be restored here\n",
                      parts->front().Text());
  return context.reporter.Done(
      {{"image", image.task + "/" + id}, {"id", id}, {"argv", record->argv}, {"ranks", *ranks}}, text);
}

Status RemoveJobImageWithParts(const ImageName& image, Store& store, const Folders& folders) {
  Result<std::vector<ImageName>> parts = PartsOf(image, folders, nullptr);
  // Which parts a damaged one had nobody knows; the next operation on the job removes those that no other
  // has.
  if (!parts.ok() && parts.status().code() != StatusCode::kCorrupt) return parts.status();
  RETURN_IF_ERROR(RemoveJobImage(folders.state, image.task, image.id));
  if (!parts.ok()) return Status();
  for (const ImageName& part : *parts) {
    Status removed = RemoveImage(store, part.task, part.id);
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  }
  return Status();
}

int RefuseJobExport(const ImageName& image, Context& context) {
  return context.reporter.Fail(
      Status(StatusCode::kUnsupported,
             image.Text() + " is an image of a job: one file holds an image of one task"),
      "copy the state folder " + context.folders.state + " as a whole, while nothing of it runs");
}

}  // namespace stasis

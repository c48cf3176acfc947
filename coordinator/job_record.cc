#include "coordinator/job_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "coordinator/job_json.h"
#include "dedup/image_manifest.h"

namespace stasis {
namespace {

constexpr size_t kMaxFile = 4 << 20;
constexpr std::string_view kSuffix = ".json";

std::string JobsFolder(const std::string& state_dir) { return state_dir + "/jobs"; }
std::string JobFolder(const std::string& state_dir, const std::string& job) {
  return JobsFolder(state_dir) + "/" + job;
}
std::string RecordPath(const std::string& state_dir, const std::string& job) {
  return JobFolder(state_dir, job) + "/job.json";
}
std::string ImagesFolder(const std::string& state_dir, const std::string& job) {
  return JobFolder(state_dir, job) + "/images";
}
std::string ImagePath(const std::string& state_dir, const std::string& job, const std::string& id) {
  return ImagesFolder(state_dir, job) + "/" + id + std::string(kSuffix);
}

bool IsJobName(const std::string& name) { return IsPlainName(name) && name[0] != '.'; }

Status CheckJobName(const std::string& name) {
  if (IsJobName(name)) return Status();
  return Status(StatusCode::kInvalidArgument, "'" + name + "' is no job's name");
}

Result<JobImage> ReadImageFile(const std::string& path, const std::string& id, int ranks) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxFile));
  Result<JobImage> image = ParseJobImage(text);
  if (!image.ok()) return std::move(image).status().WithContext(path);
  if (image->id == id && image->images.size() == static_cast<size_t>(ranks)) return image;
  return Status(StatusCode::kCorrupt,
                path + ": this is not image " + id + " of a job of " + std::to_string(ranks) + " ranks");
}

}  // namespace

int JobRecord::ranks() const {
  int ranks = 0;
  for (const JobNode& node : nodes) ranks += node.ranks;
  return ranks;
}

std::string JobRecord::TaskOf(int rank) const { return name + "." + std::to_string(rank); }

const JobNode& JobRecord::NodeOf(int rank) const {
  for (const JobNode& node : nodes) {
    if (rank < node.ranks) return node;
    rank -= node.ranks;
  }
  STASIS_CHECK(!"a rank of the job");
  return nodes.back();
}

int JobRecord::LocalRankOf(int rank) const {
  for (const JobNode& node : nodes) {
    if (rank < node.ranks) return rank;
    rank -= node.ranks;
  }
  STASIS_CHECK(!"a rank of the job");
  return 0;
}

Status WriteJobRecord(const std::string& state_dir, const JobRecord& record) {
  RETURN_IF_ERROR(CheckJobName(record.name));
  RETURN_IF_ERROR(CheckNodes(record.nodes));
  RETURN_IF_ERROR(MakeFolders(ImagesFolder(state_dir, record.name)));
  return WriteFileAtomically(RecordPath(state_dir, record.name), JobRecordText(record));
}

Result<JobRecord> ReadJobRecord(const std::string& state_dir, const std::string& job) {
  RETURN_IF_ERROR(CheckJobName(job));
  std::string path = RecordPath(state_dir, job);
  Result<std::string> text = ReadFile(path, kMaxFile);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) {
    return Status(StatusCode::kNotFound, "there is no job " + job);
  }
  if (!text.ok()) return std::move(text).status();
  Result<JobRecord> record = ParseJobRecord(*text);
  if (!record.ok()) return std::move(record).status().WithContext(path);
  if (record->name == job) return record;
  return Status(StatusCode::kCorrupt, path + ": this is the record of another job, " + record->name);
}

std::vector<std::string> ListJobs(const std::string& state_dir) {
  std::vector<std::string> jobs;
  Result<std::vector<std::string>> names = ListFolder(JobsFolder(state_dir));
  if (!names.ok()) return jobs;
  for (const std::string& name : *names) {
    if (IsJobName(name) && Exists(RecordPath(state_dir, name))) jobs.push_back(name);
  }
  return jobs;
}

Result<std::vector<std::string>> ListJobImageIds(const std::string& state_dir, const std::string& job) {
  RETURN_IF_ERROR(CheckJobName(job));
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(ImagesFolder(state_dir, job)));
  std::vector<std::string> ids;
  for (const std::string& name : names) {
    if (!name.ends_with(kSuffix)) continue;
    std::string id = name.substr(0, name.size() - kSuffix.size());
    if (IsImageId(id)) ids.push_back(std::move(id));
  }
  return ids;
}

Result<JobImage> ReadJobImage(const std::string& state_dir, const std::string& job, const std::string& id) {
  ASSIGN_OR_RETURN(JobRecord record, ReadJobRecord(state_dir, job));
  if (!IsImageId(id)) return Status(StatusCode::kInvalidArgument, "an image's id is six digits");
  Result<JobImage> image = ReadImageFile(ImagePath(state_dir, job, id), id, record.ranks());
  if (image.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound, "there is no image " + job + "/" + id);
  return image;
}

Result<std::vector<JobImage>> ListJobImages(const std::string& state_dir, const std::string& job) {
  ASSIGN_OR_RETURN(JobRecord record, ReadJobRecord(state_dir, job));
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListJobImageIds(state_dir, job));
  std::vector<JobImage> images;
  for (const std::string& id : ids) {
    Result<JobImage> image = ReadImageFile(ImagePath(state_dir, job, id), id, record.ranks());
    // Removed since its name was read. That is not to say that the job is not there.
    if (image.status().code() == StatusCode::kNotFound) continue;
    RETURN_IF_ERROR(image.status());
    images.push_back(*std::move(image));
  }
  return images;
}

Status WriteJobImage(const std::string& state_dir, const std::string& job, const JobImage& image) {
  RETURN_IF_ERROR(CheckJobName(job));
  bool good = IsImageId(image.id) && std::all_of(image.images.begin(), image.images.end(), IsImageId);
  if (!good) return Status(StatusCode::kInvalidArgument, "an image's id is six digits");
  RETURN_IF_ERROR(MakeFolders(ImagesFolder(state_dir, job)));
  return WriteFileAtomically(ImagePath(state_dir, job, image.id), JobImageText(image));
}

Status RemoveJobImage(const std::string& state_dir, const std::string& job, const std::string& id) {
  RETURN_IF_ERROR(CheckJobName(job));
  if (!IsImageId(id)) return Status(StatusCode::kInvalidArgument, "an image's id is six digits");
  std::string path = ImagePath(state_dir, job, id);
  if (unlink(path.c_str()) == 0) return SyncFolder(ImagesFolder(state_dir, job));
  if (errno != ENOENT) return ErrnoStatus(errno, "remove " + path);
  return Status(StatusCode::kNotFound, "there is no image " + job + "/" + id);
}

Result<std::vector<JobNode>> ReadNodes(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxFile));
  Result<std::vector<JobNode>> nodes = ParseNodes(text);
  if (!nodes.ok()) return std::move(nodes).status().WithContext(path);
  return nodes;
}

Result<Fd> LockJob(const std::string& run_dir, const std::string& job) {
  RETURN_IF_ERROR(MakeFolders(run_dir + "/jobs"));
  std::string path = run_dir + "/jobs/" + job + ".lock";
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return ErrnoStatus(errno, "open " + path);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + path);
  return Status(StatusCode::kFailedPrecondition, "another operation on job " + job + " is running");
}

}  // namespace stasis

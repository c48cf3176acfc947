#include "dedup/live_chunks.h"

#include <utility>

#include "dedup/image_manifest.h"

namespace stasis {

Result<std::vector<std::string>> ListTaskFolders(FileSystem& files, const std::string& root) {
  ASSIGN_OR_RETURN(std::vector<std::string> tasks, files.List(root + "/images"));
  std::vector<std::string> folders;
  for (const std::string& task : tasks) {
    Status listed = files.List(root + "/images/" + task).status();
    if (listed.ok()) folders.push_back(task);
    if (!listed.ok() && listed.code() != StatusCode::kInvalidArgument) return listed;
  }
  return folders;
}

Result<std::vector<std::string>> ListManifests(FileSystem& files, const std::string& root) {
  std::vector<std::string> manifests;
  ASSIGN_OR_RETURN(std::vector<std::string> tasks, ListTaskFolders(files, root));
  for (const std::string& task : tasks) {
    ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(root + "/images/" + task));
    for (const std::string& name : names) {
      if (name.ends_with(".image")) manifests.push_back("images/" + task + "/" + name);
    }
  }
  return manifests;
}

Result<LiveChunks::Content> LiveChunks::LookAt(const std::string& path) const {
  ASSIGN_OR_RETURN(std::unique_ptr<StoreFile> file, files_.Open(path));
  Content content;
  ASSIGN_OR_RETURN(content.first, file->Size());
  if (content.first < sizeof content.second) return Status(StatusCode::kCorrupt, "too short for a manifest");
  auto sum = std::as_writable_bytes(std::span(&content.second, 1));
  RETURN_IF_ERROR(file->ReadAt(sum, content.first - sum.size()));
  return content;
}

Status LiveChunks::Update() {
  ASSIGN_OR_RETURN(std::vector<std::string> manifests, ListManifests(files_, root_));
  for (const std::string& name : manifests) {
    const std::string path = root_ + "/" + name;
    Status status = [&]() -> Status {
      ASSIGN_OR_RETURN(Content content, LookAt(path));
      auto known = read_.find(name);
      if (known != read_.end() && known->second == content) return Status();
      ASSIGN_OR_RETURN(StoredManifest manifest, ReadStoredManifest(files_, path));
      live_.insert(manifest.names.begin(), manifest.names.end());
      read_[name] = content;
      return Status();
    }();
    if (status.ok() || status.code() == StatusCode::kNotFound) continue;  // removed meanwhile
    if (status.code() != StatusCode::kCorrupt && status.code() != StatusCode::kUnsupported) return status;
    return Errorf(StatusCode::kFailedPrecondition,
                  "%s cannot be read, so what it needs is not known: %s; remove or repair it first",
                  name.c_str(), status.ToString().c_str());
  }
  return Status();
}

}  // namespace stasis

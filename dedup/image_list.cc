#include <cstdio>
#include <cstdlib>

#include "base/files.h"
#include "dedup/image.h"
#include "dedup/image_manifest.h"

namespace stasis {
namespace {

constexpr std::string_view kSuffix = ".image";
constexpr unsigned long kLastId = 999999;

}  // namespace

Result<std::vector<std::string>> ListImages(Store& store, const std::string& task) {
  if (!IsPlainName(task)) return Status(StatusCode::kInvalidArgument, "'" + task + "' is no task's name");
  ASSIGN_OR_RETURN(std::vector<std::string> names, store.files().List(store.root() + "/images/" + task));
  std::vector<std::string> ids;
  for (const std::string& name : names) {
    if (!name.ends_with(kSuffix)) continue;
    std::string id = name.substr(0, name.size() - kSuffix.size());
    if (IsImageId(id)) ids.push_back(std::move(id));
  }
  return ids;
}

Result<std::vector<std::string>> ListImageTasks(Store& store) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, store.files().List(store.root() + "/images"));
  std::vector<std::string> tasks;
  for (const std::string& name : names) {
    if (!IsPlainName(name)) continue;
    ASSIGN_OR_RETURN(std::vector<std::string> ids, ListImages(store, name));
    if (!ids.empty()) tasks.push_back(name);
  }
  return tasks;
}

Result<std::string> NextImageId(Store& store, const std::string& task) {
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListImages(store, task));
  return ids.empty() ? std::string("000001") : ImageIdAfter(ids.back());
}

Result<std::string> ImageIdAfter(const std::string& id) {
  unsigned long last = std::strtoul(id.c_str(), nullptr, 10);
  if (last >= kLastId) return Status(StatusCode::kResourceExhausted, "image ids are used up");
  char text[8];
  std::snprintf(text, sizeof text, "%06lu", last + 1);
  return std::string(text);
}

Status RemoveImage(Store& store, const std::string& task, const std::string& id) {
  ASSIGN_OR_RETURN(std::string path, ManifestPath(store.root(), task, id));
  if (!store.files().Exists(path)) {
    return Status(StatusCode::kNotFound, "there is no image " + task + "/" + id);
  }
  RETURN_IF_ERROR(store.files().Remove(path));
  return store.files().SyncFolder(store.root() + "/images/" + task);
}

Status RefuseFolderImage(const std::string& folder, const std::string& id) {
  if (!IsImageId(id) || !Exists(folder + "/" + id + "/manifest.json")) return Status();
  return Errorf(StatusCode::kUnsupported,
                "image %s in %s has image format version 1 (a folder), this program reads version %u",
                id.c_str(), folder.c_str(), kImageVersion);
}

}  // namespace stasis

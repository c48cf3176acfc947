#include "coordinator/node/image_names.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

namespace stasis {
namespace {

constexpr std::string_view kSuffix = ".image";
constexpr size_t kMaxId = 48;

std::string Canonical(const std::string& path) {
  std::error_code error;
  return std::filesystem::canonical(path, error).string();
}

bool IsBelow(const std::string& path, const std::string& folder) {
  return !folder.empty() && path.starts_with(folder + "/");
}

// "TASK/ID" for the path of a manifest.
Result<std::string> NameOfPath(const std::string& text, const Folders& folders) {
  std::string path = Canonical(text), images = Canonical(StoreRoot(folders) + "/images");
  if (IsBelow(path, Canonical(folders.state + "/images"))) {
    return Status(StatusCode::kUnsupported,
                  path + " is an image of format version 1: this version of stasis does not read it");
  }
  if (!IsBelow(path, images) || !path.ends_with(kSuffix)) {
    return Status(StatusCode::kUnsupported, path + " is not an image below " + StoreRoot(folders) +
                                                "/images: `stasis images import` takes exported files in");
  }
  return path.substr(images.size() + 1, path.size() - images.size() - 1 - kSuffix.size());
}

bool ExistsWithSlash(const std::string& text) {
  struct stat info {};
  return text.find('/') != std::string::npos && stat(text.c_str(), &info) == 0;
}

Status CheckId(const std::string& id) {
  Status good = CheckTaskName(id);
  if (good.ok() && id.size() <= kMaxId) return Status();
  return Errorf(StatusCode::kInvalidArgument, "'%.*s' is no id of an image: six digits, as 000001",
                static_cast<int>(std::min<size_t>(id.size(), 200)), id.data());
}

StoreOptions OptionsOf(const Folders& folders) {
  StoreOptions options;
  options.keys = folders.state;
  return options;
}

}  // namespace

Result<ImageName> ParseImageName(const std::string& text, const Folders& folders) {
  std::string name = text;
  if (ExistsWithSlash(text)) {
    ASSIGN_OR_RETURN(name, NameOfPath(text, folders));
  }
  size_t slash = name.find('/');
  ImageName image{name.substr(0, slash), slash == std::string::npos ? "" : name.substr(slash + 1)};
  RETURN_IF_ERROR(CheckTaskName(image.task));
  if (slash != std::string::npos) RETURN_IF_ERROR(CheckId(image.id));
  return image;
}

std::string StoreRoot(const Folders& folders) { return folders.state + "/store"; }

Result<std::shared_ptr<Store>> OpenStore(const Folders& folders) {
  if (!RealFileSystem().Exists(StoreRoot(folders) + "/format")) {
    return Status(StatusCode::kNotFound, "there is no image at " + StoreRoot(folders));
  }
  return Store::Open(StoreRoot(folders), OptionsOf(folders));
}

Result<std::shared_ptr<Store>> OpenOrCreateStore(const Folders& folders) {
  return Store::Open(StoreRoot(folders), OptionsOf(folders));
}

bool IsCheckpointId(const std::string& id) {
  return id.size() == 6 && id.find_first_not_of("0123456789") == std::string::npos;
}

Result<std::vector<std::string>> ListAllIds(Store& store, const std::string& task) {
  ASSIGN_OR_RETURN(std::vector<std::string> files, store.files().List(store.root() + "/images/" + task));
  std::vector<std::string> ids;
  for (const std::string& file : files) {
    if (!file.ends_with(kSuffix)) continue;
    std::string id = file.substr(0, file.size() - kSuffix.size());
    if (CheckId(id).ok()) ids.push_back(std::move(id));
  }
  return ids;
}

Result<std::vector<std::string>> ListStoredTasks(Store& store) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, store.files().List(store.root() + "/images"));
  std::vector<std::string> tasks;
  for (const std::string& name : names) {
    if (!CheckTaskName(name).ok()) continue;
    ASSIGN_OR_RETURN(std::vector<std::string> ids, ListAllIds(store, name));
    if (!ids.empty()) tasks.push_back(name);
  }
  return tasks;
}

Status RefuseOldImage(const ImageName& name, const Folders& folders) {
  return name.id.empty() ? Status() : RefuseFolderImage(folders.state + "/images/" + name.task, name.id);
}

Result<std::unique_ptr<ImageReader>> OpenImage(const ImageName& name, const Folders& folders) {
  RETURN_IF_ERROR(RefuseOldImage(name, folders));
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, OpenStore(folders));
  std::string id = name.id;
  if (id.empty()) {
    ASSIGN_OR_RETURN(std::vector<std::string> ids, ListImages(*store, name.task));
    if (ids.empty()) return Status(StatusCode::kNotFound, "task " + name.task + " has no image");
    id = ids.back();
  }
  return ImageReader::Open(store, name.task, id);
}

std::vector<std::string> ListOldImages(const Folders& folders) {
  std::vector<std::string> images;
  std::string root = folders.state + "/images";
  Result<std::vector<std::string>> tasks = ListFolder(root);
  for (size_t i = 0; tasks.ok() && i < tasks->size(); i++) {
    Result<std::vector<std::string>> ids = ListFolder(root + "/" + (*tasks)[i]);
    for (size_t j = 0; ids.ok() && j < ids->size(); j++) {
      if (IsCheckpointId((*ids)[j])) images.push_back((*tasks)[i] + "/" + (*ids)[j]);
    }
  }
  return images;
}

std::string OldImagesNote(const Folders& folders) {
  std::vector<std::string> images = ListOldImages(folders);
  if (images.empty()) return "";
  std::string list = images[0];
  for (size_t i = 1; i < images.size() && i < 3; i++) list += ", " + images[i];
  if (images.size() > 3) list += ", ...";
  return std::to_string(images.size()) + " of format version 1, which this version does not read, in " +
         folders.state + "/images: " + list + "; `stasis rm TASK`, or remove the folders";
}

}  // namespace stasis

#include "coordinator/node/layout.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/fd.h"

namespace stasis {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  if (error) return path;
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

std::string DefaultState() {
  if (geteuid() == 0) return "/var/lib/stasis";
  std::string base = Variable("XDG_STATE_HOME");
  return (base.empty() ? Variable("HOME") + "/.local/state" : base) + "/stasis";
}

std::string DefaultRun() {
  if (geteuid() == 0) return "/run/stasis";
  std::string base = Variable("XDG_RUNTIME_DIR");
  return base.empty() ? "/tmp/stasis-" + std::to_string(geteuid()) : base + "/stasis";
}

Status WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write");
    text.remove_prefix(static_cast<size_t>(written));
  }
  return Status();
}

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

Folders FindFolders() {
  std::string state = Variable("STASIS_STATE_DIR"), run = Variable("STASIS_RUN_DIR");
  return {Absolute(state.empty() ? DefaultState() : state), Absolute(run.empty() ? DefaultRun() : run)};
}

TaskPaths::TaskPaths(const Folders& folders, std::string_view task_name)
    : name(task_name),
      folder(folders.state + "/tasks/" + name),
      old_images(folders.state + "/images/" + name),
      run(folders.run + "/tasks/" + name),
      ctl(run + "/ctl"),
      ghost_socket(run + "/ghost.sock") {}

std::vector<std::string> ListTasks(const Folders& folders) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir((folders.state + "/tasks").c_str()), closedir);
  while (dirent* entry = folder == nullptr ? nullptr : readdir(folder.get())) {
    if (CheckTaskName(entry->d_name).ok()) names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) return Status(StatusCode::kCorrupt, path + " is not a JSON object");
  return value;
}

Status WriteJson(const std::string& path, const Json& value) {
  std::string temporary = path + ".new";
  Fd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return ErrnoStatus(errno, temporary);
  std::string text = value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  RETURN_IF_ERROR(WriteAll(file.get(), text).WithContext(temporary));
  if (rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "replace " + path);
  return Status();
}

std::string TextField(const Json& object, const char* key, std::string_view fallback) {
  const Json* found = Find(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : std::string(fallback);
}

int64_t IntegerField(const Json& object, const char* key, int64_t fallback) {
  const Json* found = Find(object, key);
  return found != nullptr && found->is_number_integer() ? found->get<int64_t>() : fallback;
}

double NumberField(const Json& object, const char* key, double fallback) {
  const Json* found = Find(object, key);
  return found != nullptr && found->is_number() ? found->get<double>() : fallback;
}

bool BoolField(const Json& object, const char* key, bool fallback) {
  const Json* found = Find(object, key);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : fallback;
}

std::vector<int> IntegersField(const Json& object, const char* key) {
  const Json* found = Find(object, key);
  std::vector<int> values;
  if (found == nullptr || !found->is_array()) return values;
  for (const Json& value : *found) {
    if (value.is_number_integer()) values.push_back(value.get<int>());
  }
  return values;
}

std::vector<std::string> TextsField(const Json& object, const char* key) {
  const Json* found = Find(object, key);
  std::vector<std::string> values;
  if (found == nullptr || !found->is_array()) return values;
  for (const Json& value : *found) {
    if (value.is_string()) values.push_back(value.get<std::string>());
  }
  return values;
}

}  // namespace stasis

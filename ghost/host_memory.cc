#include "ghost/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

#include "base/files.h"
#include "ghost/holdings.h"

namespace stasis {
namespace {

constexpr size_t kMaxFile = 1 << 20;

// Names of the files of the two versions of control groups.
struct Version {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // of memory.stat: what the group's file cache gives up by itself
};
constexpr Version kV1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "};
constexpr Version kV2 = {"/memory.max", "/memory.current", "inactive_file "};

struct Group {
  std::string mount;
  std::string path;  // below the mount
  const Version* version;
};

std::string TextOf(const std::string& path) {
  Result<std::string> text = ReadFile(path, kMaxFile);
  return text.ok() ? *text : std::string();
}

// The number after `key` at the beginning of a line.
std::optional<uint64_t> NumberIn(const std::string& text, const char* key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const char* digits = line.c_str() + std::strlen(key);
    char* end = nullptr;
    const uint64_t value = std::strtoull(digits, &end, 10);
    if (end != digits) return value;
  }
  return std::nullopt;
}

bool Lists(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

std::string MountOf(const std::string& mounts, bool v2) {
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string device, folder, type, options;
    in >> device >> folder >> type >> options;
    if (v2 ? type == "cgroup2" : type == "cgroup" && Lists(options, "memory")) return folder;
  }
  return "";
}

std::vector<Group> GroupsOf(const std::string& proc) {
  std::vector<Group> groups;
  const std::string mounts = TextOf(proc + "/self/mounts");
  std::istringstream lines(TextOf(proc + "/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && !Lists(controllers, "memory")) continue;
    const std::string mount = MountOf(mounts, v2);
    if (!mount.empty()) groups.push_back({mount, line.substr(second + 1), v2 ? &kV2 : &kV1});
  }
  return groups;
}

std::optional<uint64_t> LeftIn(const std::string& folder, const Version& version) {
  const std::optional<uint64_t> limit = NumberIn(TextOf(folder + version.limit), "");
  const std::optional<uint64_t> usage = NumberIn(TextOf(folder + version.usage), "");
  if (!limit || !usage) return std::nullopt;
  const uint64_t cache = NumberIn(TextOf(folder + "/memory.stat"), version.reclaimable).value_or(0);
  const uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

}  // namespace

HostRoom FreeHostRoom(const std::string& proc) {
  HostRoom room;
  room.bytes = NumberIn(TextOf(proc + "/meminfo"), "MemAvailable:").value_or(0) * 1024;
  for (const Group& group : GroupsOf(proc)) {
    // Each group above it limits it, too.
    for (std::string path = group.path;; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      const std::string folder = group.mount + path;
      const std::optional<uint64_t> left = LeftIn(folder, *group.version);
      if (left && *left < room.bytes) room = {*left, folder};
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return room;
}

Status CheckHostRoom(uint64_t bytes, const HostRoom& room) {
  if (bytes <= room.bytes) return Status();
  const std::string limit =
      room.limited_by.empty() ? "this machine" : "the limit of control group " + room.limited_by;
  return Status(StatusCode::kResourceExhausted, "the device memory needs " + SizeText(bytes) +
                                                    " of host memory, and " + limit + " leaves " +
                                                    SizeText(room.bytes));
}

}  // namespace stasis

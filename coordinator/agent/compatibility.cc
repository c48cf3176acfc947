#include "coordinator/agent/compatibility.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>

#include "coordinator/node/criu_program.h"
#include "coordinator/node/image_device_needs.h"
#include "ghost/proc.h"
#include "ghost/programs.h"

namespace stasis {
namespace {

std::string CriuHere() {
  std::string path = FindCriu();
  if (path.empty()) return "";
  Result<SubprocessResult> ran = RunCriu(path, {"--version"});
  if (!ran.ok()) return "";
  constexpr std::string_view kVersion = "Version: ";
  size_t at = ran->output.find(kVersion);
  if (at == std::string::npos) return "";
  at += kVersion.size();
  return ran->output.substr(at, ran->output.find_first_of(" \n", at) - at);
}

// Regular files that the tree has open, but for the task's own.
Result<std::vector<ManifestFile>> FilesOf(const std::vector<pid_t>& tree, const std::string& log) {
  std::map<std::string, ManifestFile> files;
  for (pid_t pid : tree) {
    ASSIGN_OR_RETURN(const std::vector<ProcFd> fds, FdsOf(pid));
    for (const ProcFd& fd : fds) {
      struct stat info {};
      const std::string& path = fd.target;
      if (!path.starts_with("/") || path == log || path.ends_with(" (deleted)")) continue;
      if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      ManifestFile& file = files[path];
      file.path = path;
      file.size = static_cast<uint64_t>(info.st_size);
      file.writable = file.writable || (FdFlags(pid, fd.fd) & O_ACCMODE) != O_RDONLY;
    }
  }
  std::vector<ManifestFile> list;
  for (auto& [path, file] : files) list.push_back(std::move(file));
  return list;
}

// By the ordinal that the task sees, of those that it is likely to use: of a rank the one of its number.
std::map<int, int> PlacesOf(const TaskFacts& facts, const TaskConfig& config) {
  std::vector<int> places = IntegersField(facts.status, "gpus");
  if (places.empty()) places = IntegersField(facts.task, "gpus");
  std::map<int, int> used;
  if (config.rank) {
    const size_t rank = static_cast<size_t>(config.rank->rank);
    used[config.rank->rank] = rank < places.size() ? places[rank] : config.rank->rank;
    return used;
  }
  if (places.empty()) places = {0};
  for (size_t i = 0; i < places.size(); ++i) used[static_cast<int>(i)] = places[i];
  return used;
}

// One process's memory, on the task's devices in equal parts: more is not known without an image.
ManifestMember DescribeMember(const Json& member, const std::map<int, int>& places,
                              const DriverInfo& driver) {
  ManifestMember described;
  described.nspid = static_cast<pid_t>(IntegerField(member, "nspid"));
  described.driver_version = driver.version;
  if (TextField(member, "strategy") == TaskStrategyName(TaskStrategy::kDriverCheckpoint))
    described.strategy = TaskStrategy::kDriverCheckpoint;
  const uint64_t bytes = static_cast<uint64_t>(std::max<int64_t>(0, IntegerField(member, "allocated_bytes")));
  const uint64_t part = bytes / places.size();
  for (const auto& [ordinal, place] : places) {
    TaskDevice device;
    device.virtual_ordinal = ordinal;
    device.physical_ordinal = place;
    device.used = true;
    const size_t physical = static_cast<size_t>(place);
    if (physical < driver.devices.size()) {
      device.name = driver.devices[physical].name;
      device.total_memory = driver.devices[physical].memory;
      device.compute_capability = static_cast<uint32_t>(driver.devices[physical].capability);
    }
    device.uuid = std::string(16, '\0');
    described.devices.push_back(device);
    const uint64_t id = static_cast<uint64_t>(ordinal) + 1;
    if (part > 0)
      described.extents.push_back({id, ordinal, id << 44, std::min<uint64_t>(part, 1ull << 44), 0, 0});
  }
  return described;
}

std::vector<ManifestMember> DescribeMembers(const TaskFacts& facts, const Json& status, const Site& site) {
  Result<TaskConfig> config = ParseTaskConfig(facts.task);
  if (!config.ok()) return {};
  Result<DriverInfo> driver = ProbeTaskDriver(*config, site);
  std::vector<ManifestMember> members;
  auto listed = status.find("members");
  if (listed == status.end() || !listed->is_array() || !driver.ok()) return {};
  for (const Json& member : *listed) {
    if (member.is_object()) members.push_back(DescribeMember(member, PlacesOf(facts, *config), *driver));
  }
  return members;
}

v1::Refusal Refuse(const std::string& task, const std::string& what, const std::string& needed,
                   const std::string& here) {
  v1::Refusal refusal;
  refusal.set_task(task);
  refusal.set_what(what);
  refusal.set_needed(needed);
  refusal.set_here(here);
  return refusal;
}

// By the ordinal that the program sees: bytes.
std::map<int, uint64_t> UsedBytes(const Manifest& manifest) {
  std::map<int, uint64_t> bytes;
  for (const ManifestMember& member : manifest.members) {
    for (const TaskExtent& extent : member.extents) bytes[extent.device] += extent.size;
    for (const TaskDevice& device : member.devices) {
      if (device.used) bytes[device.virtual_ordinal] += 0;
    }
  }
  return bytes;
}

int PlaceOf(const Manifest& manifest, int ordinal) {
  for (const ManifestMember& member : manifest.members) {
    for (const TaskDevice& device : member.devices) {
      if (device.virtual_ordinal == ordinal) return device.physical_ordinal;
    }
  }
  return ordinal;
}

// Where the devices that it uses are, in the order of the ordinals that it sees.
std::vector<int> PlacesIn(const Manifest& manifest) {
  std::vector<int> places;
  for (const auto& [ordinal, bytes] : UsedBytes(manifest)) places.push_back(PlaceOf(manifest, ordinal));
  return places;
}

std::vector<int> ShareOf(const std::vector<int>& wanted, size_t rank, size_t ranks) {
  const size_t each = wanted.size() / ranks;
  if (each == 0) return wanted;
  auto first = wanted.begin() + static_cast<ptrdiff_t>(each * rank);
  return {first, first + static_cast<ptrdiff_t>(each)};
}

std::vector<uint64_t> FreeByOrdinal(const DevicesHere& devices) {
  std::vector<uint64_t> free;
  if (!devices.driver.ok()) return free;
  for (const DriverDevice& device : devices.driver->devices) {
    auto found = devices.free.find(device.uuid);
    free.push_back(found == devices.free.end() ? device.memory : found->second);
  }
  return free;
}

int ChoosePlace(int before, uint64_t bytes, const std::vector<uint64_t>& free, const std::set<int>& taken) {
  auto fits = [&](int place) {
    return place >= 0 && static_cast<size_t>(place) < free.size() && !taken.contains(place) &&
           free[static_cast<size_t>(place)] >= bytes;
  };
  if (fits(before)) return before;
  int best = before;
  uint64_t most = 0;
  for (int place = 0; static_cast<size_t>(place) < free.size(); ++place) {
    if (!fits(place) || (best != before && free[static_cast<size_t>(place)] <= most)) continue;
    best = place;
    most = free[static_cast<size_t>(place)];
  }
  return best;
}

}  // namespace

Result<Manifest> DescribeRunning(const TaskFacts& facts, const TaskPaths& paths, const Json& status,
                                 const Manifest* last, const Site& site) {
  Manifest manifest;
  manifest.task = facts.task;
  manifest.created = static_cast<uint64_t>(time(nullptr));
  manifest.kernel = KernelRelease();
  manifest.machine = MachineName();
  manifest.criu = CriuHere();
  manifest.cpu_features = CpuFeatures();
  manifest.log = TextField(facts.task, "log");
  manifest.run = paths.run;
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(IdentityOf(facts.process).pid));
  std::string remedy;
  ASSIGN_OR_RETURN(manifest.programs, ProgramsOf(tree, &remedy));
  ASSIGN_OR_RETURN(manifest.files, FilesOf(tree, manifest.log));
  // What the interposer holds open for its ghost is not in an image.
  std::erase_if(manifest.files, [&](const auto& file) { return file.path.starts_with(paths.run + "/"); });
  manifest.members = last != nullptr ? last->members : DescribeMembers(facts, status, site);
  for (ManifestMember& member : manifest.members) {
    member.ranges.clear();
    member.stream.clear();
  }
  return manifest;
}

std::vector<int> PlaceDevices(const std::vector<int>& wanted, std::vector<uint64_t>* free,
                              Manifest* manifest) {
  std::vector<int> places;
  std::map<int, int> by_ordinal;
  std::set<int> taken;
  for (const auto& [ordinal, bytes] : UsedBytes(*manifest)) {
    int place = places.size() < wanted.size() ? wanted[places.size()]
                                              : ChoosePlace(PlaceOf(*manifest, ordinal), bytes, *free, taken);
    if (static_cast<size_t>(place) < free->size()) {
      uint64_t& left = (*free)[static_cast<size_t>(place)];
      left -= std::min(left, bytes);
    }
    taken.insert(place);
    places.push_back(place);
    by_ordinal[ordinal] = place;
  }
  // For what it uses without our knowledge, or later.
  for (size_t i = places.size(); i < wanted.size(); ++i) places.push_back(wanted[i]);
  for (ManifestMember& member : manifest->members) {
    for (TaskDevice& device : member.devices) {
      auto found = by_ordinal.find(device.virtual_ordinal);
      if (found != by_ordinal.end()) device.physical_ordinal = found->second;
    }
  }
  return places;
}

Fit CheckFits(std::vector<Arriving> ranks, const std::vector<int>& wanted, const Site& site, Room room) {
  Fit fit;
  if (ranks.empty()) return fit;
  bool elsewhere = false;
  DevicesHere devices = LookForDevices(ranks.front().config, site);
  if (room == Room::kEver && devices.driver.ok()) {
    for (const DriverDevice& device : devices.driver->devices) devices.free[device.uuid] = device.memory;
  }
  std::vector<uint64_t> free = FreeByOrdinal(devices);
  // Also where it is not known yet which of them the job uses.
  for (int gpu : wanted) {
    if (!devices.driver.ok() || static_cast<size_t>(gpu) < free.size()) continue;
    fit.refused.push_back(
        Refuse("", "devices", fmt::format("device {}", gpu), fmt::format("{} devices", free.size())));
  }
  std::set<std::string> told;
  for (Arriving& rank : ranks) {
    // What is left for it after those before it.
    for (size_t i = 0; i < free.size(); ++i) {
      auto found = devices.free.find(devices.driver->devices[i].uuid);
      if (found != devices.free.end()) found->second = free[i];
    }
    const std::vector<int> before = PlacesIn(rank.manifest);
    const std::vector<int> share = ShareOf(wanted, fit.gpus.size(), ranks.size());
    if (const size_t sees = rank.config.gpus.size(); sees != 0 && share.size() > sees)
      fit.refused.push_back(Refuse(rank.task, "devices", fmt::format("at most {}, as many as it sees", sees),
                                   fmt::format("{} named", share.size())));
    fit.gpus.push_back(PlaceDevices(share, &free, &rank.manifest));
    elsewhere = elsewhere || fit.gpus.back() != before;
    for (const Need& need : NeedsOf(rank.manifest, rank.config, rank.task, devices, site)) {
      if (need.what == "task") continue;
      if (need.met == Met::kYes || !told.insert(need.what + need.needed).second) continue;
      if (need.met == Met::kNo)
        fit.refused.push_back(Refuse(rank.task, need.what, need.needed, need.here));
      else
        fit.notes.push_back(fmt::format("{}: {}: {}", need.what, need.needed, need.here));
    }
  }
  // Where it was is what a restore does that is not told.
  if (!elsewhere && wanted.empty()) fit.gpus.assign(ranks.size(), {});
  return fit;
}

}  // namespace stasis

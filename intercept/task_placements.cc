#include "intercept/task_placements.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/files.h"
#include "intercept/process.h"
#include "intercept/visible_devices.h"
#include "vmm/device_map.h"

namespace stasis {
namespace {

constexpr size_t kMaxFile = 1 << 16;
constexpr int kMaxOrdinal = 1024;

std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

// A row of a device that was named before anybody has looked at it.
constexpr char kAnyUuid[] = "-";

// The devices get them in their order; one that is on another's changes places with it.
std::vector<TaskAttach::Placement> InOrder(const std::vector<int>& ordinals,
                                           const std::vector<TaskDevice>& devices) {
  std::vector<TaskAttach::Placement> placements;
  for (const TaskDevice& device : devices)
    placements.push_back({device.virtual_ordinal, device.physical_ordinal});
  for (size_t i = 0; i < std::min(ordinals.size(), placements.size()); ++i) {
    for (TaskAttach::Placement& other : placements)
      if (other.physical_ordinal == ordinals[i]) other.physical_ordinal = placements[i].physical_ordinal;
    placements[i].physical_ordinal = ordinals[i];
  }
  return placements;
}

struct Row {
  std::string uuid;
  int ordinal = -1;
  std::string now;  // empty: not named
};

std::vector<Row> RowsOf(std::string_view text) {
  std::vector<Row> rows;
  const std::string lines(text);
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    char uuid[65] = {}, now[65] = {};
    int ordinal = -1;
    const int fields = std::sscanf(lines.substr(at, end - at).c_str(), "%64s %d %64s", uuid, &ordinal, now);
    if (fields >= 2 && ordinal >= 0 && ordinal < kMaxOrdinal) rows.push_back({uuid, ordinal, now});
    at = end + 1;
  }
  return rows;
}

}  // namespace

std::vector<TaskAttach::Placement> PlacementsIn(std::string_view text,
                                                const std::vector<TaskDevice>& devices) {
  const std::vector<Row> rows = RowsOf(text);
  std::vector<int> named;
  for (const Row& row : rows)
    if (row.uuid == kAnyUuid) named.push_back(row.ordinal);
  if (!named.empty()) return InOrder(named, devices);
  std::vector<TaskAttach::Placement> placements;
  for (const TaskDevice& device : devices)
    for (const Row& row : rows)
      if (row.uuid == Hex(device.uuid)) placements.push_back({device.virtual_ordinal, row.ordinal});
  if (!placements.empty() || rows.size() != devices.size()) return placements;
  for (size_t i = 0; i < rows.size(); ++i)
    placements.push_back({devices[i].virtual_ordinal, rows[i].ordinal});
  return placements;
}

bool AreWhereTheyWere(std::string_view text, const std::vector<TaskDevice>& devices) {
  const std::vector<Row> rows = RowsOf(text);
  for (const TaskAttach::Placement& now : PlacementsIn(text, devices)) {
    const TaskDevice& device = devices[static_cast<size_t>(now.virtual_ordinal)];
    const auto stays = [&](const Row& row) {
      return row.uuid == Hex(device.uuid) && row.now == row.uuid && row.ordinal == device.physical_ordinal;
    };
    if (std::none_of(rows.begin(), rows.end(), stays)) return false;
  }
  return true;
}

Status FollowTask() {
  Result<std::string> text = ReadFile(TaskFolder() + "/" + kPlacementsFile, kMaxFile);
  if (!text.ok()) return {};
  const std::vector<TaskAttach::Placement> placements = PlacementsIn(*text, VisibleDevices());
  if (placements.empty()) return {};
  RETURN_IF_ERROR(PlaceDevices(placements));
  KeepDeviceIdentities();
  return {};
}

}  // namespace stasis

#include "ghost/place_devices.h"

#include <algorithm>
#include <set>

namespace stasis {
namespace {

Status CheckNames(const PlaceRequest& request) {
  const std::vector<int>& gpus = request.gpus;
  if (gpus.size() > request.devices.size()) {
    return Errorf(StatusCode::kInvalidArgument, "the task sees %zu devices, %zu are named",
                  request.devices.size(), gpus.size());
  }
  for (int gpu : gpus) {
    if (std::count(gpus.begin(), gpus.end(), gpu) != 1)
      return Errorf(StatusCode::kInvalidArgument, "device %d is named twice", gpu);
    if (gpu >= request.count)
      return Errorf(StatusCode::kNotFound, "there is no device %d; devices here: %d, from 0 on", gpu,
                    request.count);
  }
  return Status();
}

std::vector<TaskDevice> InTurn(const PlaceRequest& request) {
  std::vector<TaskDevice> devices = request.devices;
  if (request.gpus.size() < devices.size())
    std::stable_partition(devices.begin(), devices.end(), [](const TaskDevice& d) { return d.used; });
  return devices;
}

Status Gone(const PlaceRequest& request, const TaskDevice& device) {
  return Errorf(StatusCode::kNotFound, "device %d of the task was on device %d, and there are only %d",
                device.virtual_ordinal, request.now.at(device.virtual_ordinal), request.count);
}

}  // namespace

Result<Placements> PlaceDevices(const PlaceRequest& request) {
  RETURN_IF_ERROR(CheckNames(request));
  std::vector<TaskDevice> devices = InTurn(request);
  Placements placements;
  for (size_t i = 0; i < request.gpus.size(); ++i) placements[devices[i].virtual_ordinal] = request.gpus[i];
  std::set<int> left;  // earlier places that nobody has been given
  for (auto [ordinal, physical] : request.now) {
    bool named = std::count(request.gpus.begin(), request.gpus.end(), physical) != 0;
    if (!named && physical < request.count) left.insert(physical);
  }
  for (size_t i = request.gpus.size(); i < devices.size(); ++i) {
    int ordinal = devices[i].virtual_ordinal, physical = request.now.at(ordinal);
    if (left.erase(physical) != 0) placements[ordinal] = physical;
  }
  for (const TaskDevice& device : devices) {
    if (placements.count(device.virtual_ordinal) != 0) continue;
    if (device.used && request.gpus.empty()) return Gone(request, device);
    if (!left.empty()) {
      placements[device.virtual_ordinal] = *left.begin();
      left.erase(left.begin());
    } else if (!device.used && request.may_share) {
      placements[device.virtual_ordinal] = placements.empty() ? 0 : placements[devices[0].virtual_ordinal];
    } else if (request.gpus.empty()) {
      return Gone(request, device);
    } else {
      return Status(StatusCode::kInvalidArgument, "too few devices are named");
    }
  }
  return placements;
}

Status CheckMovesDevices(int driver_version) {
  constexpr int kFirst = 13000;
  if (driver_version >= kFirst) return Status();
  return Errorf(
      StatusCode::kUnsupported,
      "the driver (CUDA %d.%d) brings processes back on the devices that they were on; release 580 (CUDA "
      "13.0) and newer ones on others, too",
      driver_version / 1000, driver_version % 1000 / 10);
}

std::vector<DeviceMove> MapDevices(const std::vector<std::string>& were,
                                   const std::vector<std::string>& wanted,
                                   const std::vector<std::string>& here) {
  std::vector<std::string> free = here;
  std::vector<std::string> now = wanted;
  now.resize(were.size());
  const auto take = [&](size_t i, const std::string& uuid) {
    now[i] = uuid;
    std::erase(free, uuid);
  };
  for (const std::string& uuid : wanted) std::erase(free, uuid);
  for (size_t i = wanted.size(); i < were.size(); ++i)
    if (std::count(free.begin(), free.end(), were[i]) != 0) take(i, were[i]);
  for (size_t i = wanted.size(); i < were.size() && !free.empty(); ++i)
    if (now[i].empty()) take(i, std::string(free.front()));
  std::vector<DeviceMove> moves;
  for (size_t i = 0; i < were.size(); ++i)
    if (!now[i].empty()) moves.push_back({were[i], now[i]});
  const bool all_stay = std::all_of(moves.begin(), moves.end(),
                                    [](const DeviceMove& move) { return move.old_uuid == move.new_uuid; });
  return all_stay ? std::vector<DeviceMove>() : moves;
}

}  // namespace stasis

#include "softgpu/driver/settings.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace softgpu {

using stasis::Errorf;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

constexpr unsigned kMaxSms = 1024;
constexpr unsigned kMaxIdleExit = 1000000;  // what softgpud takes

Status ReadSwitch(const char* name, bool* value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return Status();
  if (std::strcmp(text, "0") != 0 && std::strcmp(text, "1") != 0) {
    return Errorf(StatusCode::kInvalidArgument, "%s must be 0 or 1, not '%s'", name, text);
  }
  *value = *text == '1';
  return Status();
}

// Unset or empty leaves *value as it is.
Status ReadNumber(const char* name, unsigned minimum, unsigned maximum, unsigned* value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return Status();
  unsigned number = 0;
  const char* end = text + std::strlen(text);
  auto [rest, error] = std::from_chars(text, end, number);
  if (error != std::errc() || rest != end || number < minimum || number > maximum) {
    return Errorf(StatusCode::kInvalidArgument, "%s must be a number from %u to %u, not '%s'", name, minimum,
                  maximum, text);
  }
  *value = number;
  return Status();
}

std::string UuidHex(const DeviceInfo& device) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < device.uuid.size(); i++) {
    text += kDigits[device.uuid[i] >> 4];
    text += kDigits[device.uuid[i] & 15];
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

bool NamesDevice(std::string_view entry, size_t index, const DeviceInfo& device) {
  if (entry.substr(0, 4) == "GPU-") {
    return entry.size() > 4 &&
           strncasecmp(UuidHex(device).c_str(), std::string(entry).c_str(), entry.size()) == 0;
  }
  size_t number = 0;
  auto [rest, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  return error == std::errc() && rest == entry.data() + entry.size() && number == index;
}

}  // namespace

Result<Settings> ReadSettings() {
  Settings settings;
  if (const char* socket = std::getenv("SOFTGPU_SOCKET")) settings.socket = socket;
  RETURN_IF_ERROR(ReadSwitch("SOFTGPU_AUTOSTART", &settings.autostart));
  RETURN_IF_ERROR(ReadSwitch("SOFTGPU_LOG", &settings.log));
  RETURN_IF_ERROR(ReadNumber("SOFTGPU_SMS", 1, kMaxSms, &settings.sms));
  RETURN_IF_ERROR(ReadNumber("SOFTGPU_IDLE_EXIT", 1, kMaxIdleExit, &settings.idle_exit_s));
  const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  settings.launch_blocking = blocking != nullptr && std::strcmp(blocking, "1") == 0;
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  settings.eager_loading = loading != nullptr && std::strcmp(loading, "EAGER") == 0;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  settings.has_visible = visible != nullptr;
  if (visible != nullptr) settings.visible = visible;
  return settings;
}

std::vector<DeviceInfo> SelectVisible(const std::vector<DeviceInfo>& devices, const Settings& settings) {
  if (!settings.has_visible) return devices;
  std::vector<DeviceInfo> selected;
  std::string_view rest = settings.visible;
  while (!rest.empty()) {
    size_t comma = std::min(rest.find(','), rest.size());
    std::string_view entry = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
    while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
    const DeviceInfo* found = nullptr;
    int matches = 0;
    for (size_t i = 0; i < devices.size(); i++) {
      if (!NamesDevice(entry, i, devices[i])) continue;
      found = &devices[i];
      matches++;
    }
    if (matches != 1) break;
    if (std::any_of(selected.begin(), selected.end(),
                    [&](const auto& d) { return d.ordinal == found->ordinal; }))
      break;
    selected.push_back(*found);
  }
  return selected;
}

}  // namespace softgpu

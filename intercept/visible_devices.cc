#include "intercept/visible_devices.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/task_protocol.h"
#include "vmm/device_map.h"
#include "vmm/real_driver.h"

namespace stasis {
namespace {

constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";

struct Identities {
  std::vector<DeviceIdentity> devices;  // by virtual ordinal
  bool recorded = false;
  bool kept = false;
};

// Written by one thread at a time: at the first cuInit, and while the gate is closed.
Identities& TheIdentities() {
  static Identities* const identities = new Identities;  // outlives every destructor
  return *identities;
}

std::string UuidText(const std::string& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<size_t> ParseNumber(std::string_view text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The index within `pool` that the entry names, if it is just one.
std::optional<size_t> FindEntry(std::string_view entry, const std::vector<int>& pool,
                                const std::vector<std::string>& uuids) {
  if (const std::optional<size_t> number = ParseNumber(entry))
    return *number < pool.size() ? number : std::nullopt;
  constexpr size_t kPrefix = 4;
  if (entry.size() <= kPrefix || entry.substr(0, kPrefix) != "GPU-") return std::nullopt;
  std::optional<size_t> found;
  for (size_t i = 0; i < pool.size(); ++i) {
    const std::string text = UuidText(uuids[static_cast<size_t>(pool[i])]);
    if (entry.size() > text.size() || strncasecmp(text.data(), entry.data(), entry.size()) != 0) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::vector<int> SelectFrom(const std::vector<int>& pool, const std::vector<std::string>& uuids,
                            const char* list) {
  if (list == nullptr) return pool;
  std::vector<int> selected;
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::optional<size_t> found = FindEntry(Trimmed(rest.substr(0, comma)), pool, uuids);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (!found || std::find(selected.begin(), selected.end(), pool[*found]) != selected.end()) break;
    selected.push_back(pool[*found]);
  }
  return selected;
}

std::string RawUuid(const CUuuid& uuid) { return std::string(uuid.bytes, sizeof uuid.bytes); }

int Attribute(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return Driver().cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

Result<DeviceIdentity> ReadIdentity(CUdevice device) {
  DeviceIdentity identity;
  char text[256] = {};
  RETURN_IF_ERROR(DriverStatus(Driver().cuDeviceGetName(text, sizeof text - 1, device), "cuDeviceGetName"));
  identity.name = text;
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuDeviceTotalMem_v2(&identity.total_memory, device), "cuDeviceTotalMem"));
  RETURN_IF_ERROR(DriverStatus(Driver().cuDeviceGetUuid(&identity.uuid, device), "cuDeviceGetUuid"));
  if (Driver().cuDeviceGetUuid_v2(&identity.uuid_v2, device) != CUDA_SUCCESS)
    identity.uuid_v2 = identity.uuid;
  char bus[64] = {};
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuDeviceGetPCIBusId(bus, sizeof bus - 1, device), "cuDeviceGetPCIBusId"));
  identity.pci_bus_id = bus;
  identity.pci_domain = Attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  identity.pci_bus = Attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  identity.pci_device = Attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  identity.has_luid =
      Driver().cuDeviceGetLuid(identity.luid, &identity.luid_node_mask, device) == CUDA_SUCCESS;
  identity.shared_by_mps = Attribute(device, CU_DEVICE_ATTRIBUTE_MPS_ENABLED) != 0;
  return identity;
}

TaskDevice Describe(int virtual_ordinal, int physical_ordinal, const DeviceIdentity& identity) {
  TaskDevice device;
  device.virtual_ordinal = virtual_ordinal;
  device.physical_ordinal = physical_ordinal;
  device.uuid = RawUuid(identity.uuid);
  device.name = identity.name;
  device.total_memory = identity.total_memory;
  device.compute_capability =
      static_cast<uint32_t>(Attribute(physical_ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                            Attribute(physical_ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  return device;
}

Result<std::vector<DeviceIdentity>> ReadAllIdentities() {
  int count = 0;
  RETURN_IF_ERROR(DriverStatus(Driver().cuDeviceGetCount(&count), "cuDeviceGetCount"));
  std::vector<DeviceIdentity> identities;
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(DeviceIdentity identity, ReadIdentity(i));
    identities.push_back(std::move(identity));
  }
  return identities;
}

struct PciAddress {
  unsigned int domain = 0, bus = 0, device = 0, function = 0;
  bool operator==(const PciAddress&) const = default;
};

// The forms that cuDeviceGetByPCIBusId takes.
std::optional<PciAddress> ParsePci(const char* text) {
  PciAddress pci;
  if (std::sscanf(text, "%x:%x:%x.%x", &pci.domain, &pci.bus, &pci.device, &pci.function) == 4) return pci;
  pci = {};
  if (std::sscanf(text, "%x:%x:%x", &pci.domain, &pci.bus, &pci.device) == 3) return pci;
  pci = {};
  if (std::sscanf(text, "%x:%x.%x", &pci.bus, &pci.device, &pci.function) == 3) return pci;
  return std::nullopt;
}

}  // namespace

std::vector<int> SelectDevices(const std::vector<std::string>& uuids, const char* gpus, const char* visible) {
  std::vector<int> all;
  for (size_t i = 0; i < uuids.size(); ++i) all.push_back(static_cast<int>(i));
  return SelectFrom(SelectFrom(all, uuids, gpus), uuids, visible);
}

bool NamesDevicePart(const char* visible) {
  const std::string_view list = visible == nullptr ? "" : visible;
  for (size_t at = 0; at < list.size(); at = std::min(list.find(',', at), list.size() - 1) + 1)
    if (Trimmed(list.substr(at)).substr(0, 4) == "MIG-") return true;
  return false;
}

Status RecordVisibleDevices(bool all) {
  if (VisibleDevicesRecorded()) return {};
  all = all || NamesDevicePart(getenv(kVisibleDevices));
  ASSIGN_OR_RETURN(std::vector<DeviceIdentity> physical, ReadAllIdentities());
  std::vector<std::string> uuids;
  for (const DeviceIdentity& identity : physical) uuids.push_back(RawUuid(identity.uuid));
  const std::vector<int> selected = SelectDevices(uuids, all ? nullptr : getenv(kTaskGpusVariable),
                                                  all ? nullptr : getenv(kVisibleDevices));
  Identities& identities = TheIdentities();
  std::vector<TaskDevice> devices;
  for (const int ordinal : selected) {
    const DeviceIdentity& identity = physical[static_cast<size_t>(ordinal)];
    devices.push_back(Describe(static_cast<int>(devices.size()), ordinal, identity));
    identities.devices.push_back(identity);
  }
  SetVisibleDevices(std::move(devices), selected.size() != physical.size());
  identities.recorded = true;
  return {};
}

Status CheckDevices(const std::vector<DeviceIdentity>& devices, TaskStrategy strategy) {
  if (strategy != TaskStrategy::kDriverCheckpoint) return {};
  for (const DeviceIdentity& device : devices) {
    const bool part = RawUuid(device.uuid) != RawUuid(device.uuid_v2);
    if (!part && !device.shared_by_mps) continue;
    return Errorf(StatusCode::kUnsupported, "the driver's own checkpoint does not take %s: device %s",
                  part ? "parts of a device (MIG)" : "devices that are shared through MPS",
                  device.name.c_str());
  }
  return {};
}

Status CheckVisibleDevices(TaskStrategy strategy) { return CheckDevices(TheIdentities().devices, strategy); }

bool VisibleDevicesRecorded() { return TheIdentities().recorded; }

void KeepDeviceIdentities() { TheIdentities().kept = true; }

const DeviceIdentity* KeptIdentity(CUdevice virtual_device) {
  const Identities& identities = TheIdentities();
  if (!identities.kept || virtual_device < 0) return nullptr;
  const size_t index = static_cast<size_t>(virtual_device);
  return index < identities.devices.size() ? &identities.devices[index] : nullptr;
}

CUresult FindByPciBusId(const char* pci_bus_id, CUdevice* virtual_device) {
  const std::optional<PciAddress> wanted = ParsePci(pci_bus_id);
  if (!wanted) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<DeviceIdentity>& devices = TheIdentities().devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (ParsePci(devices[i].pci_bus_id.c_str()) != wanted) continue;
    *virtual_device = static_cast<CUdevice>(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

HiddenVariable::HiddenVariable(const char* name) {
  static char placeholder[] = "STASIS_HIDDEN=";
  const size_t length = std::strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) != 0 || (*entry)[length] != '=') continue;
    slot_ = entry;
    value_ = std::exchange(*entry, placeholder);
    return;
  }
}

HiddenVariable::~HiddenVariable() {
  if (slot_ != nullptr) *slot_ = value_;
}

}  // namespace stasis

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
#include "intercept/task_placements.h"
#include "vmm/device_map.h"
#include "vmm/real_driver.h"

namespace stasis {
namespace {

constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";
constexpr char kDeviceOrder[] = "CUDA_DEVICE_ORDER";
constexpr size_t kUuidBytes = sizeof(CUuuid::bytes);

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
                                const std::vector<MachineDevice>& devices) {
  if (const std::optional<size_t> number = ParseNumber(entry))
    return *number < pool.size() ? number : std::nullopt;
  constexpr size_t kPrefix = 4;
  if (entry.size() <= kPrefix || entry.substr(0, kPrefix) != "GPU-") return std::nullopt;
  std::optional<size_t> found;
  for (size_t i = 0; i < pool.size(); ++i) {
    const std::string text = UuidText(devices[static_cast<size_t>(pool[i])].uuid);
    if (entry.size() > text.size() || strncasecmp(text.data(), entry.data(), entry.size()) != 0) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::vector<int> SelectFrom(const std::vector<int>& pool, const std::vector<MachineDevice>& devices,
                            const char* list) {
  if (list == nullptr) return pool;
  std::vector<int> selected;
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::optional<size_t> found = FindEntry(Trimmed(rest.substr(0, comma)), pool, devices);
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
  const CUresult second = Driver().cuDeviceGetUuid_v2(&identity.uuid_v2, device);
  // Of the two, the older one has gone from the headers, and the newer one is not in every driver.
  const CUresult first = Driver().cuDeviceGetUuid(&identity.uuid, device);
  if (first != CUDA_SUCCESS && second != CUDA_SUCCESS) return DriverStatus(first, "cuDeviceGetUuid");
  if (first != CUDA_SUCCESS) identity.uuid = identity.uuid_v2;
  if (second != CUDA_SUCCESS) identity.uuid_v2 = identity.uuid;
  char bus[64] = {};
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuDeviceGetPCIBusId(bus, sizeof bus - 1, device), "cuDeviceGetPCIBusId"));
  identity.pci_bus_id = bus;
  identity.pci_domain = Attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  identity.pci_bus = Attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  identity.pci_device = Attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  identity.has_luid =
      Driver().cuDeviceGetLuid(identity.luid, &identity.luid_node_mask, device) == CUDA_SUCCESS;
  identity.exclusive =
      Attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
  identity.shared_by_mps = Attribute(device, CU_DEVICE_ATTRIBUTE_MPS_ENABLED) != 0;
  return identity;
}

// `ordinal`: in the driver's numbering.
TaskDevice Describe(int virtual_ordinal, int physical_ordinal, int ordinal, const DeviceIdentity& identity) {
  TaskDevice device;
  device.virtual_ordinal = virtual_ordinal;
  device.physical_ordinal = physical_ordinal;
  device.uuid = RawUuid(identity.uuid);
  device.name = identity.name;
  device.total_memory = identity.total_memory;
  device.compute_capability =
      static_cast<uint32_t>(Attribute(ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                            Attribute(ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
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

// "00ab..." -> 16 bytes; empty for anything else.
std::string ParseUuid(std::string_view hex) {
  std::string uuid;
  for (size_t at = 0; at < hex.size(); at += 2) {
    unsigned byte = 0;
    const std::string_view digits = hex.substr(at, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (error != std::errc() || end != digits.data() + 2) return {};
    uuid += static_cast<char>(byte);
  }
  return uuid.size() == kUuidBytes ? uuid : std::string();
}

// Empty: the list is none, or not as the launcher writes it.
std::vector<MachineDevice> ParseMachine(const char* list) {
  std::vector<MachineDevice> devices;
  for (std::string_view rest = list == nullptr ? "" : list; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    const size_t at = std::min(entry.find('@'), entry.size());
    MachineDevice device{ParseUuid(entry.substr(0, at)),
                         std::string(entry.substr(std::min(at + 1, entry.size())))};
    if (device.uuid.empty()) return {};
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<MachineDevice> MachineOf(const std::vector<DeviceIdentity>& identities) {
  std::vector<MachineDevice> machine;
  for (const DeviceIdentity& identity : identities)
    machine.push_back({RawUuid(identity.uuid), identity.pci_bus_id});
  return machine;
}

// Where the driver's devices are on the machine; kNotFound when one is on none.
Result<std::vector<int>> PlacesOf(const std::vector<DeviceIdentity>& identities,
                                  const std::vector<MachineDevice>& machine) {
  std::vector<int> places;
  for (const DeviceIdentity& identity : identities) {
    const auto found = std::find_if(machine.begin(), machine.end(), [&](const MachineDevice& device) {
      return device.uuid == RawUuid(identity.uuid);
    });
    if (found == machine.end())
      return Errorf(StatusCode::kNotFound, "the launcher did not see device %s",
                    UuidText(RawUuid(identity.uuid)).c_str());
    places.push_back(static_cast<int>(found - machine.begin()));
  }
  return places;
}

}  // namespace

Selection SelectionOfEnvironment() {
  return {getenv(kTaskGpusVariable), getenv(kVisibleDevices), getenv(kDeviceOrder)};
}

std::vector<int> SelectDevices(const std::vector<MachineDevice>& devices, const Selection& selection) {
  std::vector<int> pool;
  for (size_t i = 0; i < devices.size(); ++i) pool.push_back(static_cast<int>(i));
  const bool by_pci = selection.order != nullptr && std::strcmp(selection.order, "PCI_BUS_ID") == 0;
  if (selection.gpus == nullptr && by_pci)
    std::stable_sort(pool.begin(), pool.end(), [&](int a, int b) {
      return devices[static_cast<size_t>(a)].pci < devices[static_cast<size_t>(b)].pci;
    });
  return SelectFrom(SelectFrom(pool, devices, selection.gpus), devices, selection.visible);
}

std::optional<ShownDevices> DevicesToShow(const char* machine, const Selection& selection,
                                          std::string_view placements) {
  ShownDevices shown{std::string(kVisibleDevices) + "=", ParseMachine(machine)};
  std::vector<TaskDevice> devices;
  for (const int ordinal : SelectDevices(shown.machine, selection)) {
    TaskDevice& device = devices.emplace_back();
    device.virtual_ordinal = static_cast<int>(devices.size()) - 1;
    device.physical_ordinal = ordinal;
    device.uuid = shown.machine[static_cast<size_t>(ordinal)].uuid;
    shown.variable += (devices.size() == 1 ? "" : ",") + UuidText(device.uuid);
  }
  if (devices.empty()) return std::nullopt;
  if (!AreWhereTheyWere(placements, devices)) return std::nullopt;
  return shown;
}

bool NamesDevicePart(const char* visible) {
  const std::string_view list = visible == nullptr ? "" : visible;
  for (size_t at = 0; at < list.size(); at = std::min(list.find(',', at), list.size() - 1) + 1)
    if (Trimmed(list.substr(at)).substr(0, 4) == "MIG-") return true;
  return false;
}

Status RecordVisibleDevices(bool all, const ShownDevices* shown) {
  if (VisibleDevicesRecorded()) return {};
  ASSIGN_OR_RETURN(std::vector<DeviceIdentity> found, ReadAllIdentities());
  const bool unchanged = all || shown != nullptr || NamesDevicePart(getenv(kVisibleDevices));
  const std::vector<int> selected =
      SelectDevices(MachineOf(found), unchanged ? Selection() : SelectionOfEnvironment());
  std::vector<int> places = selected;
  if (shown != nullptr) {
    ASSIGN_OR_RETURN(places, PlacesOf(found, shown->machine));
  }
  Identities& identities = TheIdentities();
  std::vector<TaskDevice> devices;
  for (size_t i = 0; i < selected.size(); ++i) {
    const DeviceIdentity& identity = found[static_cast<size_t>(selected[i])];
    devices.push_back(Describe(static_cast<int>(i), places[i], selected[i], identity));
    identities.devices.push_back(identity);
  }
  SetVisibleDevices(std::move(devices), selected.size() != found.size(), shown != nullptr);
  identities.recorded = true;
  return {};
}

Status CheckDevices(const std::vector<DeviceIdentity>& devices, const std::vector<TaskDevice>& seen,
                    TaskStrategy strategy) {
  for (size_t i = 0; i < devices.size(); ++i) {
    const DeviceIdentity& device = devices[i];
    if (!seen[i].used || !device.exclusive || device.shared_by_mps) continue;
    return Errorf(
        StatusCode::kUnsupported,
        "device %s is for one process at a time (compute mode Exclusive_Process), and who holds its "
        "memory meanwhile is another one: nvidia-smi -c DEFAULT",
        device.name.c_str());
  }
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

Status CheckVisibleDevices(TaskStrategy strategy) {
  return CheckDevices(TheIdentities().devices, VisibleDevices(), strategy);
}

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

HiddenVariable::HiddenVariable(const char* name, const char* instead) {
  const size_t length = std::strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) != 0 || (*entry)[length] != '=') continue;
    // Without its first letter it is another one, and the string lives as long as the variable did.
    put_ = instead == nullptr ? *entry + 1 : const_cast<char*>(instead);
    value_ = std::exchange(*entry, put_);
    return;
  }
}

HiddenVariable::~HiddenVariable() {
  if (value_ == nullptr) return;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (*entry != put_) continue;
    *entry = value_;
    return;
  }
}

}  // namespace stasis

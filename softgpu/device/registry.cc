#include "softgpu/device/registry.h"

#include <utility>

namespace softgpu {

using stasis::Errorf;
using stasis::Fd;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

Registry::Registry(std::vector<DeviceInfo> devices, MemoryFactory factory)
    : infos_(std::move(devices)), devices_(infos_.size()), factory_(std::move(factory)) {}

Result<Registry::Client*> Registry::Find(ClientId client) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return Status(StatusCode::kFailedPrecondition, "the client has said goodbye");
  return &found->second;
}

void Registry::RemoveClient(ClientId client) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  Client gone = std::move(found->second);
  clients_.erase(found);
  for (auto [id, references] : gone.references) Drop(id, references);
}

Status Registry::CheckDevice(uint32_t device) const {
  if (device < devices_.size()) return Status();
  return Errorf(StatusCode::kInvalidArgument, "no device %u: the node has %zu", device, devices_.size());
}

Status Registry::CheckUsable(uint32_t device) const {
  RETURN_IF_ERROR(CheckDevice(device));
  if (infos_[device].health != Health::kFellOffBus) return Status();
  return Errorf(StatusCode::kUnavailable, "device %u has fallen off the bus", device);
}

Status Registry::CtxCreate(ClientId client, uint32_t device) {
  RETURN_IF_ERROR(CheckUsable(device));
  ASSIGN_OR_RETURN(Client * entry, Find(client));
  entry->contexts[device]++;
  return Status();
}

Status Registry::CtxDestroy(ClientId client, uint32_t device) {
  RETURN_IF_ERROR(CheckDevice(device));
  ASSIGN_OR_RETURN(Client * entry, Find(client));
  auto found = entry->contexts.find(device);
  if (found == entry->contexts.end()) {
    return Errorf(StatusCode::kFailedPrecondition, "no context on device %u", device);
  }
  if (--found->second == 0) entry->contexts.erase(found);
  return Status();
}

std::vector<ClientId> Registry::ClientsOf(uint32_t device) const {
  std::vector<ClientId> result;
  for (const auto& [id, client] : clients_) {
    if (client.contexts.count(device) > 0) result.push_back(id);
  }
  return result;
}

Status Registry::Charge(uint32_t device, uint64_t size) {
  Device& entry = devices_[device];
  uint64_t free = infos_[device].memory_bytes - entry.used;
  if (size > free) {
    return Errorf(StatusCode::kResourceExhausted, "device %u: %llu bytes asked for, %llu free", device,
                  static_cast<unsigned long long>(size), static_cast<unsigned long long>(free));
  }
  if (entry.oom_armed) {
    if (entry.oom_after == 0) {
      return Errorf(StatusCode::kResourceExhausted, "device %u: out of memory (injected)", device);
    }
    entry.oom_after--;
  }
  entry.used += size;
  return Status();
}

Result<Registry::AllocView> Registry::MemCreate(ClientId client, uint32_t device, uint64_t size) {
  RETURN_IF_ERROR(CheckUsable(device));
  ASSIGN_OR_RETURN(Client * entry, Find(client));
  if (size == 0 || size % kMemoryGranularity != 0) {
    return Errorf(StatusCode::kInvalidArgument, "%llu bytes is no multiple of the granularity",
                  static_cast<unsigned long long>(size));
  }
  RETURN_IF_ERROR(Charge(device, size));
  AllocId id = next_id_++;
  Result<Fd> memory = factory_(device, id, size);
  if (!memory.ok()) {
    devices_[device].used -= size;
    return std::move(memory).status();
  }
  allocations_[id] = Allocation{device, size, 1, std::move(memory).value()};
  entry->references[id] = 1;
  return View(id);
}

Result<Registry::AllocView> Registry::MemImport(ClientId client, AllocId id) {
  ASSIGN_OR_RETURN(Client * entry, Find(client));
  auto found = allocations_.find(id);
  if (found == allocations_.end()) return Status(StatusCode::kInvalidArgument, "no such memory");
  RETURN_IF_ERROR(CheckUsable(found->second.device));
  found->second.references++;
  entry->references[id]++;
  return View(id);
}

Status Registry::MemRelease(ClientId client, AllocId id) {
  ASSIGN_OR_RETURN(Client * entry, Find(client));
  auto found = entry->references.find(id);
  if (found == entry->references.end()) {
    return Errorf(StatusCode::kNotFound, "no reference to memory %llu", static_cast<unsigned long long>(id));
  }
  if (--found->second == 0) entry->references.erase(found);
  Drop(id, 1);
  return Status();
}

Status Registry::CheckExport(ClientId client, AllocId id) const {
  auto found = clients_.find(client);
  if (found == clients_.end() || found->second.references.count(id) == 0) {
    return Errorf(StatusCode::kNotFound, "no reference to memory %llu", static_cast<unsigned long long>(id));
  }
  return CheckUsable(allocations_.at(id).device);
}

void Registry::AddToken(AllocId id) { allocations_.at(id).references++; }

void Registry::DropToken(AllocId id) { Drop(id, 1); }

void Registry::Drop(AllocId id, uint64_t references) {
  auto found = allocations_.find(id);
  STASIS_CHECK(found != allocations_.end() && found->second.references >= references);
  found->second.references -= references;
  if (found->second.references > 0) return;
  devices_[found->second.device].used -= found->second.size;
  allocations_.erase(found);
}

Registry::AllocView Registry::View(AllocId id) const {
  const Allocation& allocation = allocations_.at(id);
  return AllocView{id, allocation.device, allocation.size, allocation.memory.get()};
}

Result<MemoryInfo> Registry::MemInfo(uint32_t device) const {
  RETURN_IF_ERROR(CheckUsable(device));
  uint64_t total = infos_[device].memory_bytes;
  return MemoryInfo{total - devices_[device].used, total};
}

Status Registry::Inject(uint32_t device, const Fault& fault) {
  RETURN_IF_ERROR(CheckDevice(device));
  DeviceInfo& info = infos_[device];
  switch (fault.kind) {
    case FaultKind::kFellOffBus:
      info.health = Health::kFellOffBus;
      return Status();
    case FaultKind::kEcc:
      RETURN_IF_ERROR(CheckUsable(device));
      info.health = Health::kEccError;
      return Status();
    case FaultKind::kSlow:
      // Written so that NaN fails.
      if (!(fault.factor > 0 && fault.factor <= 1)) {
        return Status(StatusCode::kInvalidArgument, "a slow device has a factor above 0, at most 1");
      }
      info.slow_factor = fault.factor;
      return Status();
    case FaultKind::kOomAfter:
      devices_[device].oom_armed = true;
      devices_[device].oom_after = fault.count;
      return Status();
    case FaultKind::kNone:
    case FaultKind::kReset:
      if (fault.kind == FaultKind::kReset || info.health != Health::kFellOffBus)
        info.health = Health::kHealthy;
      info.slow_factor = 1;
      devices_[device].oom_armed = false;
      devices_[device].oom_after = 0;
      return Status();
  }
  return Status(StatusCode::kInvalidArgument, "unknown fault");
}

DeviceStatus Registry::StatusOf(uint32_t device) const {
  const Device& entry = devices_.at(device);
  return DeviceStatus{infos_[device], entry.used, entry.oom_armed, entry.oom_after};
}

void Registry::Describe(ClientId client, ProcessInfo* info) const {
  info->contexts.assign(devices_.size(), 0);
  info->memory_bytes.assign(devices_.size(), 0);
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  for (auto [device, count] : found->second.contexts) info->contexts[device] = count;
  for (auto [id, references] : found->second.references) {
    const Allocation& allocation = allocations_.at(id);
    info->memory_bytes[allocation.device] += allocation.size;
  }
}

}  // namespace softgpu

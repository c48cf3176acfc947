// Registry: the devices of a node, who has contexts on them, and whose memory fills them. No sockets, no
// time: the daemon's state, testable by itself. Single-threaded.
#ifndef SOFTGPU_DEVICE_REGISTRY_H_
#define SOFTGPU_DEVICE_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "softgpu/device/types.h"

namespace softgpu {

using ClientId = uint64_t;  // never reused by a daemon; 0 = none
using AllocId = uint64_t;   // never reused by a daemon

class Registry {
 public:
  // Makes the file behind an allocation; the registry owns it for the allocation's life.
  using MemoryFactory = std::function<stasis::Result<stasis::Fd>(uint32_t device, AllocId id, uint64_t size)>;

  // What is known of an allocation. `memory` belongs to the registry.
  struct AllocView {
    AllocId id;
    uint32_t device;
    uint64_t size;
    int memory;
  };

  Registry(std::vector<DeviceInfo> devices, MemoryFactory factory);

  // A client may do nothing before AddClient. RemoveClient gives back all it has; unknown ids are ignored.
  void AddClient(ClientId client) { clients_[client]; }
  void RemoveClient(ClientId client);

  const std::vector<DeviceInfo>& devices() const { return infos_; }
  // kInvalidArgument: no such device; kUnavailable: it fell off the bus.
  stasis::Status CheckUsable(uint32_t device) const;

  stasis::Status CtxCreate(ClientId client, uint32_t device);
  stasis::Status CtxDestroy(ClientId client, uint32_t device);
  // The clients that have a context on `device`.
  std::vector<ClientId> ClientsOf(uint32_t device) const;

  // Success of Create and Import is one reference of `client`.
  stasis::Result<AllocView> MemCreate(ClientId client, uint32_t device, uint64_t size);
  stasis::Result<AllocView> MemImport(ClientId client, AllocId id);
  stasis::Status MemRelease(ClientId client, AllocId id);
  // kNotFound unless `client` has a reference to it; kUnavailable when its device is lost.
  stasis::Status CheckExport(ClientId client, AllocId id) const;
  // One more (one less) exported token stands for `id`, which exists.
  void AddToken(AllocId id);
  void DropToken(AllocId id);

  stasis::Result<MemoryInfo> MemInfo(uint32_t device) const;
  // kInvalidArgument: no such device, or a fault with impossible numbers.
  stasis::Status Inject(uint32_t device, const Fault& fault);

  DeviceStatus StatusOf(uint32_t device) const;
  // Fills contexts and memory_bytes.
  void Describe(ClientId client, ProcessInfo* info) const;
  size_t allocation_count() const { return allocations_.size(); }

 private:
  struct Allocation {
    uint32_t device = 0;
    uint64_t size = 0;
    uint64_t references = 0;  // of all clients, and of the tokens
    stasis::Fd memory;
  };
  struct Device {
    uint64_t used = 0;
    bool oom_armed = false;
    uint64_t oom_after = 0;
  };
  struct Client {
    std::map<uint32_t, uint32_t> contexts;
    std::map<AllocId, uint64_t> references;
  };

  stasis::Result<Client*> Find(ClientId client);
  stasis::Status CheckDevice(uint32_t device) const;
  stasis::Status Charge(uint32_t device, uint64_t size);
  void Drop(AllocId id, uint64_t references);
  AllocView View(AllocId id) const;

  std::vector<DeviceInfo> infos_;
  std::vector<Device> devices_;
  std::map<AllocId, Allocation> allocations_;
  std::map<ClientId, Client> clients_;
  MemoryFactory factory_;
  AllocId next_id_ = 1;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_REGISTRY_H_

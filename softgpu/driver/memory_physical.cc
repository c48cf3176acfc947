#include "softgpu/driver/memory_physical.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <numeric>
#include <utility>

#include "softgpu/driver/memory_space.h"

namespace softgpu {
namespace {

uint64_t NextBlockId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

stasis::Result<Allocation> CreateHostMemory(uint64_t size) {
  Allocation allocation;
  allocation.size = size;
  allocation.memory.Reset(memfd_create("softgpu-host", MFD_CLOEXEC));
  if (!allocation.memory.valid()) return stasis::ErrnoStatus(errno, "create host memory");
  if (ftruncate(allocation.memory.get(), static_cast<off_t>(size)) != 0) {
    return stasis::ErrnoStatus(errno, "size host memory");
  }
  return allocation;
}

stasis::Result<DeviceClient*> Connected(const PhysicalSource& source) {
  DeviceClient* client = source.client();
  if (client == nullptr) return stasis::Errorf(stasis::StatusCode::kPeerDied, "not connected to softgpud");
  return client;
}

stasis::Result<Allocation> CreateMemory(PhysicalSource& source, int device, uint64_t size) {
  if (device < 0) return CreateHostMemory(size);
  ASSIGN_OR_RETURN(DeviceClient * client, Connected(source));
  return client->MemCreate(source.ToDaemon(device), size);
}

}  // namespace

PhysicalSource::PhysicalSource(DeviceClient* client, int devices)
    : client_(client), daemon_devices_(devices) {
  std::iota(daemon_devices_.begin(), daemon_devices_.end(), 0);
}

DeviceClient* PhysicalSource::client() const {
  std::lock_guard lock(mutex_);
  return client_;
}

void PhysicalSource::Connect(DeviceClient* client, const std::vector<uint32_t>& daemon_devices) {
  std::lock_guard lock(mutex_);
  client_ = client;
  daemon_devices_ = daemon_devices;
}

void PhysicalSource::Disconnect() {
  std::lock_guard lock(mutex_);
  client_ = nullptr;
}

uint32_t PhysicalSource::ToDaemon(int device) const {
  std::lock_guard lock(mutex_);
  return daemon_devices_[device];
}

int PhysicalSource::FromDaemon(uint32_t device) const {
  std::lock_guard lock(mutex_);
  auto found = std::find(daemon_devices_.begin(), daemon_devices_.end(), device);
  return found == daemon_devices_.end() ? -1 : static_cast<int>(found - daemon_devices_.begin());
}

void PhysicalSource::Add(Physical* memory) {
  std::lock_guard lock(mutex_);
  all_.insert(memory);
}

void PhysicalSource::Remove(Physical* memory) {
  std::lock_guard lock(mutex_);
  all_.erase(memory);
}

std::vector<Physical*> PhysicalSource::All() const {
  std::lock_guard lock(mutex_);
  return {all_.begin(), all_.end()};
}

Physical::Physical(PhysicalSource& source, int device, uint64_t size, uint64_t home)
    : block_id(NextBlockId()), source_(source), device_(device), size_(size), home_(home) {
  source_.Add(this);
}

Physical::~Physical() {
  source_.Remove(this);
  Detach();
  ReleaseAddresses(home_, size_);
}

stasis::Result<std::shared_ptr<Physical>> Physical::Create(PhysicalSource& source, int device, uint64_t size,
                                                           Home home) {
  ASSIGN_OR_RETURN(Allocation allocation, CreateMemory(source, device, size));
  return MakeFrom(source, std::move(allocation), device, home);
}

stasis::Result<std::shared_ptr<Physical>> Physical::Import(PhysicalSource& source, int fd) {
  ASSIGN_OR_RETURN(DeviceClient * client, Connected(source));
  ASSIGN_OR_RETURN(Allocation allocation, client->MemImport(fd));
  int device = source.FromDaemon(allocation.device);
  if (device < 0) {
    (void)client->MemRelease(allocation.id);
    return stasis::Errorf(stasis::StatusCode::kUnsupported,
                          "the memory lies on a device this process does not see");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Physical> memory,
                   MakeFrom(source, std::move(allocation), device, Home::kAnywhere));
  memory->shared = true;
  return memory;
}

stasis::Result<std::shared_ptr<Physical>> Physical::MakeFrom(PhysicalSource& source, Allocation allocation,
                                                             int device, Home home) {
  uint64_t id = allocation.id;
  stasis::Result<uint64_t> base = home == Home::kModules ? ReserveModuleAddresses(allocation.size)
                                                         : ReserveAddresses(allocation.size, kLargePage, 0);
  if (!base.ok()) {
    if (id != 0 && source.client() != nullptr) (void)source.client()->MemRelease(id);
    return std::move(base).status();
  }
  std::shared_ptr<Physical> memory(new Physical(source, device, allocation.size, *base));
  RETURN_IF_ERROR(memory->MapHome(std::move(allocation)));
  return memory;
}

stasis::Status Physical::MapHome(Allocation allocation) {
  daemon_id_ = allocation.id;
  return MapPages(home_, size_, allocation.memory.get(), 0);
}

stasis::Result<stasis::Fd> Physical::Export() const {
  if (device_ < 0) return stasis::Errorf(stasis::StatusCode::kUnsupported, "host memory cannot be exported");
  ASSIGN_OR_RETURN(DeviceClient * client, Connected(source_));
  return client->MemExport(daemon_id_);
}

void Physical::Detach() {
  UnmapPages(home_, size_);
  // A broken connection has given the memory back already; there is nobody to tell.
  if (daemon_id_ != 0 && source_.client() != nullptr) (void)source_.client()->MemRelease(daemon_id_);
  daemon_id_ = 0;
}

stasis::Status Physical::Attach() {
  ASSIGN_OR_RETURN(Allocation allocation, CreateMemory(source_, device_, size_));
  return MapHome(std::move(allocation));
}

stasis::Result<stasis::Fd> Physical::Open() const {
  ASSIGN_OR_RETURN(stasis::Fd token, Export());
  ASSIGN_OR_RETURN(DeviceClient * client, Connected(source_));
  ASSIGN_OR_RETURN(Allocation again, client->MemImport(token.get()));
  RETURN_IF_ERROR(client->MemRelease(again.id));
  return std::move(again.memory);
}

}  // namespace softgpu

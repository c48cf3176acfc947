#include "ghost/gpu.h"

#include <cstring>

#include "base/task_protocol.h"

namespace stasis {

GpuMemory& GpuMemory::operator=(GpuMemory&& other) noexcept {
  if (this != &other) {
    Reset();
    gpu_ = std::exchange(other.gpu_, nullptr);
    device_ = other.device_;
    size_ = std::exchange(other.size_, 0);
    handle_ = std::exchange(other.handle_, 0);
    address_ = std::exchange(other.address_, 0);
    mapped_ = std::exchange(other.mapped_, false);
  }
  return *this;
}

void GpuMemory::Reset() {
  if (gpu_ == nullptr || !gpu_->Use(device_).ok()) return;
  if (mapped_) Driver().cuMemUnmap(address_, size_);
  if (address_ != 0) Driver().cuMemAddressFree(address_, size_);
  if (handle_ != 0) Driver().cuMemRelease(handle_);
  gpu_ = nullptr;
}

Status GpuMemory::Read(uint64_t offset, std::span<std::byte> out) const {
  STASIS_CHECK(offset + out.size() <= size_);
  RETURN_IF_ERROR(gpu_->Use(device_));
  return DriverStatus(Driver().cuMemcpyDtoH_v2(out.data(), address_ + offset, out.size()), "cuMemcpyDtoH");
}

Status GpuMemory::Write(uint64_t offset, std::span<const std::byte> in) const {
  STASIS_CHECK(offset + in.size() <= size_);
  RETURN_IF_ERROR(gpu_->Use(device_));
  return DriverStatus(Driver().cuMemcpyHtoD_v2(address_ + offset, in.data(), in.size()), "cuMemcpyHtoD");
}

Status GpuMemory::CopyFrom(uint64_t offset, const GpuMemory& other, uint64_t other_offset,
                           uint64_t size) const {
  STASIS_CHECK(size <= size_ && offset <= size_ - size);
  STASIS_CHECK(size <= other.size_ && other_offset <= other.size_ - size);
  RETURN_IF_ERROR(gpu_->Use(other.device_));
  CUcontext from = nullptr, to = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuCtxGetCurrent(&from), "cuCtxGetCurrent"));
  RETURN_IF_ERROR(gpu_->Use(device_));
  RETURN_IF_ERROR(DriverStatus(Driver().cuCtxGetCurrent(&to), "cuCtxGetCurrent"));
  CUdeviceptr target = address_ + offset, source = other.address_ + other_offset;
  // Copies that different threads ask for do not wait for each other.
  CUstream stream = CU_STREAM_PER_THREAD;
  if (from == to)
    return DriverStatus(Driver().cuMemcpyDtoDAsync_v2(target, source, size, stream), "cuMemcpyDtoDAsync");
  return DriverStatus(Driver().cuMemcpyPeerAsync(target, to, source, from, size, stream),
                      "cuMemcpyPeerAsync");
}

Result<Fd> GpuMemory::Export() const {
  RETURN_IF_ERROR(gpu_->Use(device_));
  int fd = -1;
  RETURN_IF_ERROR(DriverStatus(
      Driver().cuMemExportToShareableHandle(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle"));
  return Fd(fd);
}

Result<std::unique_ptr<Gpu>> Gpu::Open(const std::string& driver) {
  RETURN_IF_ERROR(OpenDriver(driver));
  std::unique_ptr<Gpu> gpu(new Gpu);
  RETURN_IF_ERROR(DriverStatus(Driver().cuInit(0), "cuInit"));
  return gpu;
}

Gpu::~Gpu() {
  for (auto& [device, context] : contexts_) {
    Driver().cuCtxSetCurrent(nullptr);
    Driver().cuDevicePrimaryCtxRelease_v2(device);
  }
  CloseDriver();
}

Status Gpu::Use(int device) {
  CUcontext context = nullptr;
  {
    std::lock_guard lock(mutex_);
    auto found = contexts_.find(device);
    if (found == contexts_.end()) {
      RETURN_IF_ERROR(
          DriverStatus(Driver().cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain")
              .WithContext("device " + std::to_string(device)));
      contexts_[device] = context;
    } else {
      context = found->second;
    }
  }
  return DriverStatus(Driver().cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

Result<int> Gpu::Version() {
  int version = 0;
  RETURN_IF_ERROR(DriverStatus(Driver().cuDriverGetVersion(&version), "cuDriverGetVersion"));
  return version;
}

Result<int> Gpu::DeviceCount() {
  int count = 0;
  RETURN_IF_ERROR(DriverStatus(Driver().cuDeviceGetCount(&count), "cuDeviceGetCount"));
  return count;
}

Result<std::string> Gpu::DeviceUuid(int device) {
  CUuuid uuid;
  RETURN_IF_ERROR(DriverStatus(Driver().cuDeviceGetUuid_v2(&uuid, device), "cuDeviceGetUuid")
                      .WithContext("device " + std::to_string(device)));
  return std::string(uuid.bytes, sizeof uuid.bytes);
}

Result<std::vector<std::string>> Gpu::DeviceUuids() {
  ASSIGN_OR_RETURN(int count, DeviceCount());
  std::vector<std::string> uuids;
  for (int device = 0; device < count; ++device) {
    ASSIGN_OR_RETURN(std::string uuid, DeviceUuid(device));
    uuids.push_back(std::move(uuid));
  }
  return uuids;
}

Result<uint64_t> Gpu::FreeBytes(int device) {
  RETURN_IF_ERROR(Use(device));
  size_t free_bytes = 0, total = 0;
  RETURN_IF_ERROR(DriverStatus(Driver().cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo"));
  return free_bytes;
}

Result<GpuMemory> Gpu::Map(int device, CUmemGenericAllocationHandle handle, uint64_t size) {
  GpuMemory memory;
  memory.gpu_ = this;
  memory.device_ = device;
  memory.size_ = size;
  memory.handle_ = handle;
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuMemAddressReserve(&memory.address_, size, 0, 0, 0), "cuMemAddressReserve"));
  RETURN_IF_ERROR(DriverStatus(Driver().cuMemMap(memory.address_, size, 0, handle, 0), "cuMemMap"));
  memory.mapped_ = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  RETURN_IF_ERROR(DriverStatus(Driver().cuMemSetAccess(memory.address_, size, &access, 1), "cuMemSetAccess"));
  return memory;
}

Result<GpuMemory> Gpu::Import(int device, int fd, uint64_t size) {
  RETURN_IF_ERROR(Use(device));
  CUmemGenericAllocationHandle handle = 0;
  RETURN_IF_ERROR(DriverStatus(
      Driver().cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cuMemImportFromShareableHandle"));
  return Map(device, handle, size);
}

Result<GpuMemory> Gpu::Create(int device, uint64_t size, uint32_t traits) {
  RETURN_IF_ERROR(Use(device));
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  if ((traits & kTraitCompressed) != 0) prop.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
  if ((traits & kTraitRdma) != 0) prop.allocFlags.gpuDirectRDMACapable = 1;
  CUmemGenericAllocationHandle handle = 0;
  RETURN_IF_ERROR(DriverStatus(Driver().cuMemCreate(&handle, size, &prop, 0), "cuMemCreate")
                      .WithContext("device " + std::to_string(device)));
  return Map(device, handle, size);
}

Status Gpu::Synchronize(int device) {
  RETURN_IF_ERROR(Use(device));
  return DriverStatus(Driver().cuCtxSynchronize(), "cuCtxSynchronize");
}

Status Gpu::FinishCopies(int device) {
  RETURN_IF_ERROR(Use(device));
  return DriverStatus(Driver().cuStreamSynchronize(CU_STREAM_PER_THREAD), "cuStreamSynchronize");
}

// Pinned memory belongs to no device, yet the driver pins and lets go of it in some context only.
Status Gpu::UseAny() {
  CUcontext current = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuCtxGetCurrent(&current), "cuCtxGetCurrent"));
  if (current != nullptr) return Status();
  int device = 0;
  {
    std::lock_guard lock(mutex_);
    if (!contexts_.empty()) device = contexts_.begin()->first;
  }
  return Use(device);
}

void Gpu::Pin(std::span<std::byte> memory) {
  if (memory.empty() || !UseAny().ok()) return;
  (void)Driver().cuMemHostRegister_v2(memory.data(), memory.size(), CU_MEMHOSTREGISTER_PORTABLE);
}

void Gpu::Unpin(std::span<std::byte> memory) {
  if (memory.empty() || !UseAny().ok()) return;
  (void)Driver().cuMemHostUnregister(memory.data());
}

bool Gpu::UsedBy(pid_t pid) {
  int thread = 0;
  return Driver().cuCheckpointProcessGetRestoreThreadId(pid, &thread) == CUDA_SUCCESS;
}

Status Gpu::LockProcess(pid_t pid, uint32_t timeout_ms) {
  CUcheckpointLockArgs args{};
  args.timeoutMs = timeout_ms;
  return DriverStatus(Driver().cuCheckpointProcessLock(pid, &args), "cuCheckpointProcessLock");
}

Status Gpu::CheckpointProcess(pid_t pid) {
  return DriverStatus(Driver().cuCheckpointProcessCheckpoint(pid, nullptr), "cuCheckpointProcessCheckpoint");
}

Status Gpu::RestoreProcess(pid_t pid, const std::vector<DeviceMove>& moves) {
  std::vector<CUcheckpointGpuPair> pairs(moves.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    if (moves[i].old_uuid.size() != 16 || moves[i].new_uuid.size() != 16) {
      return Status(StatusCode::kInvalidArgument, "a device's UUID has 16 bytes");
    }
    std::memcpy(pairs[i].oldUuid.bytes, moves[i].old_uuid.data(), 16);
    std::memcpy(pairs[i].newUuid.bytes, moves[i].new_uuid.data(), 16);
  }
  CUcheckpointRestoreArgs args{};
  args.gpuPairs = pairs.empty() ? nullptr : pairs.data();
  args.gpuPairsCount = static_cast<unsigned>(pairs.size());
  return DriverStatus(Driver().cuCheckpointProcessRestore(pid, &args), "cuCheckpointProcessRestore");
}

Status Gpu::UnlockProcess(pid_t pid) {
  return DriverStatus(Driver().cuCheckpointProcessUnlock(pid, nullptr), "cuCheckpointProcessUnlock");
}

Result<CUprocessState> Gpu::ProcessState(pid_t pid) {
  CUprocessState state{};
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuCheckpointProcessGetState(pid, &state), "cuCheckpointProcessGetState"));
  return state;
}

}  // namespace stasis

#include "ghost/device_hash.h"

#include <algorithm>
#include <array>
#include <vector>

#include "vmm/real_driver.h"

namespace stasis {
namespace {

// Made from device_hash.cu.
constexpr char kCode[] =
#include "device_hash.ptx.inc"
    ;

constexpr size_t kBatch = 16384;  // ranges in one launch
constexpr unsigned kThreads = 128, kThreadsPerRange = 32;

Status HashOnHost(const DeviceRange& range, Hash128* hash) {
  std::array<std::byte, DeviceHasher::kHostBytes> buffer;
  std::span<std::byte> bytes = std::span(buffer).first(range.size);
  if (!bytes.empty()) {
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuMemcpyDtoH_v2(bytes.data(), range.address, range.size), "cuMemcpyDtoH"));
  }
  *hash = AllZero(bytes) ? Hash128{} : HashBytes(bytes);
  return Status();
}

}  // namespace

bool FindDeviceHashMode(const std::string& name, DeviceHashMode* mode) {
  constexpr const char* kNames[] = {"auto", "on", "off"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name != kNames[i]) continue;
    *mode = static_cast<DeviceHashMode>(i);
    return true;
  }
  return false;
}

// As the kernel sees them: ranges first, then hashes.
struct DeviceHasher::Slot {
  DeviceRange ranges[kBatch];
  Hash128 hashes[kBatch];
};

Result<std::unique_ptr<DeviceHasher>> DeviceHasher::Create() {
  static_assert(sizeof(DeviceRange) == 16 && sizeof(Hash128) == 16 && offsetof(Hash128, high) == 0);
  std::unique_ptr<DeviceHasher> hasher(new DeviceHasher);
  RETURN_IF_ERROR(DriverStatus(Driver().cuModuleLoadData(&hasher->module_, kCode), "cuModuleLoadData"));
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuModuleGetFunction(&hasher->function_, hasher->module_, "HashChunks"),
                   "cuModuleGetFunction"));
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuStreamCreate(&hasher->stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  RETURN_IF_ERROR(DriverStatus(
      Driver().cuMemHostAlloc(&hasher->shared_, sizeof(Slot), CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc"));
  return hasher;
}

DeviceHasher::~DeviceHasher() {
  if (stream_) Driver().cuStreamDestroy_v2(stream_);
  if (shared_) Driver().cuMemFreeHost(shared_);
  if (module_) Driver().cuModuleUnload(module_);
}

Status DeviceHasher::Hash(std::span<const DeviceRange> ranges, std::span<Hash128> hashes) {
  STASIS_CHECK(ranges.size() == hashes.size());
  std::vector<DeviceRange> batch;
  std::vector<size_t> places;
  std::vector<Hash128> results;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].size <= kHostBytes) {
      RETURN_IF_ERROR(HashOnHost(ranges[i], &hashes[i]));
    } else {
      batch.push_back(ranges[i]);
      places.push_back(i);
    }
  }
  results.resize(batch.size());
  for (size_t at = 0; at < batch.size(); at += kBatch) {
    size_t count = std::min(kBatch, batch.size() - at);
    RETURN_IF_ERROR(HashBatch(std::span(batch).subspan(at, count), std::span(results).subspan(at, count)));
  }
  for (size_t i = 0; i < places.size(); ++i) hashes[places[i]] = results[i];
  return Status();
}

Status DeviceHasher::HashBatch(std::span<const DeviceRange> ranges, std::span<Hash128> hashes) {
  Slot* shared = static_cast<Slot*>(shared_);
  std::copy(ranges.begin(), ranges.end(), shared->ranges);
  CUdeviceptr device = 0;
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuMemHostGetDevicePointer_v2(&device, shared_, 0), "cuMemHostGetDevicePointer"));
  CUdeviceptr in = device + offsetof(Slot, ranges), out = device + offsetof(Slot, hashes);
  unsigned count = static_cast<unsigned>(ranges.size());
  void* arguments[] = {&in, &out, &count};
  unsigned blocks = (count * kThreadsPerRange + kThreads - 1) / kThreads;
  RETURN_IF_ERROR(DriverStatus(
      Driver().cuLaunchKernel(function_, blocks, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr),
      "cuLaunchKernel"));
  RETURN_IF_ERROR(DriverStatus(Driver().cuStreamSynchronize(stream_), "cuStreamSynchronize"));
  std::copy(shared->hashes, shared->hashes + ranges.size(), hashes.begin());
  return Status();
}

}  // namespace stasis

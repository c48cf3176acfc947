// What the program has advised and prefetched of managed memory that lies on the host for good: it changes
// nothing, and the program is told of it again. Locations have visible ordinals. Thread-safe; no driver call.
#ifndef VMM_MANAGED_ADVICE_H_
#define VMM_MANAGED_ADVICE_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace stasis::vmm {

class ManagedAdvice {
 public:
  static ManagedAdvice& Get();

  // cuMemAdvise, cuMemPrefetchAsync and cuMemRangeGetAttribute of [address, address + size), which is managed
  // memory. Locations have been checked.
  CUresult Advise(uint64_t address, uint64_t size, CUmem_advise advice, CUmemLocation location);
  void NotePrefetch(uint64_t address, uint64_t size, CUmemLocation location);
  CUresult Answer(uint64_t address, uint64_t size, CUmem_range_attribute attribute, void* data,
                  size_t data_size) const;
  // The memory has been freed.
  void Forget(uint64_t address, uint64_t size);

  // A location of the functions that know only ordinals.
  static CUmemLocation OfDevice(CUdevice device);
  // Whether such a place exists.
  static bool IsPlace(const CUmemLocation& location);

 private:
  using Location = std::pair<int, int>;  // type, id
  struct Hints {
    bool read_mostly = false;
    Location preferred{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
    Location prefetched{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
    std::vector<Location> accessed_by;  // in the order of the advice
  };

  ManagedAdvice() = default;
  void ChangeLocked(uint64_t first, uint64_t end, const std::function<void(Hints&)>& change);
  void CutLocked(uint64_t at);
  std::vector<Hints> PartsOf(uint64_t address, uint64_t size) const;
  static Location Common(const std::vector<Hints>& parts, Location Hints::*field);
  static void FillAccessedBy(const std::vector<Hints>& parts, int* out, size_t count);

  mutable std::mutex mutex_;
  std::map<uint64_t, std::pair<uint64_t, Hints>> parts_;  // begin -> end; what has none has no hints
};

}  // namespace stasis::vmm

#endif  // VMM_MANAGED_ADVICE_H_

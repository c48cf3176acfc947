// Which virtual addresses a kernel may touch.
//
// One byte for every 2 MiB of the 47-bit user address space, in a sparse (MAP_NORESERVE) table, so that the
// check on the executor's path is one load. Regions that are mapped only in part (host memory registered by
// the program) are marked "partial" and looked up in a sorted list. Writers are serialised by a lock inside;
// readers are lock-free and may run at the same time, as kernels do while the program allocates.
#ifndef SOFTGPU_PTX_EXEC_ACCESS_MAP_H_
#define SOFTGPU_PTX_EXEC_ACCESS_MAP_H_

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace softgpu::exec {

enum class Access : uint8_t { kNone = 0, kRead = 1, kReadWrite = 3 };

class AccessMap {
 public:
  static stasis::Result<std::unique_ptr<AccessMap>> Create();
  ~AccessMap();
  AccessMap(const AccessMap&) = delete;
  AccessMap& operator=(const AccessMap&) = delete;

  // Sets the rights of [base, base+size). Any alignment; the latest call wins where ranges overlap.
  void Set(uint64_t base, uint64_t size, Access access);
  // True when all of [address, address+size) may be read (and written when `write`). size in 1 ... 2 MiB.
  bool Allows(uint64_t address, unsigned size, bool write) const {
    uint64_t last = address + size - 1;
    if ((address | last) >> 47) return false;
    uint8_t first_rights = __atomic_load_n(&table_[address >> 21], __ATOMIC_RELAXED);
    uint8_t last_rights = __atomic_load_n(&table_[last >> 21], __ATOMIC_RELAXED);
    if (__builtin_expect((first_rights | last_rights) & kPartial, 0)) return AllowsSlow(address, size, write);
    uint8_t need = write ? 2 : 1;
    return (first_rights & last_rights & need) != 0;
  }

 private:
  static constexpr uint8_t kPartial = 0x80;
  AccessMap() = default;
  bool AllowsSlow(uint64_t address, unsigned size, bool write) const;
  void SetInPage(uint64_t page, uint64_t begin, uint64_t end, uint8_t rights);

  uint8_t* table_ = nullptr;
  struct Partial;
  Partial* partial_ = nullptr;
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_ACCESS_MAP_H_

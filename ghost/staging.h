// Host memory that pieces of device memory go through: room for one piece for each of a few threads, pinned
// once.
#ifndef GHOST_STAGING_H_
#define GHOST_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/mapping.h"
#include "base/status.h"
#include "ghost/gpu.h"

namespace stasis {

class Staging {
 public:
  // `gpu` outlives it; null where nothing is copied to or from a device.
  static Result<Staging> Create(size_t threads, Gpu* gpu);
  Staging() = default;
  Staging(Staging&& other) noexcept
      : memory_(std::move(other.memory_)), gpu_(std::exchange(other.gpu_, nullptr)) {}
  Staging& operator=(Staging&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(gpu_, other.gpu_);
    return *this;
  }
  ~Staging() {
    if (gpu_) gpu_->Unpin(all());
  }
  // `size` is kPieceBytes at most.
  std::span<std::byte> Of(size_t worker, uint64_t size) const;

 private:
  std::span<std::byte> all() const { return {memory_.bytes(), memory_.size()}; }
  Mapping memory_;
  Gpu* gpu_ = nullptr;
};

}  // namespace stasis

#endif  // GHOST_STAGING_H_

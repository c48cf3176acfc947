#include "ghost/staging.h"

#include "dedup/image.h"

namespace stasis {

Result<Staging> Staging::Create(size_t threads, Gpu* gpu) {
  Staging staging;
  ASSIGN_OR_RETURN(staging.memory_, Mapping::Anonymous(threads * kPieceBytes));
  staging.gpu_ = gpu;
  if (gpu) gpu->Pin(staging.all());
  return staging;
}

std::span<std::byte> Staging::Of(size_t worker, uint64_t size) const {
  STASIS_CHECK(size <= kPieceBytes);
  return all().subspan(worker * kPieceBytes, size);
}

}  // namespace stasis

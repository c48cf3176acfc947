#include "cli/service_client.h"

#include <fmt/format.h>

#include <random>

namespace stasis {

std::string NewIdempotencyKey() {
  std::random_device random;
  return fmt::format("cli-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace stasis

#include "environment.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../common/cuda_check.h"
#include "../common/fail.h"

namespace ranks {
namespace {

int IntegerFrom(const char* name, int otherwise, int low, int high) {
  const char* text = getenv(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || errno != 0 || value < low || value > high)
    sample::Fail(sample::kExitUsage, "%s '%s': expected a whole number from %d to %d", name, text, low, high);
  return static_cast<int>(value);
}

}  // namespace

Environment ReadEnvironment() {
  Environment environment;
  environment.ranks = IntegerFrom("WORLD_SIZE", 1, 1, 1024);
  environment.rank = IntegerFrom("RANK", 0, 0, environment.ranks - 1);
  environment.local_rank = IntegerFrom("LOCAL_RANK", environment.rank, 0, environment.ranks - 1);
  environment.port = IntegerFrom("MASTER_PORT", environment.port, 1, 65535);
  // torchrun itself listens there then.
  const char* const taken = getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (taken != nullptr && strcmp(taken, "True") == 0) environment.port += environment.port < 65535 ? 1 : -1;
  if (const char* address = getenv("MASTER_ADDR")) environment.address = address;
  return environment;
}

int ChooseDevice(int chosen, const Environment& environment, int count) {
  if (chosen >= 0) return chosen;
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  return environment.local_rank * count % devices;
}

}  // namespace ranks

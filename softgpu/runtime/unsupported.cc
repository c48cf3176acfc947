#include "softgpu/runtime/unsupported.h"

#include <unistd.h>

#include <cstdio>

#include "softgpu/runtime/errors.h"

namespace softgpu::runtime {

int Unsupported(const char* name, std::atomic<bool>* said) {
  if (!said->exchange(true, std::memory_order_relaxed)) {
    char line[160];
    const int length = std::snprintf(line, sizeof line, "softgpu libcudart: %s is not supported\n", name);
    // One write, so that lines of several threads do not mix; a closed stderr is the program's choice.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(length));
  }
  return Report(cudaErrorNotSupported);
}

}  // namespace softgpu::runtime

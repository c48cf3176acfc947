// For tests: a libcuda.so.1 to be preloaded that passes on to softgpu's, whose cuLaunchKernel returns, where
// the program says so, only when what is in the stream has run: how it looks to a thread that is slow.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>

namespace {

std::atomic<bool> late{false};

}  // namespace

extern "C" __attribute__((visibility("default"))) void LateLaunches(bool on) { late = on; }

extern "C" __attribute__((visibility("default"))) CUresult cuLaunchKernel(
    CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
    unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params, void** extra) {
  static const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(RTLD_NEXT, "cuLaunchKernel"));
  const CUresult result = launch(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                                 stream, params, extra);
  static const auto wait =
      reinterpret_cast<decltype(&cuStreamSynchronize)>(dlsym(RTLD_NEXT, "cuStreamSynchronize"));
  if (late) static_cast<void>(wait(stream));
  return result;
}

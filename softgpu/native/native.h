// Native code as a kernel: how softgpu's stand-ins for NVIDIA's libraries work on a device.
//
// A body is a function of the library. It is launched through cuLaunchKernel like any kernel, so stream
// order, capture into graphs, kernel nodes, events and sticky errors are the driver's own. The kernel is the
// one entry of a small PTX module; its only parameter holds the body's address and a copy of its arguments.
// The module and its handle are reached through `libcuda.so.1` alone, as NVIDIA's libraries reach theirs.
//
// Thread-safe. The library that holds the bodies must stay loaded while launches are in flight.
#ifndef SOFTGPU_NATIVE_NATIVE_H_
#define SOFTGPU_NATIVE_NATIVE_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace softgpu::native {

// What a running body may use. Bodies run on a thread of the driver's that may block: other streams, other
// launches and other processes on the device go on meanwhile. They must not call the CUDA API.
class Device {
 public:
  virtual ~Device() = default;
  // The bytes at a device address, to be read (written) until the body returns. Null where the device may
  // not: the body must then return; the launch has failed with CUDA_ERROR_ILLEGAL_ADDRESS. `bytes` 0 gives
  // non-null.
  virtual const void* Read(uint64_t address, size_t bytes) = 0;
  virtual void* Write(uint64_t address, size_t bytes) = 0;
  // The launch fails as by a trap: CUDA_ERROR_LAUNCH_FAILED, sticky. `why` goes to the log.
  virtual void Fail(const char* why) = 0;
};

using Body = void (*)(const void* arguments, Device& device);

// Of the kernel's parameter, the body's address taken off.
inline constexpr size_t kMaxArguments = 1024 - sizeof(Body);

// Launches `body` in `stream` with a copy of `bytes` bytes at `arguments`. The errors are cuLaunchKernel's
// and those of loading the module; INVALID_VALUE when the arguments do not fit. Needs a current context.
CUresult Launch(CUstream stream, Body body, const void* arguments, size_t bytes);

// The same with a typed argument: Launch<&Gemm>(stream, gemm) calls Gemm(const Gemm&, Device&).
template <auto kBody, typename Arguments>
CUresult Launch(CUstream stream, const Arguments& arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments> && sizeof(Arguments) <= kMaxArguments &&
                alignof(Arguments) <= alignof(Body));
  const Body body = [](const void* bytes, Device& device) {
    kBody(*static_cast<const Arguments*>(bytes), device);
  };
  return Launch(stream, body, &arguments, sizeof arguments);
}

}  // namespace softgpu::native

#endif  // SOFTGPU_NATIVE_NATIVE_H_

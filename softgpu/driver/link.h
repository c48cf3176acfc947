// cuLink*: collects images and hands them out as one.
#ifndef SOFTGPU_DRIVER_LINK_H_
#define SOFTGPU_DRIVER_LINK_H_

#include <cuda.h>

#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "softgpu/driver/code.h"

namespace softgpu {

class LinkState {
 public:
  // The options' arrays stay the program's and are filled until the link state is destroyed (cuLinkCreate).
  LinkState(Device* device, const JitOptions& options) : device_(*device), options_(options) {}
  CUresult Add(CUjitInputType type, std::span<const std::byte> data, const char* name);
  // The result lives as long as the link state.
  CUresult Complete(void** image, size_t* size);

 private:
  CUresult Fail(CUresult result, const std::string& name, const std::string& why);

  Device& device_;
  const JitOptions options_;
  std::mutex mutex_;
  std::string log_;
  std::vector<std::string> units_;
  std::vector<std::byte> image_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_LINK_H_

#include "../common/cuda_check.h"
#include "counter.h"

namespace counter {
namespace {

__device__ unsigned long long device_value;

__global__ void IncrementKernel() { ++device_value; }

class DeviceCounter : public Counter {
 public:
  explicit DeviceCounter(int device) { CUDA_CHECK(cudaSetDevice(device)); }

  uint64_t Increment() override {
    IncrementKernel<<<1, 1>>>();
    CUDA_CHECK_LAUNCH();
    return Value();
  }

  uint64_t Value() override {
    unsigned long long value = 0;
    CUDA_CHECK(cudaMemcpyFromSymbol(&value, device_value, sizeof(value)));
    return value;
  }
};

}  // namespace

std::unique_ptr<Counter> MakeDeviceCounter(int device) {
  auto counter = std::make_unique<DeviceCounter>(device);
  counter->Value();  // a device that does not work should show before the first client comes
  return counter;
}

}  // namespace counter

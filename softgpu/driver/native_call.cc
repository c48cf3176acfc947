#include "softgpu/driver/native_call.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/raw_log.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/sm_pool.h"
#include "softgpu/driver/state.h"
#include "softgpu/native/abi.h"

namespace softgpu {

namespace {

constexpr uint64_t kCheckedAtOnce = uint64_t{2} << 20;  // the most that AccessMap::Allows takes

class NativeDevice final : public native::Device {
 public:
  explicit NativeDevice(Context& context)
      : context_(context), access_(*State::Get()->memory().manager().access_map(context.ordinal())) {}

  const void* Read(uint64_t address, size_t bytes) override { return Check(address, bytes, false); }
  void* Write(uint64_t address, size_t bytes) override { return Check(address, bytes, true); }
  void Fail(const char* why) override { Fault(CUDA_ERROR_LAUNCH_FAILED, why); }
  CUresult result() const { return result_; }

 private:
  void* Check(uint64_t address, size_t bytes, bool write) {
    if (bytes == 0) return this;
    if (Allows(address, bytes, write)) return reinterpret_cast<void*>(address);
    char why[128];
    stasis::RawFormat(why, sizeof why, "may not %s %zu bytes at 0x%llx", write ? "write" : "read", bytes,
                      static_cast<unsigned long long>(address));
    Fault(CUDA_ERROR_ILLEGAL_ADDRESS, why);
    return nullptr;
  }

  bool Allows(uint64_t address, uint64_t bytes, bool write) const {
    if (address + bytes < address) return false;
    for (uint64_t done = 0; done < bytes; done += kCheckedAtOnce) {
      uint64_t part = std::min(kCheckedAtOnce, bytes - done);
      if (!access_.Allows(address + done, static_cast<unsigned>(part), write)) return false;
    }
    return true;
  }

  void Fault(CUresult result, const char* why) {
    if (result_ != CUDA_SUCCESS) return;
    result_ = result;
    if (context_.error() != CUDA_SUCCESS) return;
    stasis::RawLog(stasis::LogLevel::kWarning, "kernel failed: native code: %s", why);
  }

  Context& context_;
  const exec::AccessMap& access_;
  CUresult result_ = CUDA_SUCCESS;
};

// Of the calling thread, what it waited for not counted.
stasis::Duration ComputeTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

CUresult RunNative(Context& context, const std::vector<uint8_t>& params) {
  NativeDevice device(context);
  native::Parameters parameters{};
  if (params.size() == sizeof parameters) std::memcpy(&parameters, params.data(), sizeof parameters);
  if (parameters.body == nullptr) {
    device.Fail("the parameters name no body");
    return device.result();
  }
  stasis::Duration begin = ComputeTime();
  parameters.body(parameters.arguments, device);
  context.sms().SlowDown(ComputeTime() - begin);
  return device.result();
}

}  // namespace softgpu

// Runs PTX text in tests: host memory plays device memory, threads play multiprocessors.
#ifndef SOFTGPU_PTX_EXEC_EXEC_TESTING_H_
#define SOFTGPU_PTX_EXEC_EXEC_TESTING_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/ptx/exec/access_map.h"
#include "softgpu/ptx/exec/grid.h"
#include "softgpu/ptx/exec/program.h"

namespace softgpu::exec {

class TestServices : public DeviceServices {
 public:
  void Print(std::string_view text) override;
  uint64_t Malloc(uint64_t bytes) override;
  void Free(uint64_t address) override;
  const TextureView* FindTexture(uint64_t handle) override;
  const TextureView* FindSurface(uint64_t handle) override;

  std::string printed() const;
  size_t live_allocations() const;
  std::map<uint64_t, TextureView> textures, surfaces;
  AccessMap* access = nullptr;

 private:
  mutable std::mutex mutex_;
  std::string printed_;
  std::map<uint64_t, std::unique_ptr<uint64_t[]>> heap_;
};

// The parameter block of a launch, filled in the order of the kernel's parameters.
class Params {
 public:
  template <typename T>
  Params& Add(T value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    values_.emplace_back(bytes, bytes + sizeof value);
    return *this;
  }
  std::vector<uint8_t> Pack(const KernelInfo& info) const;

 private:
  std::vector<std::vector<uint8_t>> values_;
};

template <typename... Args>
Params Pass(Args... args) {
  Params params;
  (params.Add(args), ...);
  return params;
}

class TestDevice {
 public:
  TestDevice();
  ~TestDevice();

  // Zeroed memory that kernels may use, with a guard region that they may not behind it.
  template <typename T>
  T* Alloc(size_t count, Access access = Access::kReadWrite) {
    return static_cast<T*>(AllocBytes(count * sizeof(T), access));
  }
  // Parses, loads and binds. Fails the test when that fails.
  void Load(const std::string& ptx);
  // The status of parsing and loading.
  static stasis::Status TryLoad(const std::string& ptx);

  // Sets up a launch of `kernel`; tests change what they like before Run.
  LaunchConfig Config(const std::string& kernel, Dim3 grid, Dim3 block, const Params& params);
  Fault Run(LaunchConfig config);
  Fault Launch(const std::string& kernel, Dim3 grid, Dim3 block, const Params& params) {
    return Run(Config(kernel, grid, block, params));
  }

  unsigned workers = 1;
  uint32_t dynamic_shared = 0;
  TestServices services;
  AccessMap& access() { return *access_; }
  const std::shared_ptr<Program>& program() const { return program_; }
  // Address of a module variable.
  void* Global(std::string_view name) const;

 private:
  void* AllocBytes(size_t bytes, Access access);

  std::unique_ptr<AccessMap> access_;
  std::vector<std::pair<void*, size_t>> mappings_;
  std::shared_ptr<Program> program_;
  uint64_t device_base_ = 0, managed_base_ = 0;
};

// ".version 8.8 .target sm_90 .address_size 64" and what a test needs behind it.
std::string Ptx(const std::string& body);

// A kernel "k(out, in)" with registers %p, %h (16 bits), %r, %rd, %f and %fd to use. %r0 = thread index in
// the grid, %rd0 = address of the thread's 32-bit element of out, %rd1 = in. `before` goes in front of the
// kernel.
std::string SimpleKernel(const std::string& body, const std::string& before = "");

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_EXEC_TESTING_H_

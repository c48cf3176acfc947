// Modules: code loaded into one context, with its variables and functions.
#ifndef SOFTGPU_DRIVER_MODULE_H_
#define SOFTGPU_DRIVER_MODULE_H_

#include <cuda.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "softgpu/driver/code.h"
#include "softgpu/ptx/exec/program.h"

namespace softgpu {

class Context;
class Function;
class Library;
class Module;

// What cuFuncSetAttribute and cuKernelSetAttribute change.
struct FunctionSettings {
  std::atomic<int> max_dynamic_shared{-1};  // -1: what fits into 48 KiB beside the static part
  std::atomic<int> carveout{-1};
  std::atomic<int> cluster_width{0}, cluster_height{0}, cluster_depth{0};
  std::atomic<int> non_portable_cluster{0};
  std::atomic<int> cluster_policy{0};
  std::atomic<CUfunc_cache> cache{CU_FUNC_CACHE_PREFER_NONE};
};

// Shared memory of a block: without asking, and at most (CUDA C++ Programming Guide, compute
// capability 12.0).
inline constexpr unsigned kDefaultShared = 48 * 1024;
inline constexpr unsigned kLargestShared = 99 * 1024;

class Function {
 public:
  // `settings` is the library kernel's, or null for settings of its own.
  Function(Context* context, Module* module, std::shared_ptr<exec::Program> program,
           const exec::Kernel* kernel, std::shared_ptr<FunctionSettings> settings);

  Context& context() const { return *context_; }
  Module* module() const { return module_; }
  CUfunction handle() { return reinterpret_cast<CUfunction>(this); }
  const std::shared_ptr<exec::Program>& program() const { return program_; }
  const exec::Kernel* kernel() const { return kernel_; }
  const exec::KernelInfo& info() const { return exec::InfoOf(*kernel_); }
  FunctionSettings& settings() const { return *settings_; }

 private:
  Context* const context_;
  Module* const module_;
  const std::shared_ptr<exec::Program> program_;
  const exec::Kernel* const kernel_;
  const std::shared_ptr<FunctionSettings> settings_;
};

// INVALID_VALUE for attributes that cuda.h does not have.
CUresult GetAttribute(const exec::KernelInfo& info, const exec::Program& program,
                      const FunctionSettings& settings, CUfunction_attribute attribute, int* value);
CUresult SetAttribute(const exec::KernelInfo& info, FunctionSettings& settings,
                      CUfunction_attribute attribute, int value);

class Module {
 public:
  // Takes memory for the variables and binds the program. `managed_base` is used for managed variables when
  // not 0.
  static CUresult Create(Context& context, std::shared_ptr<exec::Program> program, Library* library,
                         CUdeviceptr managed_base, std::shared_ptr<Module>* out);
  Module(Context* context, std::shared_ptr<exec::Program> program, Library* library);
  ~Module();

  Context& context() const { return *context_; }
  Library* library() const { return library_; }
  CUmodule handle() { return reinterpret_cast<CUmodule>(this); }
  const exec::Program& program() const { return *program_; }
  const std::vector<std::shared_ptr<Function>>& functions() const { return functions_; }
  // Null: none of that name.
  std::shared_ptr<Function> Find(std::string_view name) const;
  // False: none of that name.
  bool FindGlobal(std::string_view name, CUdeviceptr* address, size_t* bytes) const;
  CUdeviceptr managed_base() const { return managed_base_; }
  // Gives the memory back; the context's work has ended.
  void FreeMemory();

 private:
  CUresult Bind(CUdeviceptr managed_base);

  Context* const context_;
  const std::shared_ptr<exec::Program> program_;
  Library* const library_;
  CUdeviceptr device_base_ = 0, managed_base_ = 0;
  bool owns_managed_ = false;
  std::vector<std::shared_ptr<Function>> functions_;
};

// Makes a module known by its handle, and its functions by theirs; the reverse.
void Publish(const std::shared_ptr<Module>& module);
void Withdraw(Module& module);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MODULE_H_

// Libraries: code that belongs to no context; each context gets its module of it when it first needs it.
#ifndef SOFTGPU_DRIVER_LIBRARY_H_
#define SOFTGPU_DRIVER_LIBRARY_H_

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/driver/module.h"

namespace softgpu {

class Context;
class Library;

// A kernel of a library; a CUfunction of each context stands behind it.
class Kernel {
 public:
  Kernel(Library* library, const exec::Kernel* kernel, int devices);
  Library* library() const { return library_; }
  CUkernel handle() { return reinterpret_cast<CUkernel>(this); }
  const std::string& name() const { return info().name; }
  const exec::KernelInfo& info() const { return exec::InfoOf(*kernel_); }
  const std::shared_ptr<FunctionSettings>& settings(int device) const {
    return settings_[static_cast<size_t>(device)];
  }

 private:
  Library* const library_;
  const exec::Kernel* const kernel_;
  std::vector<std::shared_ptr<FunctionSettings>> settings_;  // by device
};

// Thread-safe. Its lock is a module lock (state.h).
class Library {
 public:
  Library(Code code, int devices);

  CUlibrary handle() { return reinterpret_cast<CUlibrary>(this); }
  const exec::Program& program() const { return *first_; }
  const std::vector<std::shared_ptr<Kernel>>& kernels() const { return kernels_; }
  std::shared_ptr<Kernel> Find(std::string_view name) const;
  // Null for kernels that the library does not have.
  std::shared_ptr<FunctionSettings> SettingsOf(std::string_view kernel, int device) const;
  // The context's module, loaded now if need be.
  CUresult ModuleFor(Context& context, std::shared_ptr<Module>* out);
  // The function behind `kernel` in the context.
  CUresult FunctionFor(Context& context, const Kernel& kernel, std::shared_ptr<Function>* out);
  // Its memory is gone.
  void ContextDestroyed(const Context& context);
  // Takes all modules out; their contexts' work has ended.
  void Unload();
  std::vector<std::shared_ptr<Module>> Modules() const;

 private:
  const ptx::Module source_;
  const std::shared_ptr<exec::Program> first_;  // used by the first context, and for queries
  std::vector<std::shared_ptr<Kernel>> kernels_;
  mutable std::mutex mutex_;
  bool first_used_ = false;
  std::map<const Context*, std::shared_ptr<Module>> modules_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_LIBRARY_H_

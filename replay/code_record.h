// Device code and what is found in it: libraries, modules, kernels, functions.
#ifndef REPLAY_CODE_RECORD_H_
#define REPLAY_CODE_RECORD_H_

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replay/code_image.h"
#include "replay/context_record.h"
#include "replay/jit_options.h"
#include "replay/module_variables.h"
#include "replay/object_table.h"

namespace stasis::replay {

// Code that a program loaded, with the options it gave.
struct LoadedCode {
  std::shared_ptr<CodeImage> image;
  JitOptions jit;
  std::vector<CUlibraryOption> library_options;
  std::vector<void*> library_values;
};

class LibraryRecord final : public Record {
 public:
  explicit LibraryRecord(LoadedCode code) : Record(ObjectKind::kLibrary), code_(std::move(code)) {}
  CUlibrary real_library() const { return reinterpret_cast<CUlibrary>(real()); }

  Status Check() override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;
  void Rebuilt() override;
  void AddPlaces(PageSet* pages) const;

 private:
  Result<CUlibrary> Load() const;
  Status Place(CUlibrary library, PageSet* wrong);

  const LoadedCode code_;
  // Of each context in which the library has variables.
  std::vector<std::pair<ContextPtr, ModuleVariables>> variables_;
};
using LibraryPtr = std::shared_ptr<LibraryRecord>;

// Loaded by itself into one context, or a library's in one context.
class ModuleRecord final : public Record {
 public:
  ModuleRecord(ContextPtr context, LoadedCode code);
  ModuleRecord(ContextPtr context, LibraryPtr library);
  CUmodule real_module() const { return reinterpret_cast<CUmodule>(real()); }
  const ContextPtr& context() const { return context_; }

  Status Check() override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;
  void Rebuilt() override { variables_.Forget(); }
  void AddPlaces(PageSet* pages) const { variables_.AddPlaces(pages); }

 private:
  Result<CUmodule> Load() const;

  const ContextPtr context_;
  const LibraryPtr library_;  // null for one of its own
  const LoadedCode code_;
  ModuleVariables variables_;
};

// What the program set about a kernel (on one device) or function. Thread-safe.
class FunctionSettings {
 public:
  void SetAttribute(CUfunction_attribute attribute, int value);
  void SetCacheConfig(CUfunc_cache config);
  template <typename Attribute, typename Cache>
  Status Restore(Attribute set_attribute, Cache set_cache) const {
    for (const auto& [attribute, value] : attributes_)
      RETURN_IF_ERROR(set_attribute(static_cast<CUfunction_attribute>(attribute), value));
    return cache_.has_value() ? set_cache(*cache_) : Status();
  }

 private:
  std::mutex mutex_;
  std::map<int, int> attributes_;
  std::optional<CUfunc_cache> cache_;
};

class KernelRecord final : public Record {
 public:
  KernelRecord(LibraryPtr library, std::string name);
  CUkernel real_kernel() const { return reinterpret_cast<CUkernel>(real()); }
  const LibraryPtr& library() const { return library_; }
  // `device`: virtual ordinal. Valid as long as the record.
  FunctionSettings& settings(int device);

  Status Destroy() override { return {}; }
  Result<uint64_t> Rebuild() override;

 private:
  const LibraryPtr library_;
  const std::string name_;
  std::mutex mutex_;
  std::map<int, FunctionSettings> settings_;
};

class FunctionRecord final : public Record {
 public:
  // Found in a module by name, or behind a kernel in a context.
  FunctionRecord(std::shared_ptr<ModuleRecord> module, std::string name);
  FunctionRecord(ContextPtr context, std::shared_ptr<KernelRecord> kernel);
  FunctionSettings& settings() { return settings_; }
  // Turns the driver's handle of this function's module into the visible one.
  void ShowModule(CUmodule* module) const;

  Status Check() override;
  Status Destroy() override { return {}; }
  Result<uint64_t> Rebuild() override;

 private:
  Result<CUfunction> Find() const;

  const std::shared_ptr<ModuleRecord> module_;
  const ContextPtr context_;
  const std::shared_ptr<KernelRecord> kernel_;
  const std::string name_;
  FunctionSettings settings_;
};

// ---- For the hooks: each turns the driver's handle into the visible one, making a record when there is
// none.

void ShowKernel(const LibraryPtr& library, CUkernel* kernel);
void ShowFunction(const std::shared_ptr<ModuleRecord>& module, CUfunction* function);
void ShowKernelFunction(const std::shared_ptr<KernelRecord>& kernel, CUfunction* function);
// Of the current context.
void ShowLibraryModule(const LibraryPtr& library, CUmodule* module);

// ---- For the pause.

// Where variables of loaded code lie, as of the last Save().
PageSet VariablePlaces();

}  // namespace stasis::replay

#endif  // REPLAY_CODE_RECORD_H_

// Modules and functions.
#include <cstring>
#include <utility>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/library.h"
#include "softgpu/driver/module.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/state.h"

using softgpu::Code;
using softgpu::Entry;
using softgpu::Function;
using softgpu::JitOptions;
using softgpu::Module;

namespace {

CUresult LoadModule(CUmodule* out, const void* image, unsigned count, CUjit_option* options, void** values) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUresult result = JitOptions::Read(count, options, values, &jit);
  Code code;
  if (result == CUDA_SUCCESS) result = softgpu::LoadImage(image, entry.context().device(), jit, &code);
  std::shared_ptr<Module> module;
  if (result == CUDA_SUCCESS)
    result = Module::Create(entry.context(), std::move(code.program), nullptr, 0, &module);
  if (result != CUDA_SUCCESS) return result;
  softgpu::Publish(module);
  entry.context().print().Show();
  *out = module->handle();
  return CUDA_SUCCESS;
}

// The function a query names; queries work in any context that has one.
CUresult WithFunction(CUfunction handle, const void* out, std::shared_ptr<Function>* function) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return softgpu::ResolveFunction(entry.context(), handle, function);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* fname) {
  if (fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> bytes;
  {
    Entry entry;
    if (!entry.ok()) return entry.result();
    CUresult read = softgpu::ReadFile(fname, &bytes);
    if (read != CUDA_SUCCESS) return read;
  }
  // PTX ends with a NUL; files do not have one.
  bytes.push_back(std::byte{0});
  return LoadModule(module, bytes.data(), 0, nullptr, nullptr);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  return LoadModule(module, image, 0, nullptr, nullptr);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                    CUjit_option* options, void** optionValues) {
  return LoadModule(module, image, numOptions, options, optionValues);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return LoadModule(module, fatCubin, 0, nullptr, nullptr);
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Module> module = entry.state().modules.Find(hmod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module->library() != nullptr) return CUDA_ERROR_NOT_PERMITTED;
  softgpu::Withdraw(*module);
  module->context().Drain();
  module->context().print().Show();
  module->FreeMemory();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  Entry entry(softgpu::Need::kInit);
  if (!entry.ok()) return entry.result();
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = entry.state().settings().eager_loading ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (hfunc == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module = entry.state().modules.Find(hmod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Function> function = module->Find(name);
  if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
  *hfunc = function->handle();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module = entry.state().modules.Find(mod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->functions().size());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions, CUmodule mod) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (functions == nullptr || numFunctions == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module = entry.state().modules.Find(mod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  size_t count = std::min<size_t>(numFunctions, module->functions().size());
  for (size_t i = 0; i < count; i++) functions[i] = module->functions()[i]->handle();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module = entry.state().modules.Find(hmod);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return module->FindGlobal(name, dptr, bytes) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  std::shared_ptr<Function> function;
  CUresult result = WithFunction(hfunc, pi, &function);
  if (result != CUDA_SUCCESS) return result;
  return softgpu::GetAttribute(function->info(), *function->program(), function->settings(), attrib, pi);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  std::shared_ptr<Function> function;
  CUresult result = WithFunction(hfunc, &value, &function);
  if (result != CUDA_SUCCESS) return result;
  return softgpu::SetAttribute(function->info(), function->settings(), attrib, value);
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  std::shared_ptr<Function> function;
  CUresult result = WithFunction(hfunc, &config, &function);
  if (result != CUDA_SUCCESS) return result;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  function->settings().cache.store(config);
  return CUDA_SUCCESS;
}

// Taken and without effect, as on every device with fixed banks.
CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  std::shared_ptr<Function> function;
  return WithFunction(hfunc, &config, &function);
}

CUresult CUDAAPI cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  std::shared_ptr<Function> function;
  CUresult result = WithFunction(hfunc, hmod, &function);
  if (result == CUDA_SUCCESS) *hmod = function->module()->handle();
  return result;
}

CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction hfunc) {
  std::shared_ptr<Function> function;
  CUresult result = WithFunction(hfunc, name, &function);
  if (result == CUDA_SUCCESS) *name = function->info().name.c_str();
  return result;
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                                    size_t* paramSize) {
  std::shared_ptr<Function> function;
  CUresult result = WithFunction(func, paramOffset, &function);
  if (result != CUDA_SUCCESS) return result;
  if (paramIndex >= function->info().params.size()) return CUDA_ERROR_INVALID_VALUE;
  *paramOffset = function->info().params[paramIndex].offset;
  if (paramSize != nullptr) *paramSize = function->info().params[paramIndex].size;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  std::shared_ptr<Function> found;
  CUresult result = WithFunction(function, state, &found);
  if (result == CUDA_SUCCESS) *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return result;
}

CUresult CUDAAPI cuFuncLoad(CUfunction function) {
  std::shared_ptr<Function> found;
  return WithFunction(function, &function, &found);
}

}  // extern "C"

// Libraries and kernels.
#include <algorithm>
#include <utility>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/library.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/state.h"

using softgpu::Code;
using softgpu::Device;
using softgpu::Entry;
using softgpu::Function;
using softgpu::JitOptions;
using softgpu::Kernel;
using softgpu::Library;
using softgpu::Module;
using softgpu::Need;
using softgpu::State;

namespace {

CUresult LoadLibrary(Entry& entry, CUlibrary* out, const void* image, CUjit_option* jit_options,
                     void** jit_values, unsigned jit_count) {
  State& state = entry.state();
  JitOptions jit;
  CUresult result = JitOptions::Read(jit_count, jit_options, jit_values, &jit);
  Code code;
  // All devices of a node are alike, so the first one decides what fits.
  if (result == CUDA_SUCCESS) result = softgpu::LoadImage(image, *state.devices().front(), jit, &code);
  if (result != CUDA_SUCCESS) return result;
  auto library = std::make_shared<Library>(std::move(code), static_cast<int>(state.devices().size()));
  for (const std::shared_ptr<Kernel>& kernel : library->kernels()) state.kernels.Add(kernel);
  *out = state.libraries.Add(std::move(library));
  return CUDA_SUCCESS;
}

CUresult CheckOptions(CUlibraryOption* options, unsigned count) {
  if (count != 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] < 0 || options[i] >= CU_LIBRARY_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// The checks that all queries of kernels share.
CUresult WithKernel(Entry& entry, CUkernel handle, const void* out, std::shared_ptr<Kernel>* kernel) {
  if (!entry.ok()) return entry.result();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *kernel = entry.state().kernels.Find(handle);
  return *kernel != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult FindVariable(CUdeviceptr* address, size_t* bytes, CUlibrary handle, const char* name, bool managed) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> library = entry.state().libraries.Find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const softgpu::exec::GlobalInfo* global = library->program().FindGlobal(name);
  if (global == nullptr || (managed && !global->managed)) return CUDA_ERROR_NOT_FOUND;
  std::shared_ptr<Module> module;
  CUresult result = library->ModuleFor(entry.context(), &module);
  if (result != CUDA_SUCCESS) return result;
  return module->FindGlobal(name, address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                   void** jitOptionsValues, unsigned int numJitOptions,
                                   CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                   unsigned int numLibraryOptions) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  static_cast<void>(libraryOptionValues);
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult checked = CheckOptions(libraryOptions, numLibraryOptions);
  if (checked != CUDA_SUCCESS) return checked;
  return LoadLibrary(entry, library, code, jitOptions, jitOptionsValues, numJitOptions);
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                                       void** jitOptionsValues, unsigned int numJitOptions,
                                       CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                       unsigned int numLibraryOptions) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  static_cast<void>(libraryOptionValues);
  if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CheckOptions(libraryOptions, numLibraryOptions);
  std::vector<std::byte> bytes;
  if (result == CUDA_SUCCESS) result = softgpu::ReadFile(fileName, &bytes);
  if (result != CUDA_SUCCESS) return result;
  bytes.push_back(std::byte{0});
  return LoadLibrary(entry, library, bytes.data(), jitOptions, jitOptionsValues, numJitOptions);
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Library> found = entry.state().libraries.Remove(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const std::shared_ptr<Kernel>& kernel : found->kernels())
    entry.state().kernels.Remove(kernel->handle());
  for (const std::shared_ptr<Module>& module : found->Modules()) {
    module->context().Drain();
    module->context().print().Show();
  }
  found->Unload();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> found = entry.state().libraries.Find(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Kernel> kernel = found->Find(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  *pKernel = kernel->handle();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> found = entry.state().libraries.Find(lib);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(found->kernels().size());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (kernels == nullptr || numKernels == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> found = entry.state().libraries.Find(lib);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  size_t count = std::min<size_t>(numKernels, found->kernels().size());
  for (size_t i = 0; i < count; i++) kernels[i] = found->kernels()[i]->handle();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> found = entry.state().libraries.Find(library);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Module> module;
  CUresult result = found->ModuleFor(entry.context(), &module);
  if (result == CUDA_SUCCESS) *pMod = module->handle();
  return result;
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return FindVariable(dptr, bytes, library, name, false);
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return FindVariable(dptr, bytes, library, name, true);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  Entry entry;
  std::shared_ptr<Kernel> found;
  CUresult result = WithKernel(entry, kernel, pFunc, &found);
  std::shared_ptr<Function> function;
  if (result == CUDA_SUCCESS) result = found->library()->FunctionFor(entry.context(), *found, &function);
  if (result == CUDA_SUCCESS) *pFunc = function->handle();
  return result;
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  Entry entry(Need::kInit);
  std::shared_ptr<Kernel> found;
  CUresult result = WithKernel(entry, kernel, pLib, &found);
  if (result == CUDA_SUCCESS) *pLib = found->library()->handle();
  return result;
}

CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel hfunc) {
  Entry entry(Need::kInit);
  std::shared_ptr<Kernel> found;
  CUresult result = WithKernel(entry, hfunc, name, &found);
  if (result == CUDA_SUCCESS) *name = found->name().c_str();
  return result;
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                                      size_t* paramSize) {
  Entry entry(Need::kInit);
  std::shared_ptr<Kernel> found;
  CUresult result = WithKernel(entry, kernel, paramOffset, &found);
  if (result != CUDA_SUCCESS) return result;
  if (paramIndex >= found->info().params.size()) return CUDA_ERROR_INVALID_VALUE;
  *paramOffset = found->info().params[paramIndex].offset;
  if (paramSize != nullptr) *paramSize = found->info().params[paramIndex].size;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  Entry entry(Need::kInit);
  std::shared_ptr<Kernel> found;
  CUresult result = WithKernel(entry, kernel, pi, &found);
  if (result != CUDA_SUCCESS) return result;
  if (entry.state().FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return softgpu::GetAttribute(found->info(), found->library()->program(), *found->settings(dev), attrib, pi);
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  Entry entry(Need::kInit);
  std::shared_ptr<Kernel> found;
  CUresult result = WithKernel(entry, kernel, &val, &found);
  if (result != CUDA_SUCCESS) return result;
  if (entry.state().FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return softgpu::SetAttribute(found->info(), *found->settings(dev), attrib, val);
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  Entry entry(Need::kInit);
  std::shared_ptr<Kernel> found;
  CUresult result = WithKernel(entry, kernel, &config, &found);
  if (result != CUDA_SUCCESS) return result;
  if (entry.state().FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  found->settings(dev)->cache.store(config);
  return CUDA_SUCCESS;
}

}  // extern "C"

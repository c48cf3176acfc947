// Libraries: device code that belongs to no context, and its kernels.
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/code_record.h"

namespace stasis::hooks {
namespace {

using replay::CodeImage;
using replay::FindAs;
using replay::JitOptions;
using replay::KernelRecord;
using replay::LibraryRecord;
using replay::LoadedCode;

LoadedCode KeepOptions(unsigned jit_count, const CUjit_option* jit, void* const* jit_values, unsigned count,
                       const CUlibraryOption* options, void* const* values) {
  LoadedCode code{nullptr, JitOptions(jit_count, jit, jit_values), {}, {}};
  for (unsigned i = 0; options != nullptr && i < count; ++i) {
    code.library_options.push_back(options[i]);
    code.library_values.push_back(values != nullptr ? values[i] : nullptr);
  }
  return code;
}

void Loaded(CUlibrary* library, LoadedCode code) {
  replay::AddRecord(std::make_shared<LibraryRecord>(std::move(code)), library);
}

}  // namespace

CUresult cuLibraryLoadData(const Call& call, CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  LoadedCode kept = KeepOptions(numJitOptions, jitOptions, jitOptionsValues, numLibraryOptions,
                                libraryOptions, libraryOptionValues);
  const CUresult result =
      call.Real<decltype(&::cuLibraryLoadData)>()(library, code, jitOptions, jitOptionsValues, numJitOptions,
                                                  libraryOptions, libraryOptionValues, numLibraryOptions);
  if (result != CUDA_SUCCESS) return result;
  kept.image = CodeImage::Keep(code);
  Loaded(library, std::move(kept));
  return result;
}

CUresult cuLibraryLoadFromFile(const Call& call, CUlibrary* library, const char* fileName,
                               CUjit_option* jitOptions, void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  LoadedCode kept = KeepOptions(numJitOptions, jitOptions, jitOptionsValues, numLibraryOptions,
                                libraryOptions, libraryOptionValues);
  const CUresult result = call.Real<decltype(&::cuLibraryLoadFromFile)>()(
      library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
      numLibraryOptions);
  if (result != CUDA_SUCCESS) return result;
  kept.image = CodeImage::KeepFile(fileName);
  Loaded(library, std::move(kept));
  return result;
}

CUresult cuLibraryUnload(const Call& call, CUlibrary library) {
  const auto record = FindAs<LibraryRecord>(library);
  const CUresult result = call.Real<decltype(&::cuLibraryUnload)>()(replay::ToReal(library));
  if (result == CUDA_SUCCESS && record != nullptr) replay::ObjectTable::Get().Remove(record);
  return result;
}

CUresult cuLibraryGetKernel(const Call& call, CUkernel* pKernel, CUlibrary library, const char* name) {
  const CUresult result =
      call.Real<decltype(&::cuLibraryGetKernel)>()(pKernel, replay::ToReal(library), name);
  if (result == CUDA_SUCCESS) replay::ShowKernel(FindAs<LibraryRecord>(library), pKernel);
  return result;
}

CUresult cuLibraryEnumerateKernels(const Call& call, CUkernel* kernels, unsigned int numKernels,
                                   CUlibrary lib) {
  const CUresult result =
      call.Real<decltype(&::cuLibraryEnumerateKernels)>()(kernels, numKernels, replay::ToReal(lib));
  unsigned count = 0;
  if (result != CUDA_SUCCESS || Driver().cuLibraryGetKernelCount(&count, replay::ToReal(lib)) != CUDA_SUCCESS)
    return result;
  const auto library = FindAs<LibraryRecord>(lib);
  for (unsigned i = 0; i < std::min(count, numKernels); ++i) replay::ShowKernel(library, &kernels[i]);
  return result;
}

CUresult cuLibraryGetModule(const Call& call, CUmodule* pMod, CUlibrary library) {
  const CUresult result = call.Real<decltype(&::cuLibraryGetModule)>()(pMod, replay::ToReal(library));
  if (result == CUDA_SUCCESS) replay::ShowLibraryModule(FindAs<LibraryRecord>(library), pMod);
  return result;
}

CUresult cuKernelGetFunction(const Call& call, CUfunction* pFunc, CUkernel kernel) {
  const CUresult result = call.Real<decltype(&::cuKernelGetFunction)>()(pFunc, replay::ToReal(kernel));
  if (result == CUDA_SUCCESS) replay::ShowKernelFunction(FindAs<KernelRecord>(kernel), pFunc);
  return result;
}

CUresult cuKernelSetAttribute(const Call& call, CUfunction_attribute attrib, int val, CUkernel kernel,
                              CUdevice dev) {
  const CUresult result = call.Real<decltype(&::cuKernelSetAttribute)>()(attrib, val, replay::ToReal(kernel),
                                                                         PhysicalDevice(dev));
  const auto record = result == CUDA_SUCCESS ? FindAs<KernelRecord>(kernel) : nullptr;
  if (record != nullptr) record->settings(dev).SetAttribute(attrib, val);
  return result;
}

CUresult cuKernelSetCacheConfig(const Call& call, CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  const CUresult result =
      call.Real<decltype(&::cuKernelSetCacheConfig)>()(replay::ToReal(kernel), config, PhysicalDevice(dev));
  const auto record = result == CUDA_SUCCESS ? FindAs<KernelRecord>(kernel) : nullptr;
  if (record != nullptr) record->settings(dev).SetCacheConfig(config);
  return result;
}

}  // namespace stasis::hooks

// Modules: device code loaded into one context.
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/code_record.h"

namespace stasis::hooks {
namespace {

using replay::CodeImage;
using replay::FindAs;
using replay::JitOptions;
using replay::LoadedCode;
using replay::ModuleRecord;

void Loaded(CUmodule* module, std::shared_ptr<CodeImage> image, JitOptions options = {}) {
  LoadedCode code{std::move(image), std::move(options), {}, {}};
  replay::AddRecord(std::make_shared<ModuleRecord>(replay::CurrentContextRecord(), std::move(code)), module);
}

}  // namespace

CUresult cuModuleLoad(const Call& call, CUmodule* module, const char* fname) {
  const CUresult result = call.Real<decltype(&::cuModuleLoad)>()(module, fname);
  if (result == CUDA_SUCCESS) Loaded(module, CodeImage::KeepFile(fname));
  return result;
}

CUresult cuModuleLoadData(const Call& call, CUmodule* module, const void* image) {
  const CUresult result = call.Real<decltype(&::cuModuleLoadData)>()(module, image);
  if (result == CUDA_SUCCESS) Loaded(module, CodeImage::Keep(image));
  return result;
}

CUresult cuModuleLoadDataEx(const Call& call, CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  JitOptions kept(numOptions, options, optionValues);  // before the driver fills some of the values
  const CUresult result =
      call.Real<decltype(&::cuModuleLoadDataEx)>()(module, image, numOptions, options, optionValues);
  if (result == CUDA_SUCCESS) Loaded(module, CodeImage::Keep(image), std::move(kept));
  return result;
}

CUresult cuModuleLoadFatBinary(const Call& call, CUmodule* module, const void* fatCubin) {
  const CUresult result = call.Real<decltype(&::cuModuleLoadFatBinary)>()(module, fatCubin);
  if (result == CUDA_SUCCESS) Loaded(module, CodeImage::Keep(fatCubin));
  return result;
}

CUresult cuModuleUnload(const Call& call, CUmodule hmod) {
  const auto record = FindAs<ModuleRecord>(hmod);
  const CUresult result = call.Real<decltype(&::cuModuleUnload)>()(replay::ToReal(hmod));
  if (result == CUDA_SUCCESS && record != nullptr) replay::ObjectTable::Get().Remove(record);
  return result;
}

CUresult cuModuleGetFunction(const Call& call, CUfunction* hfunc, CUmodule hmod, const char* name) {
  const CUresult result = call.Real<decltype(&::cuModuleGetFunction)>()(hfunc, replay::ToReal(hmod), name);
  if (result != CUDA_SUCCESS) return result;
  replay::ShowFunction(FindAs<ModuleRecord>(hmod), hfunc);
  return result;
}

CUresult cuModuleEnumerateFunctions(const Call& call, CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  const CUresult result =
      call.Real<decltype(&::cuModuleEnumerateFunctions)>()(functions, numFunctions, replay::ToReal(mod));
  unsigned count = 0;
  if (result != CUDA_SUCCESS ||
      Driver().cuModuleGetFunctionCount(&count, replay::ToReal(mod)) != CUDA_SUCCESS)
    return result;
  const auto module = FindAs<ModuleRecord>(mod);
  for (unsigned i = 0; i < std::min(count, numFunctions); ++i) replay::ShowFunction(module, &functions[i]);
  return result;
}

}  // namespace stasis::hooks

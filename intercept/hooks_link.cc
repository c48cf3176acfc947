// Linking of device code.
#include "intercept/taint.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/link_record.h"

namespace stasis::hooks {
namespace {

using replay::FindAs;
using replay::LinkRecord;

CUresult Create(const Call& call, unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  const CUresult result = call.Real<decltype(&::cuLinkCreate_v2)>()(count, options, values, state);
  if (result == CUDA_SUCCESS) replay::AddRecord(std::make_shared<LinkRecord>(), state);
  return result;
}

// A completed link that has been rebuilt exists here only; it takes no more inputs, as in the driver.
bool OnlyHere(const std::shared_ptr<LinkRecord>& link) { return link != nullptr && link->real() == 0; }

CUresult AddData(const Call& call, CUlinkState state, CUjitInputType type, void* data, size_t size,
                 const char* name, unsigned count, CUjit_option* options, void** values) {
  const auto link = FindAs<LinkRecord>(state);
  if (OnlyHere(link)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = call.Real<decltype(&::cuLinkAddData_v2)>()(replay::ToReal(state), type, data, size,
                                                                     name, count, options, values);
  if (result == CUDA_SUCCESS && link != nullptr) link->AddInput(data, size);
  return result;
}

CUresult AddFile(const Call& call, CUlinkState state, CUjitInputType type, const char* path, unsigned count,
                 CUjit_option* options, void** values) {
  const auto link = FindAs<LinkRecord>(state);
  if (OnlyHere(link)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result =
      call.Real<decltype(&::cuLinkAddFile_v2)>()(replay::ToReal(state), type, path, count, options, values);
  if (result == CUDA_SUCCESS && link != nullptr) link->AddInputFile(path);
  return result;
}

}  // namespace

CUresult cuLinkCreate(const Call& call, unsigned int numOptions, CUjit_option* options, void** optionValues,
                      CUlinkState* stateOut) {
  return Create(call, numOptions, options, optionValues, stateOut);
}
CUresult cuLinkCreate_v2(const Call& call, unsigned int numOptions, CUjit_option* options,
                         void** optionValues, CUlinkState* stateOut) {
  return Create(call, numOptions, options, optionValues, stateOut);
}

CUresult cuLinkAddData(const Call& call, CUlinkState state, CUjitInputType type, void* data, size_t size,
                       const char* name, unsigned int numOptions, CUjit_option* options,
                       void** optionValues) {
  return AddData(call, state, type, data, size, name, numOptions, options, optionValues);
}
CUresult cuLinkAddData_v2(const Call& call, CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int numOptions, CUjit_option* options,
                          void** optionValues) {
  return AddData(call, state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile(const Call& call, CUlinkState state, CUjitInputType type, const char* path,
                       unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return AddFile(call, state, type, path, numOptions, options, optionValues);
}
CUresult cuLinkAddFile_v2(const Call& call, CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return AddFile(call, state, type, path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(const Call& call, CUlinkState state, void** cubinOut, size_t* sizeOut) {
  const auto link = FindAs<LinkRecord>(state);
  void* image = nullptr;
  size_t size = 0;
  if (!OnlyHere(link)) {
    if (cubinOut == nullptr || link == nullptr)
      return call.Real<decltype(&::cuLinkComplete)>()(replay::ToReal(state), cubinOut, sizeOut);
    const CUresult result = call.Real<decltype(&::cuLinkComplete)>()(replay::ToReal(state), &image, &size);
    if (result != CUDA_SUCCESS) return result;
  } else if (cubinOut == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::span<std::byte> kept = link->Complete(image, size);
  *cubinOut = kept.data();
  if (sizeOut != nullptr) *sizeOut = kept.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(const Call& call, CUlinkState state) {
  const auto link = FindAs<LinkRecord>(state);
  const CUresult result =
      OnlyHere(link) ? CUDA_SUCCESS : call.Real<decltype(&::cuLinkDestroy)>()(replay::ToReal(state));
  if (result == CUDA_SUCCESS && link != nullptr) replay::ObjectTable::Get().Remove(link);
  return result;
}

}  // namespace stasis::hooks

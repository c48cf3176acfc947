#include "softgpu/driver/link.h"

#include <cstring>
#include <utility>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/state.h"
#include "softgpu/ptx/image.h"
#include "softgpu/ptx/parser.h"

namespace softgpu {

CUresult LinkState::Fail(CUresult result, const std::string& name, const std::string& why) {
  log_ += name.empty() ? why + "\n" : name + ": " + why + "\n";
  options_.Report("", log_);
  return result;
}

CUresult LinkState::Add(CUjitInputType type, std::span<const std::byte> data, const char* name) {
  std::lock_guard lock(mutex_);
  std::string label = name != nullptr ? name : "";
  if (type < 0 || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  if (!image_.empty()) return CUDA_ERROR_INVALID_HANDLE;
  if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY && type != CU_JIT_INPUT_CUBIN) {
    return Fail(CUDA_ERROR_NOT_SUPPORTED, label, "only PTX and fat binaries can be linked");
  }
  // PTX as data may or may not count its final NUL.
  if (type == CU_JIT_INPUT_PTX) {
    std::string text(reinterpret_cast<const char*>(data.data()), data.size());
    text.resize(std::strlen(text.c_str()));
    stasis::Result<ptx::Module> parsed = ptx::Parse(text);
    if (!parsed.ok()) return Fail(CUDA_ERROR_INVALID_PTX, label, std::string(parsed.status().message()));
    units_.push_back(std::move(text));
    return CUDA_SUCCESS;
  }
  stasis::Result<std::vector<std::string>> texts = ptx::ReadImage(
      data, static_cast<int>(device_.info().compute_major), static_cast<int>(device_.info().compute_minor));
  if (!texts.ok()) {
    bool none = texts.status().code() == stasis::StatusCode::kUnsupported;
    return Fail(none ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE, label,
                std::string(texts.status().message()));
  }
  for (std::string& text : *texts) units_.push_back(std::move(text));
  return CUDA_SUCCESS;
}

CUresult LinkState::Complete(void** image, size_t* size) {
  std::lock_guard lock(mutex_);
  if (image_.empty()) {
    Code code;
    std::string log;
    CUresult result = units_.empty() ? CUDA_ERROR_INVALID_VALUE : LoadTexts(units_, &code, &log);
    if (result != CUDA_SUCCESS) return Fail(result, "", log);
    image_ = ptx::PackLinked(units_);
  }
  *image = image_.data();
  if (size != nullptr) *size = image_.size();
  options_.Report("", log_);
  return CUDA_SUCCESS;
}

}  // namespace softgpu

using softgpu::Entry;
using softgpu::JitOptions;
using softgpu::LinkState;

extern "C" {

CUresult CUDAAPI cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                                 CUlinkState* stateOut) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUresult read = JitOptions::Read(numOptions, options, optionValues, &jit);
  if (read != CUDA_SUCCESS) return read;
  *stateOut = entry.state().links.Add(std::make_shared<LinkState>(&entry.context().device(), jit));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                                  const char* name, unsigned int numOptions, CUjit_option* options,
                                  void** optionValues) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<LinkState> link = entry.state().links.Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUresult read = JitOptions::Read(numOptions, options, optionValues, &jit);
  if (read != CUDA_SUCCESS) return read;
  return link->Add(type, std::span(static_cast<const std::byte*>(data), size), name);
}

CUresult CUDAAPI cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                                  unsigned int numOptions, CUjit_option* options, void** optionValues) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<LinkState> link = entry.state().links.Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUresult read = JitOptions::Read(numOptions, options, optionValues, &jit);
  if (read != CUDA_SUCCESS) return read;
  std::vector<std::byte> bytes;
  CUresult found = softgpu::ReadFile(path, &bytes);
  return found == CUDA_SUCCESS ? link->Add(type, bytes, path) : found;
}

CUresult CUDAAPI cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<LinkState> link = entry.state().links.Find(state);
  if (link == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return link->Complete(cubinOut, sizeOut);
}

CUresult CUDAAPI cuLinkDestroy(CUlinkState state) {
  Entry entry(softgpu::Need::kInit);
  if (!entry.ok()) return entry.result();
  return entry.state().links.Remove(state) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The first forms differ in the size of option values of 32-bit programs only.
CUresult CUDAAPI cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                              CUlinkState* stateOut) {
  return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

CUresult CUDAAPI cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                               const char* name, unsigned int numOptions, CUjit_option* options,
                               void** optionValues) {
  return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult CUDAAPI cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path,
                               unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

}  // extern "C"

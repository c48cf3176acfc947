#include "softgpu/runtime/testing/fake_driver.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <set>

#include "softgpu/runtime/testing/fake_record.h"

struct CUctx_st {
  int device;
  bool alive;
};
struct CUlib_st {
  std::map<std::string, CUkernel> kernels;
  std::map<std::pair<std::string, CUcontext>, void*> globals;
};
struct CUkern_st {
  CUlibrary library;
  std::string name;
};
struct CUlinkState_st {
  uint32_t image[2];
};

namespace softgpu::runtime::testing {
namespace {

struct State {
  std::recursive_mutex mutex;
  std::vector<FakeCall> log;
  std::map<std::string, CUresult> failures;
  std::list<CUctx_st> contexts;  // dead ones too: the program may still hold their handles
  CUcontext primary[kFakeDevices] = {};
  int retained[kFakeDevices] = {};
  std::map<CUdeviceptr, size_t> allocations;
  std::set<CUkernel> kernels;
};

State& TheState() {
  static State* state = new State;
  return *state;
}

thread_local CUcontext t_current = nullptr;

uint64_t Word(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

void Append(const char* name) {
  const char* path = std::getenv("FAKE_CUDA_LOG");
  if (path == nullptr) return;
  if (FILE* file = std::fopen(path, "a")) {
    std::fprintf(file, "%s\n", name);
    std::fclose(file);
  }
}

CUresult NeedContext() {
  if (t_current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return t_current->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace

CUresult Record(const char* name, std::initializer_list<uint64_t> args) {
  State& state = TheState();
  std::lock_guard<std::recursive_mutex> lock(state.mutex);
  state.log.push_back({name, args});
  Append(name);
  auto failure = state.failures.find(name);
  return failure != state.failures.end() ? failure->second : CUDA_SUCCESS;
}

FAKE_API const std::vector<FakeCall>* FakeLog() { return &TheState().log; }

FAKE_API void FakeClearLog() { TheState().log.clear(); }

FAKE_API void FakeFail(const char* name, CUresult result) { TheState().failures[name] = result; }

}  // namespace softgpu::runtime::testing

using namespace softgpu::runtime::testing;

// Logs the enclosing function by its exported name, and leaves it if it is to fail.
#define RECORD(...) \
  if (CUresult injected = Record(__func__, {__VA_ARGS__}); injected != CUDA_SUCCESS) return injected
#define IN_CONTEXT() \
  if (CUresult missing = NeedContext(); missing != CUDA_SUCCESS) return missing

FAKE_API CUresult cuInit(unsigned) {
  RECORD();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDriverGetVersion(int* version) {
  RECORD();
  const char* told = std::getenv("FAKE_CUDA_VERSION");
  *version = told != nullptr ? std::atoi(told) : CUDA_VERSION;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetCount(int* count) {
  RECORD();
  *count = kFakeDevices;
  return CUDA_SUCCESS;
}

// Handles differ from ordinals, so that a mix-up shows.
FAKE_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  RECORD(uint64_t(ordinal));
  if (ordinal < 0 || ordinal >= kFakeDevices) return CUDA_ERROR_INVALID_DEVICE;
  *device = 100 + ordinal;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  RECORD(uint64_t(device));
  std::snprintf(name, size_t(size), "fake %d", device);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  RECORD(uint64_t(device));
  std::memset(uuid, device, sizeof *uuid);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  RECORD(uint64_t(device));
  *bytes = size_t{5} << 30;
  return CUDA_SUCCESS;
}

// Each attribute's value is its number, except where launches depend on it.
FAKE_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  RECORD(uint64_t(attribute), uint64_t(device));
  if (device < 100 || device >= 100 + kFakeDevices) return CUDA_ERROR_INVALID_DEVICE;
  if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  const bool limit = attribute <= CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z;
  *value = limit ? 1024 : attribute;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  RECORD(uint64_t(device));
  State& state = TheState();
  std::lock_guard<std::recursive_mutex> lock(state.mutex);
  CUcontext& primary = state.primary[device - 100];
  if (primary == nullptr || !primary->alive) primary = &state.contexts.emplace_back(CUctx_st{device, true});
  ++state.retained[device - 100];
  *context = primary;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  RECORD(uint64_t(device));
  return --TheState().retained[device - 100] < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  RECORD(uint64_t(device));
  if (CUcontext primary = TheState().primary[device - 100]) primary->alive = false;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  RECORD(uint64_t(device), flags);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  RECORD(uint64_t(device));
  *flags = CU_CTX_SCHED_YIELD;
  *active = TheState().retained[device - 100] > 0;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
  RECORD(uint64_t(device));
  *context = t_current = new CUctx_st{device, true};
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxDestroy(CUcontext context) {
  RECORD(Word(context));
  if (t_current == context) t_current = nullptr;
  delete context;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxSetCurrent(CUcontext context) {
  RECORD(Word(context));
  t_current = context;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxGetCurrent(CUcontext* context) {
  RECORD();
  *context = t_current;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxGetDevice(CUdevice* device) {
  RECORD();
  IN_CONTEXT();
  *device = t_current->device;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxGetFlags(unsigned* flags) {
  RECORD();
  IN_CONTEXT();
  *flags = CU_CTX_SCHED_SPIN;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAlloc(CUdeviceptr* address, size_t size) {
  RECORD(size);
  IN_CONTEXT();
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  State& state = TheState();
  std::lock_guard<std::recursive_mutex> lock(state.mutex);
  *address = Word(std::calloc(1, size));
  state.allocations[*address] = size;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemFree(CUdeviceptr address) {
  RECORD(address);
  IN_CONTEXT();
  State& state = TheState();
  std::lock_guard<std::recursive_mutex> lock(state.mutex);
  if (state.allocations.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(reinterpret_cast<void*>(address));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostAlloc(void** address, size_t size, unsigned flags) {
  RECORD(size, flags);
  IN_CONTEXT();
  *address = std::calloc(1, size);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemFreeHost(void* address) {
  RECORD(Word(address));
  std::free(address);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t rows,
                                  unsigned element) {
  RECORD(width, rows, element);
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc(address, *pitch * rows);
}

FAKE_API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* names, void** values,
                                         CUdeviceptr address) {
  RECORD(address);
  const bool known = TheState().allocations.count(address) != 0;
  for (unsigned i = 0; i < count; ++i) {
    if (names[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *static_cast<unsigned*>(values[i]) = known ? CU_MEMORYTYPE_DEVICE : 0;
    if (names[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED) *static_cast<unsigned*>(values[i]) = 0;
    if (names[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *static_cast<int*>(values[i]) = known ? 1 : -2;
    if (names[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
      *static_cast<CUdeviceptr*>(values[i]) = known ? address : 0;
    if (names[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) *static_cast<void**>(values[i]) = nullptr;
  }
  return CUDA_SUCCESS;
}

#define COPY(name, dst_type, src_type)                              \
  FAKE_API CUresult name(dst_type dst, src_type src, size_t size) { \
    RECORD((uint64_t)dst, (uint64_t)src, size);                     \
    IN_CONTEXT();                                                   \
    std::memcpy((void*)dst, (const void*)src, size);                \
    return CUDA_SUCCESS;                                            \
  }
COPY(cuMemcpy, CUdeviceptr, CUdeviceptr)
COPY(cuMemcpy_ptds, CUdeviceptr, CUdeviceptr)
COPY(cuMemcpyHtoD, CUdeviceptr, const void*)
COPY(cuMemcpyHtoD_v2_ptds, CUdeviceptr, const void*)
COPY(cuMemcpyDtoH, void*, CUdeviceptr)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr)

FAKE_API CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void* src, size_t size, CUstream stream) {
  RECORD(dst, Word(src), size, Word(stream));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst, const void* src, size_t size, CUstream stream) {
  RECORD(dst, Word(src), size, Word(stream));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* copy) {
  RECORD(copy->srcMemoryType, copy->dstMemoryType, copy->WidthInBytes, copy->Height);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemcpy3D(const CUDA_MEMCPY3D* copy) {
  RECORD(copy->srcMemoryType, copy->srcXInBytes, copy->dstMemoryType, copy->dstXInBytes, copy->WidthInBytes,
         copy->Height, copy->Depth, copy->srcHeight, copy->dstHeight);
  return CUDA_SUCCESS;
}

// Every array is one of float4.
FAKE_API CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray array) {
  RECORD(Word(array));
  *descriptor = {8, 4, 2, CU_AD_FORMAT_FLOAT, 4, 0};
  return CUDA_SUCCESS;
}

#define FILL_2D(name)                                                                                    \
  FAKE_API CUresult name(CUdeviceptr at, size_t pitch, unsigned char value, size_t width, size_t rows) { \
    RECORD(at, pitch, value, width, rows);                                                               \
    return CUDA_SUCCESS;                                                                                 \
  }
FILL_2D(cuMemsetD2D8)

FAKE_API CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                                    CUlibraryOption*, void**, unsigned) {
  RECORD(Word(code));
  uint32_t magic = 0;
  std::memcpy(&magic, code, sizeof magic);
  if (magic != kFatbinMagic && magic != kLinkedMagic) return CUDA_ERROR_INVALID_IMAGE;
  *library = new CUlib_st;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLibraryUnload(CUlibrary library) {
  RECORD(Word(library));
  for (auto& [name, kernel] : library->kernels) {
    TheState().kernels.erase(kernel);
    delete kernel;
  }
  for (auto& [key, address] : library->globals) std::free(address);
  delete library;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  RECORD(Word(library));
  if (std::strncmp(name, "missing", 7) == 0) return CUDA_ERROR_NOT_FOUND;
  State& state = TheState();
  std::lock_guard<std::recursive_mutex> lock(state.mutex);
  CUkernel& entry = library->kernels[name];
  if (entry == nullptr) entry = new CUkern_st{library, name};
  state.kernels.insert(entry);
  *kernel = entry;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  RECORD(Word(library));
  IN_CONTEXT();
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* size, CUlibrary library,
                                     const char* name) {
  RECORD(Word(library));
  IN_CONTEXT();
  if (std::strncmp(name, "missing", 7) == 0) return CUDA_ERROR_NOT_FOUND;
  void*& memory = library->globals[{name, t_current}];
  if (memory == nullptr) memory = std::calloc(1, kFakeGlobalSize);
  *address = Word(memory);
  *size = kFakeGlobalSize;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* size, CUlibrary library,
                                      const char* name) {
  RECORD(Word(library));
  IN_CONTEXT();
  void*& memory = library->globals[{name, t_current}];
  if (memory == nullptr) memory = std::calloc(1, kFakeGlobalSize);
  *address = Word(memory);
  *size = kFakeGlobalSize;
  return CUDA_SUCCESS;
}

// A function is a kernel in a context; here the same address with the lowest bit set.
FAKE_API CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  RECORD(Word(kernel));
  *function = reinterpret_cast<CUfunction>(Word(kernel) | 1);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                       CUdevice device) {
  RECORD(uint64_t(attribute), Word(kernel), uint64_t(device));
  *value = 10 + attribute;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                       CUdevice device) {
  RECORD(uint64_t(attribute), uint64_t(value), Word(kernel), uint64_t(device));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState* state) {
  RECORD();
  IN_CONTEXT();
  *state = new CUlinkState_st{{kLinkedMagic, 0}};
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size, const char*,
                                unsigned, CUjit_option*, void**) {
  RECORD(uint64_t(type), Word(data), size);
  ++state->image[1];
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLinkComplete(CUlinkState state, void** image, size_t* size) {
  RECORD();
  *image = state->image;
  *size = sizeof state->image;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuLinkDestroy(CUlinkState state) {
  RECORD();
  delete state;
  return CUDA_SUCCESS;
}

namespace {

CUresult CheckLaunch(CUfunction function, unsigned blocks, unsigned threads) {
  IN_CONTEXT();
  State& state = TheState();
  std::lock_guard<std::recursive_mutex> lock(state.mutex);
  if (state.kernels.count(reinterpret_cast<CUkernel>(function)) == 0) return CUDA_ERROR_INVALID_HANDLE;
  return blocks == 0 || threads == 0 || threads > 1024 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

#define LAUNCH(name)                                                                                    \
  FAKE_API CUresult name(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,       \
                         unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream, void** args, \
                         void**) {                                                                      \
    RECORD(Word(function), gx, bx, shared_bytes, Word(stream), Word(args));                             \
    return CheckLaunch(function, gx * gy * gz, bx * by * bz);                                           \
  }
LAUNCH(cuLaunchKernel)
LAUNCH(cuLaunchKernel_ptsz)

FAKE_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                            unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes,
                                            CUstream stream, void**) {
  RECORD(Word(function), gx, bx, shared_bytes, Word(stream));
  return CheckLaunch(function, gx * gy * gz, bx * by * bz);
}

FAKE_API CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void**) {
  RECORD(Word(function), config->gridDimX, config->blockDimX, config->sharedMemBytes, Word(config->hStream),
         config->numAttrs, Word(config->attrs));
  return CheckLaunch(function, config->gridDimX, config->blockDimX);
}

FAKE_API CUresult cuGetProcAddress(const char* symbol, void** address, int version, cuuint64_t flags,
                                   CUdriverProcAddressQueryResult* status) {
  RECORD(uint64_t(version), flags);
  const bool found = std::strcmp(symbol, "cuInit") == 0;
  *address = found ? reinterpret_cast<void*>(&cuInit) : nullptr;
  *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

namespace {
CUDA_KERNEL_NODE_PARAMS g_kernel_node;
}

FAKE_API CUresult cuGraphAddKernelNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                       const CUDA_KERNEL_NODE_PARAMS* params) {
  RECORD(Word(params->kern), Word(params->ctx));
  g_kernel_node = *params;
  return CUDA_SUCCESS;
}

// Reports the node by its function, as a driver may.
FAKE_API CUresult cuGraphKernelNodeGetParams(CUgraphNode, CUDA_KERNEL_NODE_PARAMS* params) {
  RECORD();
  *params = g_kernel_node;
  params->func = reinterpret_cast<CUfunction>(Word(params->kern) | 1);
  params->kern = nullptr;
  return CUDA_SUCCESS;
}

namespace {
CUDA_MEMCPY3D g_copy_node;
}

FAKE_API CUresult cuGraphAddMemcpyNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                       const CUDA_MEMCPY3D* copy, CUcontext context) {
  RECORD(Word(context), copy->WidthInBytes);
  g_copy_node = *copy;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode, CUDA_MEMCPY3D* copy) {
  RECORD();
  *copy = g_copy_node;
  return CUDA_SUCCESS;
}

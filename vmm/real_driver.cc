#include "vmm/real_driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace stasis {

namespace internal {
constinit DriverFunctions g_driver{};
}  // namespace internal

namespace {

const char* const kNames[] = {
#define STASIS_DRIVER_FUNCTION(name) #name,
#include "driver_functions.inc"
#undef STASIS_DRIVER_FUNCTION
};
static_assert(sizeof kNames / sizeof *kNames == kFnCount);

// A function that is called with more arguments than it has, which clang's check of function types would
// refuse.
#ifdef __clang__
#define STASIS_ANY_ARGUMENTS __attribute__((no_sanitize("function")))
#else
#define STASIS_ANY_ARGUMENTS
#endif

// Stands for every function that the driver lacks: the calling convention lets the caller pass any arguments.
STASIS_ANY_ARGUMENTS CUresult Missing() { return CUDA_ERROR_NOT_FOUND; }

void* library = nullptr;

std::string& Path() {
  static std::string* const path = new std::string;  // outlives every destructor
  return *path;
}

void** Slots() { return reinterpret_cast<void**>(&internal::g_driver); }

void FillSlots() {
  for (size_t i = 0; i < kFnCount; ++i) {
    void* found = library == nullptr ? nullptr : dlsym(library, kNames[i]);
    Slots()[i] = found != nullptr ? found : reinterpret_cast<void*>(&Missing);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL;  // sanitizers do not work below RTLD_DEEPBIND
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif
#else
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

StatusCode CodeOf(CUresult result) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return StatusCode::kResourceExhausted;
  // The driver's own exit handlers have run.
  if (result == CUDA_ERROR_DEINITIALIZED) return StatusCode::kFailedPrecondition;
  return StatusCode::kDriver;
}

}  // namespace

const char* FnName(Fn function) { return kNames[static_cast<size_t>(function)]; }

bool FindFn(const char* name, Fn* function) {
  size_t low = 0, high = kFnCount;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const int order = std::strcmp(kNames[middle], name);
    if (order == 0) {
      *function = static_cast<Fn>(middle);
      return true;
    }
    (order < 0 ? low : high) = order < 0 ? middle + 1 : middle;
  }
  return false;
}

void* DriverAddress(Fn function) {
  void* address = Slots()[static_cast<size_t>(function)];
  return address == reinterpret_cast<void*>(&Missing) ? nullptr : address;
}

Status OpenDriver(const std::string& path) {
  if (library != nullptr)
    return Errorf(StatusCode::kFailedPrecondition, "the CUDA driver %s is already open", Path().c_str());
  if (path.empty() || path[0] != '/') {
    FillSlots();
    return Errorf(StatusCode::kInvalidArgument, "the driver's path '%s' is not absolute", path.c_str());
  }
  library = dlopen(path.c_str(), kOpenFlags | (IsNvidiaDriver(path) ? RTLD_NODELETE : 0));
  Status status;
  if (library == nullptr) {
    status = Errorf(StatusCode::kNotFound, "open the CUDA driver: %s", dlerror());
  } else if (dlsym(library, "cuInit") == nullptr) {
    dlclose(library);
    library = nullptr;
    status = Errorf(StatusCode::kNotFound, "%s is not a CUDA driver: it has no cuInit", path.c_str());
  }
  Path() = status.ok() ? path : std::string();
  FillSlots();
  return status;
}

void CloseDriver() {
  if (library == nullptr) return;
  void* closing = library;
  library = nullptr;
  FillSlots();
  Path().clear();
  dlclose(closing);
}

bool IsNvidiaDriver(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  const char* version = real == nullptr ? nullptr : std::strstr(real.get(), "libcuda.so.");
  return version != nullptr && std::strchr(version + std::strlen("libcuda.so."), '.') != nullptr;
}

bool DriverIsOpen() { return library != nullptr; }
const std::string& DriverPath() { return Path(); }

Status DriverStatus(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  if (library == nullptr || Driver().cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    name = "CUDA error";
  Status status = Errorf(CodeOf(result), "%s: %s (%d)", what, name, static_cast<int>(result));
  return result == CUDA_ERROR_DEINITIALIZED ? std::move(status).WithContext("the process is ending") : status;
}

}  // namespace stasis

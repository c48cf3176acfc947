#include "intercept/nvml.h"

#include <dlfcn.h>

#include <vector>

#include "base/raw_log.h"

namespace stasis {
namespace {

constexpr char kLibrary[] = "libnvidia-ml.so.1";

// The parts of its interface that are needed here; 0 is success.
using Call = int (*)();
using GetCount = int (*)(unsigned*);
using GetHandle = int (*)(unsigned, void**);

class Nvml {
 public:
  // The library that the process has loaded already; nothing is loaded for this.
  Nvml() : library_(dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD)) {}
  ~Nvml() {
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool Init() const { return Run("nvmlInit_v2"); }
  bool Shutdown() const { return Run("nvmlShutdown"); }
  // The handle of each device, in the order of its numbers.
  std::vector<void*> Devices() const {
    const auto get_count = Find<GetCount>("nvmlDeviceGetCount_v2");
    const auto get_handle = Find<GetHandle>("nvmlDeviceGetHandleByIndex_v2");
    unsigned count = 0;
    if (get_count == nullptr || get_handle == nullptr || get_count(&count) != 0) return {};
    std::vector<void*> devices(count);
    for (unsigned i = 0; i < count; ++i)
      if (get_handle(i, &devices[i]) != 0) devices[i] = nullptr;
    return devices;
  }

 private:
  template <typename Function>
  Function Find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
  }
  bool Run(const char* name) const {
    const auto call = Find<Call>(name);
    return call != nullptr && call() == 0;
  }
  void* const library_;
};

// How often the program had initialised it, and the handles that it may keep.
unsigned g_times = 0;
std::vector<void*>* g_devices = nullptr;

}  // namespace

void LetGoOfNvml() {
  const Nvml nvml;
  std::vector<void*> devices = nvml.Devices();
  for (g_times = 0; nvml.Shutdown();) ++g_times;
  if (g_devices == nullptr) g_devices = new std::vector<void*>;
  *g_devices = std::move(devices);
}

void TakeUpNvml() {
  if (g_times == 0) return;
  const Nvml nvml;
  bool initialised = true;
  for (; g_times != 0 && initialised; --g_times) initialised = nvml.Init();
  g_times = 0;
  if (!initialised) {
    RawLog(LogLevel::kWarning, "NVML cannot be initialised again: the program finds it uninitialised");
  } else if (nvml.Devices() != *g_devices) {
    RawLog(LogLevel::kWarning, "NVML names its devices by other handles than before");
  }
}

}  // namespace stasis

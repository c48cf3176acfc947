#include "coordinator/node/driver_probe.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "coordinator/node/subprocess.h"

namespace stasis {
namespace {

constexpr int kMaxDevices = 1024;

// The few entry points that a probe needs, by their exported names.
struct Driver {
  int (*init)(unsigned);
  int (*version)(int*);
  int (*count)(int*);
  int (*device)(int*, int);
  int (*name)(char*, int, int);
  int (*memory)(size_t*, int);
  int (*error_name)(int, const char**);
  int (*uuid)(unsigned char*, int);
  int (*attribute)(int*, int, int);
  // Those that a driver may lack.
  int (*whole_uuid)(unsigned char*, int);  // of the device that it is a part of
  int (*pci)(char*, int, int);
};

template <typename F>
bool Load(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

bool LoadAll(void* library, Driver* driver) {
  Load(library, "cuDeviceGetUuid", &driver->whole_uuid);
  Load(library, "cuDeviceGetPCIBusId", &driver->pci);
  return Load(library, "cuInit", &driver->init) && Load(library, "cuDriverGetVersion", &driver->version) &&
         Load(library, "cuDeviceGetCount", &driver->count) && Load(library, "cuDeviceGet", &driver->device) &&
         Load(library, "cuDeviceGetName", &driver->name) &&
         Load(library, "cuDeviceTotalMem_v2", &driver->memory) &&
         Load(library, "cuGetErrorName", &driver->error_name) &&
         Load(library, "cuDeviceGetUuid_v2", &driver->uuid) &&
         Load(library, "cuDeviceGetAttribute", &driver->attribute);
}

std::string ErrorText(const Driver& driver, const char* call, int error) {
  const char* name = nullptr;
  driver.error_name(error, &name);
  return std::string(call) + ": " + (name == nullptr ? "error" : name) + " (" + std::to_string(error) + ")";
}

std::string LoadedPath(void* library, const std::string& asked) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map->l_name == nullptr || map->l_name[0] != '/')
    return asked;
  return map->l_name;
}

std::string UuidOf(int (*ask)(unsigned char*, int), int device) {
  unsigned char uuid[16];
  if (ask == nullptr || ask(uuid, device) != 0) return "";
  std::string text;
  for (unsigned char byte : uuid) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return text;
}

int CapabilityOf(const Driver& driver, int device) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  int major = 0, minor = 0;
  if (driver.attribute(&major, kMajor, device) != 0 || driver.attribute(&minor, kMinor, device) != 0)
    return 0;
  return major * 10 + minor;
}

std::string PciOf(const Driver& driver, int device) {
  char text[64] = "";
  return driver.pci == nullptr || driver.pci(text, sizeof text - 1, device) != 0 ? "" : text;
}

Json ListDevices(const Driver& driver, int count) {
  Json devices = Json::array();
  for (int i = 0; i < count && i < kMaxDevices; i++) {
    int device = 0;
    char name[256] = "";
    size_t memory = 0;
    if (driver.device(&device, i) != 0 || driver.name(name, sizeof name, device) != 0 ||
        driver.memory(&memory, device) != 0) {
      continue;
    }
    const std::string uuid = UuidOf(driver.uuid, device), whole = UuidOf(driver.whole_uuid, device);
    devices.push_back({{"name", name},
                       {"memory", memory},
                       {"uuid", uuid},
                       {"part", !whole.empty() && whole != uuid},
                       {"pci", PciOf(driver, device)},
                       {"capability", CapabilityOf(driver, device)}});
  }
  return devices;
}

// The answer for one library: {"path", "version", "devices"} or {"error"}.
Json ProbeOne(const std::string& path) {
  if (path[0] == '/' && access(path.c_str(), F_OK) != 0)
    return {{"missing", true}, {"error", "no such file"}};
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {{"missing", path[0] != '/'}, {"error", dlerror()}};
  Driver driver{};
  if (!LoadAll(library, &driver)) return {{"error", "not a CUDA driver"}};
  int error = driver.init(0);
  if (error != 0) return {{"error", ErrorText(driver, "cuInit", error)}};
  int version = 0, count = 0;
  driver.version(&version);
  error = driver.count(&count);
  if (error != 0) return {{"error", ErrorText(driver, "cuDeviceGetCount", error)}};
  if (count <= 0) return {{"error", "it finds no device"}};
  return {{"path", LoadedPath(library, path)}, {"version", version}, {"devices", ListDevices(driver, count)}};
}

Result<DriverInfo> ParseAnswer(const std::string& text, const std::string& complaint) {
  Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object())
    return Status(StatusCode::kInternal, "the probe of the CUDA driver failed: " + complaint);
  DriverInfo info;
  info.path = TextField(answer, "path");
  if (info.path.empty()) {
    std::string why = TextField(answer, "error", "no driver");
    return Status(StatusCode::kNotFound, complaint.empty() ? why : why + " (" + complaint + ")");
  }
  info.version = static_cast<int>(IntegerField(answer, "version"));
  for (const Json& device : answer["devices"]) {
    info.devices.push_back({TextField(device, "name"), static_cast<uint64_t>(IntegerField(device, "memory")),
                            TextField(device, "uuid"), static_cast<int>(IntegerField(device, "capability")),
                            device.is_object() && device.contains("part") && device["part"] == true,
                            TextField(device, "pci")});
  }
  return info;
}

}  // namespace

std::string DriverVersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int ProbeDriverMain(const std::vector<std::string>& paths) {
  std::string errors;
  Json answer;
  for (const std::string& path : paths) {
    answer = ProbeOne(path);
    if (answer.contains("path")) break;
    if (!answer.value("missing", false)) {
      errors += (errors.empty() ? "" : "; ") + path + ": " + TextField(answer, "error");
    }
  }
  if (!answer.contains("path")) answer = {{"error", errors.empty() ? "no libcuda.so.1 found" : errors}};
  std::printf("%s\n", answer.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  std::fflush(stdout);
  // Not by exit(): a driver's destructors are not our business.
  _exit(0);
}

Result<DriverInfo> ProbeDrivers(const std::string& stasis, const std::vector<std::string>& paths,
                                const std::vector<std::string>& environment, const Deadline& deadline) {
  SubprocessOptions options;
  options.argv = {stasis, "probe-driver"};
  options.argv.insert(options.argv.end(), paths.begin(), paths.end());
  options.environment = EnvironmentWithoutLoader(environment);
  ASSIGN_OR_RETURN(SubprocessResult result, RunSubprocess(options, deadline));
  std::string complaint = result.error_output;
  while (!complaint.empty() && complaint.back() == '\n') complaint.pop_back();
  if (result.signal != 0) {
    return Errorf(StatusCode::kNotFound, "the CUDA driver ended the probe with signal %d", result.signal);
  }
  return ParseAnswer(result.output, complaint);
}

std::vector<std::string> NvidiaDriverPaths() {
  return {"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
          "/usr/lib64/libcuda.so.1",
          "/usr/lib/libcuda.so.1",
          "/usr/local/nvidia/lib64/libcuda.so.1",
          "/usr/lib/wsl/lib/libcuda.so.1",
          "/run/opengl-driver/lib/libcuda.so.1",
          "libcuda.so.1"};
}

}  // namespace stasis

#include "coordinator/node/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "coordinator/node/subprocess.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

constexpr auto kProbeTime =
    std::chrono::seconds(60);  // a cold NVIDIA driver takes many seconds to initialise
// A program may take its time before its first CUDA call, and the daemon must still be there then.
constexpr char kSoftgpuIdleExit[] = "SOFTGPU_IDLE_EXIT=3600";

// The entries that softgpu's driver finds its daemon by.
std::vector<std::string> SoftgpuEnvironment(const OwnFiles& files,
                                            const std::vector<std::string>& environment) {
  std::vector<std::string> result;
  for (const std::string& entry : environment) {
    bool reads_it = entry.rfind("SOFTGPU_", 0) == 0 || entry.rfind("XDG_RUNTIME_DIR=", 0) == 0;
    if (reads_it) result.push_back(entry);
  }
  if (EnvironmentValue(environment, "SOFTGPU_DAEMON").empty()) {
    result.push_back("SOFTGPU_DAEMON=" + files.softgpud);
  }
  if (EnvironmentValue(environment, "SOFTGPU_IDLE_EXIT").empty()) result.push_back(kSoftgpuIdleExit);
  return result;
}

// All devices are asked for; what of them the program sees is decided in the task.
std::vector<std::string> ProbeEnvironment(std::vector<std::string> driver_environment) {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}) driver_environment.push_back(name);
  return driver_environment;
}

Result<DeviceChoice> ChooseSoft(const OwnFiles& files, const std::vector<std::string>& environment) {
  std::string library = files.softgpu_folder + "/libcuda.so.1";
  RETURN_IF_ERROR(RequireFile(library, R_OK, "softgpu's driver"));
  DeviceChoice choice;
  choice.kind = "soft";
  choice.driver_environment = SoftgpuEnvironment(files, environment);
  ASSIGN_OR_RETURN(choice.driver,
                   ProbeDrivers(files.stasis, {library}, ProbeEnvironment(choice.driver_environment),
                                Deadline::After(kProbeTime)));
  std::string path = EnvironmentValue(environment, "LD_LIBRARY_PATH");
  // A daemon started inside the task would be one of its processes, dumped and ended with it.
  choice.task_environment = {"SOFTGPU_AUTOSTART=0",
                             "LD_LIBRARY_PATH=" + (path.empty() ? "" : path + ":") + files.softgpu_folder};
  choice.sentence = "the software device, " + DevicesText(choice.driver);
  return choice;
}

Result<DeviceChoice> ChooseNvidia(const OwnFiles& files) {
  DeviceChoice choice;
  choice.kind = "nvidia";
  ASSIGN_OR_RETURN(choice.driver, ProbeDrivers(files.stasis, NvidiaDriverPaths(), ProbeEnvironment({}),
                                               Deadline::After(kProbeTime)));
  choice.sentence = fmt::format("NVIDIA's driver {} (CUDA {}), {}", choice.driver.path,
                                DriverVersionText(choice.driver.version), DevicesText(choice.driver));
  return choice;
}

}  // namespace

std::vector<std::string> DriverEnvironment(const std::string& kind, const OwnFiles& files,
                                           const std::vector<std::string>& environment) {
  return kind == "soft" ? SoftgpuEnvironment(files, environment) : std::vector<std::string>();
}

std::string DevicesText(const DriverInfo& driver) {
  std::string text;
  for (size_t i = 0; i < driver.devices.size();) {
    const DriverDevice& device = driver.devices[i];
    size_t count = 1;
    while (i + count < driver.devices.size() && driver.devices[i + count].name == device.name &&
           driver.devices[i + count].memory == device.memory) {
      count++;
    }
    text +=
        fmt::format("{}{} x {} ({})", text.empty() ? "" : ", ", count, device.name, SizeText(device.memory));
    i += count;
  }
  return text;
}

Result<DeviceChoice> ChooseDevice(const std::string& wanted, const OwnFiles& files,
                                  const std::vector<std::string>& environment) {
  if (wanted == "soft") return ChooseSoft(files, environment);
  Result<DeviceChoice> nvidia = ChooseNvidia(files);
  if (nvidia.ok() || wanted == "nvidia") {
    if (nvidia.ok()) return nvidia;
    return std::move(nvidia).status().WithContext("no usable NVIDIA driver");
  }
  std::string why = std::string(nvidia.status().message());
  Result<DeviceChoice> soft = ChooseSoft(files, environment);
  if (!soft.ok()) {
    return std::move(soft).status().WithContext("no device: NVIDIA's driver: " + why +
                                                "; the software device");
  }
  soft->sentence += "; no NVIDIA driver: " + why;
  return soft;
}

bool CountsByPci(const std::vector<std::string>& environment) {
  return EnvironmentValue(environment, "CUDA_DEVICE_ORDER") == "PCI_BUS_ID";
}

std::vector<int> NumbersOfDriver(std::vector<int> gpus, const DriverInfo& driver) {
  std::vector<int> by_pci(driver.devices.size());
  std::iota(by_pci.begin(), by_pci.end(), 0);
  const auto pci = [&](int number) { return driver.devices[static_cast<size_t>(number)].pci; };
  for (int number : by_pci)
    if (pci(number).empty()) return gpus;
  std::stable_sort(by_pci.begin(), by_pci.end(), [&](int a, int b) { return pci(a) < pci(b); });
  for (int& gpu : gpus)
    if (static_cast<size_t>(gpu) < by_pci.size()) gpu = by_pci[static_cast<size_t>(gpu)];
  return gpus;
}

Status CheckGpus(const std::vector<int>& gpus, const DriverInfo& driver) {
  for (int gpu : gpus) {
    if (gpu < static_cast<int>(driver.devices.size())) continue;
    return Errorf(StatusCode::kInvalidArgument, "there is no GPU %d: the driver has %zu, counted from 0", gpu,
                  driver.devices.size());
  }
  return Status();
}

}  // namespace stasis

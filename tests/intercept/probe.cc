// A program for the tests of the interposer. It does what each line of its input says and answers with one
// line.
//
//   version            the driver's version, or its error
//   init               cuInit and the number of devices
//   inits              cuInit in many threads at once; what each answered, and the environment of children
//   retain N           the primary context of device N becomes current
//   device N           what device N says of itself
//   find N             the device that has device N's PCI bus id
//   devices            UUIDs of the devices that the program sees; "below": of those that the driver has
//   fd                 the number of a newly opened file
//   fork               a child calls the driver; its answer
//   signal             sends the process the real-time signal that the control thread waits for
//   signals            how many of those the handler has seen
//   thread             a new thread's call of the driver
//   taint              a setting that is not made again
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

std::atomic<int> signals_seen{0};

int SharedSignal() { return SIGRTMAX - 3; }

std::string Version() {
  int version = 0;
  const CUresult result = cuDriverGetVersion(&version);
  return "version " + std::to_string(result) + " " + std::to_string(version);
}

std::string Init() {
  const CUresult result = cuInit(0);
  int count = -1;
  const CUresult counted = cuDeviceGetCount(&count);
  return "init " + std::to_string(result) + " " + std::to_string(counted) + " " + std::to_string(count);
}

// Children are forked all the while: they are to find the environment as the program has it.
std::string InitInThreads() {
  constexpr int kThreads = 8;
  std::vector<std::string> answers(kThreads + 1);
  std::barrier together(kThreads + 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      together.arrive_and_wait();
      answers[static_cast<size_t>(i)] = Init();
    });
  const auto variables = [] {
    std::string text;
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "STASIS_DEVICES"})
      text += getenv(name) == nullptr ? "-" : getenv(name);
    return text;
  };
  const std::string before = variables();
  together.arrive_and_wait();
  std::string& child = answers.back();
  for (int round = 0; round < 50 && (child.empty() || child == "same"); ++round) {
    const pid_t pid = fork();
    if (pid == 0) _exit(variables() == before ? 0 : 1);
    int status = -1;
    waitpid(pid, &status, 0);
    child = status == 0 ? "same" : "another environment";
  }
  for (std::thread& thread : threads) thread.join();
  std::string text;
  for (const std::string& answer : answers) text += answer + ";";
  return text;
}

std::string Retain(int ordinal) {
  CUdevice device = -1;
  CUcontext context = nullptr;
  CUresult result = cuDeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) result = cuDevicePrimaryCtxRetain(&context, device);
  if (result == CUDA_SUCCESS) result = cuCtxSetCurrent(context);
  return "retain " + std::to_string(result);
}

// With room for `name` bytes of the name.
std::string Device(int ordinal) {
  CUdevice device = -1;
  if (cuDeviceGet(&device, ordinal) != CUDA_SUCCESS) return "no device";
  char name[100] = {}, shortened[5] = {}, bus[32] = {};
  CUuuid uuid{};
  size_t memory = 0;
  int pci_bus = -1, pci_device = -1;
  std::ostringstream out;
  out << cuDeviceGetName(name, sizeof name, device) << cuDeviceGetName(shortened, sizeof shortened, device)
      << cuDeviceGetUuid(&uuid, device) << cuDeviceGetPCIBusId(bus, sizeof bus, device)
      << cuDeviceTotalMem(&memory, device)
      << cuDeviceGetAttribute(&pci_bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device)
      << cuDeviceGetAttribute(&pci_device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device);
  out << " '" << name << "' '" << shortened << "' " << bus << " " << pci_bus << " " << pci_device << " "
      << memory << " ";
  for (const char byte : uuid.bytes) out << std::hex << (static_cast<int>(byte) & 0xff) << ".";
  return out.str();
}

std::string Find(int ordinal) {
  CUdevice device = -1, found = -1;
  char bus[32] = {};
  cuDeviceGet(&device, ordinal);
  cuDeviceGetPCIBusId(bus, sizeof bus, device);
  const CUresult result = cuDeviceGetByPCIBusId(&found, bus);
  return "found " + std::to_string(result) + " " + std::to_string(found);
}

// By the functions of `driver`, or by those that the program is linked with.
std::string Devices(void* driver) {
  auto get_count = &cuDeviceGetCount;
  auto get_uuid = &cuDeviceGetUuid;
  if (driver != nullptr) {
    get_count = reinterpret_cast<decltype(get_count)>(dlsym(driver, "cuDeviceGetCount"));
    get_uuid = reinterpret_cast<decltype(get_uuid)>(dlsym(driver, "cuDeviceGetUuid_v2"));
  }
  int count = -1;
  get_count(&count);
  std::ostringstream out;
  out << std::hex << std::setfill('0');
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUuuid uuid{};
    get_uuid(&uuid, ordinal);
    out << (ordinal == 0 ? "" : " ");
    for (const char byte : uuid.bytes) out << std::setw(2) << (static_cast<int>(byte) & 0xff);
  }
  return out.str();
}

std::string OpenedFd() {
  const int fd = open("/dev/null", O_RDONLY);
  close(fd);
  return "fd " + std::to_string(fd);
}

// What a child of a process in this state gets from the driver.
std::string ChildsAnswer() {
  CUdeviceptr memory = 0;
  CUcontext context = nullptr;
  std::ostringstream out;
  out << Version() << ", " << Init() << ", current " << cuCtxGetCurrent(&context) << ", alloc "
      << cuMemAlloc(&memory, 4096) << ", sync " << cuCtxSynchronize();
  return out.str();
}

std::string Fork() {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    const std::string answer = ChildsAnswer();
    const bool written = write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  char text[400] = {};
  const ssize_t size = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  return "child " + std::to_string(status) + ": " +
         std::string(text, size > 0 ? static_cast<size_t>(size) : 0);
}

std::string Thread() {
  std::string answer;
  std::thread([&] { answer = Version(); }).join();
  return answer;
}

std::string Taint() {
  cuuint64_t none = 0;
  return "taint " + std::to_string(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none));
}

std::string Answer(const std::string& line) {
  std::istringstream in(line);
  std::string verb;
  int number = 0;
  in >> verb >> number;
  if (verb == "version") return Version();
  if (verb == "init") return Init();
  if (verb == "inits") return InitInThreads();
  if (verb == "retain") return Retain(number);
  if (verb == "device") return Device(number);
  if (verb == "find") return Find(number);
  if (verb == "devices") return Devices(nullptr);
  if (verb == "below") return Devices(dlopen(getenv("STASIS_DRIVER"), RTLD_NOW | RTLD_NOLOAD));
  if (verb == "fd") return OpenedFd();
  if (verb == "fork") return Fork();
  if (verb == "thread") return Thread();
  if (verb == "taint") return Taint();
  if (verb == "signal") return kill(getpid(), SharedSignal()) == 0 ? "sent" : "not sent";
  if (verb == "signals") return "signals " + std::to_string(signals_seen);
  return "unknown: " + line;
}

}  // namespace

int main() {
  signal(SharedSignal(), [](int) { ++signals_seen; });
  std::string line;
  while (std::getline(std::cin, line)) std::cout << Answer(line) << std::endl;
}

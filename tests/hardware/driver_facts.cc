// What this project relies on of a driver, and what it would like to know of one: each fact is tried in a
// process of its own, so that one that crashes or hangs the driver leaves the others to be tried.
//
// usage: driver_facts DRIVER [FACT...]   DRIVER: the path of libcuda.so.1; FACT: only these
//
// Prints a line of JSON for each fact: {"fact", "needed", "result", "detail"}; result: holds, fails, cannot
// be told. Exit status 1 when a needed one fails.
#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/message.h"
#include "base/unix_socket.h"
#include "vmm/real_driver.h"

namespace stasis {
namespace {

constexpr unsigned kSeconds = 30;  // for one fact
constexpr size_t kSize = 4 << 20;
constexpr int kUnknown = 77;  // exit status: cannot be told here

std::string g_driver;

// One line that says why, then the end.
[[noreturn]] __attribute__((format(printf, 2, 3))) void End(int status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::fflush(stdout);
  _exit(status);
}

// Without asking the driver, whose calls may all be waiting.
std::string NameOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
      return "CUDA_ERROR_INVALID_VALUE";
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "CUDA_ERROR_OUT_OF_MEMORY";
    case CUDA_ERROR_NOT_SUPPORTED:
      return "CUDA_ERROR_NOT_SUPPORTED";
    case CUDA_ERROR_ILLEGAL_STATE:
      return "CUDA_ERROR_ILLEGAL_STATE";
    case CUDA_ERROR_OPERATING_SYSTEM:
      return "CUDA_ERROR_OPERATING_SYSTEM";
    default:
      return "error " + std::to_string(static_cast<int>(result));
  }
}

void Must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) End(1, "%s: %s", what, NameOf(result).c_str());
}
#define MUST(call) Must(Driver().call, #call)

void Open() {
  const Status opened = OpenDriver(g_driver);
  if (!opened.ok()) End(1, "%s", std::string(opened.message()).c_str());
  MUST(cuInit(0));
}

void UseDevice(int device = 0) {
  CUcontext context = nullptr;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
}

CUmemGenericAllocationHandle Create() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemCreate(&handle, kSize, &prop, 0));
  return handle;
}

void MapAt(CUdeviceptr address, CUmemGenericAllocationHandle handle) {
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemMap(address, kSize, 0, handle, 0));
  MUST(cuMemSetAccess(address, kSize, &access, 1));
}

CUdeviceptr Map(CUmemGenericAllocationHandle handle) {
  CUdeviceptr address = 0;
  MUST(cuMemAddressReserve(&address, kSize, 0, 0, 0));
  MapAt(address, handle);
  return address;
}

Fd Export(CUmemGenericAllocationHandle handle) {
  int fd = -1;
  MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return Fd(fd);
}

CUmemGenericAllocationHandle Import(const Fd& fd) {
  CUmemGenericAllocationHandle handle = 0;
  MUST(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd.get())),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  return handle;
}

void Unmap(CUdeviceptr address, CUmemGenericAllocationHandle handle) {
  MUST(cuMemUnmap(address, kSize));
  MUST(cuMemRelease(handle));
}

void Fill(CUdeviceptr address, unsigned value) {
  MUST(cuMemsetD32_v2(address, value, kSize / 4));
  MUST(cuCtxSynchronize());
}

void Expect(CUdeviceptr address, unsigned value, const char* where) {
  std::vector<unsigned> words(kSize / 4);
  MUST(cuMemcpyDtoH_v2(words.data(), address, kSize));
  for (const unsigned word : words)
    if (word != value) End(1, "%s: found %x instead of %x", where, word, value);
}

// What the driver has open or mapped in this process: device files, and with `library` its own code.
std::vector<std::string> LeftOf(const std::string& library = {}) {
  std::vector<std::string> left;
  const auto add = [&](const std::string& path) {
    const bool device = path.find("/dev/nvidia") != std::string::npos;
    if (device || (!library.empty() && path.find(library) != std::string::npos)) left.push_back(path);
  };
  DIR* fds = opendir("/proc/self/fd");
  while (const dirent* entry = fds == nullptr ? nullptr : readdir(fds)) {
    char target[4096];
    const ssize_t size = readlinkat(dirfd(fds), entry->d_name, target, sizeof target);
    if (size > 0) add(std::string("descriptor of ").append(target, static_cast<size_t>(size)));
  }
  if (fds != nullptr) closedir(fds);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find('/') != std::string::npos) add("mapping of " + line.substr(line.find('/')));
  return left;
}

std::string Joined(const std::vector<std::string>& list) {
  std::string text;
  for (size_t i = 0; i < list.size() && i < 4; ++i) text += (i == 0 ? "" : ", ") + list[i];
  return list.size() > 4 ? text + " and " + std::to_string(list.size() - 4) + " more" : text;
}

void NeedCheckpoints() {
  if (DriverAddress(Fn::cuCheckpointProcessLock) == nullptr)
    End(kUnknown, "the driver has no checkpoint functions");
}

void GoAway() {
  CUcheckpointLockArgs lock{};
  lock.timeoutMs = 10000;
  MUST(cuCheckpointProcessLock(getpid(), &lock));
  MUST(cuCheckpointProcessCheckpoint(getpid(), nullptr));
}

void ComeBack() {
  MUST(cuCheckpointProcessRestore(getpid(), nullptr));
  MUST(cuCheckpointProcessUnlock(getpid(), nullptr));
}

// --- the facts

// A descriptor alone keeps the memory, after handle and mapping have gone.
void ExportedMemoryOutlivesItsOwner() {
  Open();
  UseDevice();
  const CUmemGenericAllocationHandle handle = Create();
  const CUdeviceptr address = Map(handle);
  Fill(address, 0x5eed);
  const Fd fd = Export(handle);
  Unmap(address, handle);
  Expect(Map(Import(fd)), 0x5eed, "imported again");
}

// The second pause of a process exports what the first resume has imported.
void ImportedMemoryIsExportedAgain() {
  Open();
  UseDevice();
  const CUmemGenericAllocationHandle first = Create();
  const CUdeviceptr address = Map(first);
  Fill(address, 0xabc);
  Fd fd = Export(first);
  Unmap(address, first);
  for (int round = 0; round < 3; ++round) {
    const CUmemGenericAllocationHandle handle = Import(fd);
    MapAt(address, handle);
    Expect(address, 0xabc, "after an import");
    fd = Export(handle);
    Unmap(address, handle);
  }
}

// A process beside, which keeps a descriptor as the ghost keeps memory: the driver is initialised, so that
// the device stays in use, and has nothing of its own there.
class Holder {
 public:
  Holder() {
    Result<std::pair<Fd, Fd>> pair = UnixSocketPair();
    if (!pair.ok()) End(kUnknown, "no sockets");
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      pair->second.Reset();
      Serve(pair->first.get());
    }
    socket_ = std::move(pair->second);
  }
  void Keep(Fd fd) {
    Message message;
    message.fds.push_back(std::move(fd));
    if (!SendMessage(socket_.get(), std::move(message), Soon()).ok() || !Receive(socket_.get()).ok())
      End(kUnknown, "the holder does not answer");
  }
  Fd GiveBack() {
    if (!SendMessage(socket_.get(), Message(), Soon()).ok()) End(kUnknown, "the holder has gone");
    Result<Message> answer = Receive(socket_.get());
    if (!answer.ok() || answer->fds.size() != 1) End(kUnknown, "the holder has lost it");
    return std::move(answer->fds[0]);
  }

 private:
  static Deadline Soon() { return Deadline::After(std::chrono::seconds(kSeconds)); }
  static Result<Message> Receive(int socket) {
    MessageDecoder decoder;
    return ReceiveMessage(socket, decoder, Soon());
  }
  // Keeps what comes with one message, and answers the next one with it.
  [[noreturn]] static void Serve(int socket) {
    Open();
    for (;;) {
      Result<Message> kept = Receive(socket);
      if (!kept.ok() || !SendMessage(socket, Message(), Soon()).ok()) _exit(0);
      if (!Receive(socket).ok() || !SendMessage(socket, *std::move(kept), Soon()).ok()) _exit(0);
    }
  }
  Fd socket_;
};

// The mechanism of strategy driver-checkpoint: memory to another process, unmap, checkpoint, restore, map
// where it was.
void MemoryGoesAsideForACheckpoint() {
  Holder holder;
  Open();
  NeedCheckpoints();
  UseDevice();
  CUmemGenericAllocationHandle handle = Create();
  const CUdeviceptr address = Map(handle);
  CUdeviceptr other = 0;
  MUST(cuMemAlloc_v2(&other, kSize));
  Fill(address, 0x111);
  Fill(other, 0x222);
  for (int round = 0; round < 2; ++round) {
    holder.Keep(Export(handle));
    Unmap(address, handle);
    GoAway();
    if (const auto left = LeftOf(); !left.empty())
      End(1, "left in the checkpointed process: %s", Joined(left).c_str());
    ComeBack();
    handle = Import(holder.GiveBack());
    MapAt(address, handle);
    Expect(address, 0x111, "held aside");
    Expect(other, 0x222, "carried by the driver");
  }
}

// A checkpointed process has nothing of the devices open: what CRIU can dump.
void ACheckpointedProcessIsPlain() {
  Open();
  NeedCheckpoints();
  UseDevice();
  GoAway();
  if (const auto left = LeftOf(); !left.empty()) End(1, "%s", Joined(left).c_str());
}

// A reserved range comes back with the driver although nothing is mapped in it.
void ReservationsAreCarried() {
  Open();
  NeedCheckpoints();
  UseDevice();
  CUdeviceptr address = 0;
  MUST(cuMemAddressReserve(&address, kSize, 0, 0, 0));
  GoAway();
  ComeBack();
  MapAt(address, Create());
  Fill(address, 7);
  Expect(address, 7, "mapped after the restore");
}

// Host memory keeps its address, its contents and its place on the device.
void IsCarried(void* memory, int content) {
  const auto place = [memory] {
    CUdeviceptr seen = 0;
    MUST(cuMemHostGetDevicePointer_v2(&seen, memory, 0));
    return seen;
  };
  std::memset(memory, content, kSize);
  const CUdeviceptr before = place();
  GoAway();
  if (static_cast<char*>(memory)[kSize - 1] != content) End(1, "the host cannot read it meanwhile");
  ComeBack();
  if (place() != before) End(1, "the device sees it elsewhere than before");
  Expect(before, static_cast<unsigned>(content) * 0x01010101u, "after the restore");
}

void PinnedMemoryIsCarried() {
  Open();
  NeedCheckpoints();
  UseDevice();
  void* pinned = nullptr;
  MUST(cuMemHostAlloc(&pinned, kSize, CU_MEMHOSTALLOC_DEVICEMAP));
  IsCarried(pinned, 5);
}

// What the interposer makes of pinned memory, too.
void RegisteredMemoryIsCarried() {
  Open();
  NeedCheckpoints();
  UseDevice();
  std::vector<char> own(2 * kSize);
  void* registered =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(own.data()) + 4095) & ~uintptr_t{4095});
  MUST(cuMemHostRegister_v2(registered, kSize, CU_MEMHOSTREGISTER_DEVICEMAP));
  IsCarried(registered, 3);
}

// Addresses that were given back are to be had again: what strategy reconstruct rebuilds on.
void AddressesAreToBeHadAgain() {
  Open();
  UseDevice();
  CUdeviceptr address = 0, again = 0;
  MUST(cuMemAddressReserve(&address, kSize, 0, 0, 0));
  MUST(cuMemAddressFree(address, kSize));
  MUST(cuMemAddressReserve(&again, kSize, 0, address, 0));
  if (again != address)
    End(1, "asked for %llx, was given %llx", static_cast<unsigned long long>(address),
        static_cast<unsigned long long>(again));
}

// After its contexts are reset the driver's library can be closed and leaves nothing. Nothing relies on that:
// OpenDriver() keeps NVIDIA's in memory.
void AClosedDriverLeavesNothing() {
  void* library = dlopen(g_driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) End(1, "%s", dlerror());
  const auto call = [library](const char* name, auto... arguments) {
    const auto function = reinterpret_cast<CUresult (*)(decltype(arguments)...)>(dlsym(library, name));
    Must(function == nullptr ? CUDA_ERROR_NOT_FOUND : function(arguments...), name);
  };
  CUcontext context = nullptr;
  call("cuInit", 0u);
  call("cuDevicePrimaryCtxRetain", &context, 0);
  call("cuDevicePrimaryCtxRelease_v2", 0);
  call("cuDevicePrimaryCtxReset_v2", 0);
  if (dlclose(library) != 0) End(1, "%s", dlerror());
  char real[4096];
  const std::string path = realpath(g_driver.c_str(), real) == nullptr ? g_driver : real;
  if (const auto left = LeftOf(path); !left.empty()) End(1, "%s", Joined(left).c_str());
}

// A list of places that lacks a device of the process is refused, and the process can still be restored.
void ShortListsOfPlacesAreRefused() {
  Open();
  NeedCheckpoints();
  int count = 0;
  MUST(cuDeviceGetCount(&count));
  if (count < 2) End(kUnknown, "needs two devices");
  UseDevice();
  CUcheckpointGpuPair pair{};
  MUST(cuDeviceGetUuid_v2(&pair.oldUuid, 0));
  MUST(cuDeviceGetUuid_v2(&pair.newUuid, 1));
  GoAway();
  CUcheckpointRestoreArgs args{};
  args.gpuPairs = &pair;
  args.gpuPairsCount = 1;
  const CUresult result = Driver().cuCheckpointProcessRestore(getpid(), &args);
  if (result == CUDA_SUCCESS) End(1, "taken");
  ComeBack();
  End(0, "%s", NameOf(result).c_str());
}

// UUIDs of all devices, found by a process of its own: a process asks its driver once what there is.
std::vector<CUuuid> AllDevices() {
  int out[2];
  if (pipe(out) != 0) End(kUnknown, "no pipe");
  if (fork() == 0) {
    Open();
    int count = 0;
    MUST(cuDeviceGetCount(&count));
    for (int device = 0; device < count; ++device) {
      CUuuid uuid{};
      MUST(cuDeviceGetUuid_v2(&uuid, device));
      if (write(out[1], &uuid, sizeof uuid) != sizeof uuid) _exit(1);
    }
    _exit(0);
  }
  close(out[1]);
  std::vector<CUuuid> all;
  for (CUuuid uuid{}; read(out[0], &uuid, sizeof uuid) == sizeof uuid;) all.push_back(uuid);
  close(out[0]);
  return all;
}

std::string VisibleName(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(hex);
  }
  return text;
}

// A process that is shown one device goes to another one by a list of places of all that the machine has.
void AProcessThatIsShownOneDeviceIsMoved() {
  const std::vector<CUuuid> all = AllDevices();
  if (all.size() < 2) End(kUnknown, "needs two devices");
  setenv("CUDA_VISIBLE_DEVICES", VisibleName(all[0]).c_str(), 1);
  Open();
  NeedCheckpoints();
  UseDevice();
  int count = 0;
  MUST(cuDeviceGetCount(&count));
  if (count != 1) End(1, "it has %d devices", count);
  CUdeviceptr address = 0;
  MUST(cuMemAlloc_v2(&address, kSize));
  Fill(address, 0x777);
  std::vector<CUcheckpointGpuPair> pairs(all.size());
  for (size_t i = 0; i < all.size(); ++i) pairs[i] = {all[i], i < 2 ? all[1 - i] : all[i]};
  CUcheckpointRestoreArgs args{};
  args.gpuPairs = pairs.data();
  args.gpuPairsCount = static_cast<unsigned>(pairs.size());
  GoAway();
  MUST(cuCheckpointProcessRestore(getpid(), &args));
  MUST(cuCheckpointProcessUnlock(getpid(), nullptr));
  Expect(address, 0x777, "after the move");
  CUuuid now{};
  MUST(cuDeviceGetUuid_v2(&now, 0));
  if (std::memcmp(&now, &all[1], sizeof now) != 0) End(1, "its device is %s now", VisibleName(now).c_str());
}

// A cuInit that has found no device leaves the driver to be initialised in another environment.
void InitMayBeTriedAgain() {
  setenv("CUDA_VISIBLE_DEVICES", "GPU-00000000-0000-0000-0000-000000000000", 1);
  const Status opened = OpenDriver(g_driver);
  if (!opened.ok()) End(1, "%s", std::string(opened.message()).c_str());
  const CUresult first = Driver().cuInit(0);
  if (first != CUDA_ERROR_NO_DEVICE) End(1, "without a visible device: %s", NameOf(first).c_str());
  unsetenv("CUDA_VISIBLE_DEVICES");
  MUST(cuInit(0));
  UseDevice();
}

// NVML lets go of the device's files with the driver, and answers again after the restore.
void NvmlIsCarried() {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) End(kUnknown, "%s", dlerror());
  const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  const auto count = reinterpret_cast<int (*)(unsigned*)>(dlsym(nvml, "nvmlDeviceGetCount_v2"));
  if (init == nullptr || count == nullptr || init() != 0) End(kUnknown, "NVML cannot be initialised");
  Open();
  NeedCheckpoints();
  UseDevice();
  GoAway();
  if (const auto left = LeftOf(); !left.empty()) End(1, "%s", Joined(left).c_str());
  ComeBack();
  unsigned devices = 0;
  if (const int result = count(&devices); result != 0) End(1, "nvmlDeviceGetCount: %d", result);
}

// With exportable memory still mapped: what the driver says to it, and whether the process goes on.
void CheckpointWithExportableMemoryMapped() {
  Open();
  NeedCheckpoints();
  UseDevice();
  const CUdeviceptr address = Map(Create());
  Fill(address, 1);
  MUST(cuCheckpointProcessLock(getpid(), nullptr));
  const CUresult result = Driver().cuCheckpointProcessCheckpoint(getpid(), nullptr);
  if (result != CUDA_SUCCESS) End(1, "%s", NameOf(result).c_str());
  ComeBack();
  Expect(address, 1, "after the restore");
}

void CheckpointWithManagedMemory() {
  Open();
  NeedCheckpoints();
  UseDevice();
  CUdeviceptr address = 0;
  if (Driver().cuMemAllocManaged(&address, kSize, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS)
    End(kUnknown, "no managed memory");
  MUST(cuCheckpointProcessLock(getpid(), nullptr));
  const CUresult result = Driver().cuCheckpointProcessCheckpoint(getpid(), nullptr);
  if (result != CUDA_SUCCESS) End(1, "%s", NameOf(result).c_str());
  ComeBack();
  Expect(address, 0, "after the restore");
}

struct Fact {
  const char* name;
  bool needed;
  void (*run)();
};
constexpr Fact kFacts[] = {
    {"exported-memory-outlives-its-owner", true, ExportedMemoryOutlivesItsOwner},
    {"imported-memory-is-exported-again", true, ImportedMemoryIsExportedAgain},
    {"memory-goes-aside-for-a-checkpoint", true, MemoryGoesAsideForACheckpoint},
    {"a-checkpointed-process-is-plain", true, ACheckpointedProcessIsPlain},
    {"reservations-are-carried", true, ReservationsAreCarried},
    {"pinned-memory-is-carried", false, PinnedMemoryIsCarried},
    {"registered-memory-is-carried", true, RegisteredMemoryIsCarried},
    {"addresses-are-to-be-had-again", true, AddressesAreToBeHadAgain},
    {"a-closed-driver-leaves-nothing", false, AClosedDriverLeavesNothing},
    {"short-lists-of-places-are-refused", false, ShortListsOfPlacesAreRefused},
    {"a-process-that-is-shown-one-device-is-moved", false, AProcessThatIsShownOneDeviceIsMoved},
    {"init-may-be-tried-again", false, InitMayBeTriedAgain},
    {"nvml-is-carried", false, NvmlIsCarried},
    {"checkpoint-with-exportable-memory-mapped", false, CheckpointWithExportableMemoryMapped},
    {"checkpoint-with-managed-memory", false, CheckpointWithManagedMemory},
};

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

// What the process says until it ends, or its time has passed.
std::string Listen(int fd, bool* late) {
  std::string said;
  char buffer[4096];
  pollfd ready{fd, POLLIN, 0};
  const Deadline deadline = Deadline::After(std::chrono::seconds(kSeconds));
  for (;;) {
    const int wait = static_cast<int>(deadline.Remaining() / std::chrono::milliseconds(1));
    if (poll(&ready, 1, wait) == 0) *late = true;
    const ssize_t got = *late ? 0 : read(fd, buffer, sizeof buffer);
    if (got <= 0) return said;
    said.append(buffer, static_cast<size_t>(got));
  }
}

// Whether it holds; prints its line.
bool Try(const Fact& fact) {
  int out[2];
  if (pipe(out) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    close(out[1]);
    fact.run();
    End(0, "%s", "");
  }
  close(out[1]);
  bool late = false;
  std::string detail = Listen(out[0], &late);
  close(out[0]);
  if (late) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (late) detail = "not done after " + std::to_string(kSeconds) + " s";
  if (code < 0 && !late) detail += "ended by signal " + std::to_string(WTERMSIG(status));
  const char* result = code == 0 ? "holds" : (code == kUnknown ? "cannot be told" : "fails");
  std::printf("{\"fact\": \"%s\", \"needed\": %s, \"result\": \"%s\", \"detail\": \"%s\"}\n", fact.name,
              fact.needed ? "true" : "false", result, Escaped(detail).c_str());
  std::fflush(stdout);
  return code == 0 || code == kUnknown;
}

int Main(int argc, char** argv) {
  if (argc < 2 || argv[1][0] != '/') {
    std::fprintf(stderr,
                 "usage: driver_facts DRIVER [FACT...]   DRIVER: the absolute path of libcuda.so.1\n");
    return 2;
  }
  g_driver = argv[1];
  bool all_hold = true;
  for (const Fact& fact : kFacts) {
    bool wanted = argc == 2;
    for (int i = 2; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], fact.name) == 0;
    if (wanted) all_hold = (Try(fact) || !fact.needed) && all_hold;
  }
  return all_hold ? 0 : 1;
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) { return stasis::Main(argc, argv); }

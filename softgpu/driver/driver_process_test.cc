// The library in whole processes: fork, unloading, a missing daemon, bad settings, loss of a device.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

#include "softgpu/driver/context.h"
#include "softgpu/driver/memory_testing.h"
#include "softgpu/driver/state.h"

// As programs call it that were compiled for per-thread default streams.
extern "C" CUresult CUDAAPI cuStreamQuery_ptsz(CUstream stream);

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "3", "--memory", "256MiB"};

namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

// Runs a role of this program with other settings; what it wrote on stderr is in *error.
int RunChild(const std::string& role, const std::vector<std::string>& environment, std::string* error) {
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  ChildProgram child({std::string(self, static_cast<size_t>(length)), "--child", role}, -1, environment);
  std::string output;
  return child.Finish(&output, error);
}

int Lines(const std::string& text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

SOFTGPU_CHILD(forks) {
  UseDevice();
  CUdeviceptr address;
  CHILD_CHECK(cuMemAlloc(&address, 4096) == CUDA_SUCCESS);
  pid_t pid = fork();
  if (pid == 0) {
    int count;
    CUdeviceptr other;
    bool all = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
               cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
               cuMemAlloc(&other, 4) == CUDA_ERROR_NOT_INITIALIZED &&
               cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
    exit(all ? 0 : 1);  // with destructors: the child's end must not disturb the parent
  }
  int status = -1;
  CHILD_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  CHILD_CHECK(cuMemsetD8(address, 1, 4096) == CUDA_SUCCESS);
  CHILD_CHECK(cuMemFree(address) == CUDA_SUCCESS);
  return 0;
}

TEST(ProcessTest, TheChildOfAForkCannotCall) {
  std::string error;
  EXPECT_EQ(RunChild("forks", {}, &error), 0) << error;
}

// Whether a thread of the driver is alive; a sanitizer may have one of its own.
bool HasDriverThread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    std::getline(comm, name);
    if (name.rfind("softgpu-", 0) == 0) return true;
  }
  return false;
}

SOFTGPU_CHILD(unload) {
  for (int round = 0; round < 2; round++) {
    void* library = dlopen(LIBCUDA_PATH, RTLD_NOW | RTLD_LOCAL);
    CHILD_CHECK(library != nullptr);
    auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(library, "cuInit"));
    auto retain =
        reinterpret_cast<CUresult (*)(CUcontext*, CUdevice)>(dlsym(library, "cuDevicePrimaryCtxRetain"));
    auto set = reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(library, "cuCtxSetCurrent"));
    auto load = reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(dlsym(library, "cuModuleLoadData"));
    auto get = reinterpret_cast<CUresult (*)(CUfunction*, CUmodule, const char*)>(
        dlsym(library, "cuModuleGetFunction"));
    auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(library, "cuLaunchKernel"));
    auto alloc = reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(dlsym(library, "cuMemAlloc_v2"));
    CUcontext context;
    CUmodule module;
    CUfunction function;
    uint64_t address, value = 3;
    CHILD_CHECK(init(0) == CUDA_SUCCESS && retain(&context, 0) == CUDA_SUCCESS &&
                set(context) == CUDA_SUCCESS);
    CHILD_CHECK(load(&module, kTestPtx) == CUDA_SUCCESS && get(&function, module, "store") == CUDA_SUCCESS);
    CUdeviceptr word;
    CHILD_CHECK(alloc(&word, 4) == CUDA_SUCCESS);
    address = word;
    void* params[] = {&address, &value};
    CHILD_CHECK(launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr) == CUDA_SUCCESS);
    CHILD_CHECK(HasDriverThread());
    CHILD_CHECK(dlclose(library) == 0);
    std::ifstream maps("/proc/self/maps");
    std::string text((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
    CHILD_CHECK(text.find("libcuda.so.1") == std::string::npos);
    CHILD_CHECK(text.find("memfd:") == std::string::npos);
    CHILD_CHECK(!HasDriverThread());
  }
  return 0;
}

TEST(ProcessTest, UnloadingLeavesNothing) {
  std::string error;
  // The library's own C++ runtime keeps an emergency pool that nothing can free; it counts as a leak once the
  // library that pointed to it is gone.
  EXPECT_EQ(RunChild("unload", {"ASAN_OPTIONS=detect_leaks=0"}, &error), 0) << error;
}

// For a thread that has used the driver and is held up in its end, by a lock that the driver takes there.
struct LateEnd {
  CUcontext handle = nullptr;
  Context* context = nullptr;
  std::atomic<bool> used{false}, locked{false};
};
constexpr useconds_t kHoldUp = 100000;
std::atomic<bool> ends_late{false};

void* UseAndEnd(void* argument) {
  auto* late = static_cast<LateEnd*>(argument);
  if (cuCtxSetCurrent(late->handle) == CUDA_SUCCESS) cuStreamSynchronize(CU_STREAM_PER_THREAD);
  late->used.store(true);
  late->used.notify_all();
  late->locked.wait(false);
  return nullptr;
}

void* HoldUp(void* argument) {
  auto* late = static_cast<LateEnd*>(argument);
  late->used.wait(false);
  std::lock_guard lock(late->context->order_mutex());
  late->locked.store(true);
  late->locked.notify_all();
  usleep(kHoldUp);
  return nullptr;
}

// After all other destructors: the process is there for as long as its threads go on.
__attribute__((destructor(101))) void AwaitLateEnd() {
  if (ends_late) usleep(3 * kHoldUp);
}

SOFTGPU_CHILD(thread_ends_late) {
  static LateEnd late;
  late.handle = UseDevice();
  late.context = State::Get()->FindContext(late.handle).get();
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (void* (*run)(void*) : {&UseAndEnd, &HoldUp}) {
    pthread_t thread;
    CHILD_CHECK(pthread_create(&thread, &detached, run, &late) == 0);
  }
  late.locked.wait(false);
  usleep(kHoldUp / 2);  // for the other one to come there
  ends_late = true;
  return 0;  // the driver's end
}

TEST(ProcessTest, AThreadEndsWhileTheDriverDoes) {
  std::string output, error;
  EXPECT_EQ(StartChild("thread_ends_late")->Finish(&output, &error), 0) << error;
}

struct EndlessCalls {
  CUcontext context = nullptr;
  std::atomic<int> count{0};
};

void* CallForEver(void* argument) {
  auto* calls = static_cast<EndlessCalls*>(argument);
  cuCtxSetCurrent(calls->context);
  for (;; calls->count.fetch_add(1)) cuStreamQuery_ptsz(nullptr);
}

SOFTGPU_CHILD(calls_for_ever) {
  static EndlessCalls calls;
  calls.context = UseDevice();
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int i = 0; i < 4; i++) {
    pthread_t thread;
    CHILD_CHECK(pthread_create(&thread, &detached, CallForEver, &calls) == 0);
  }
  while (calls.count < 1000) sched_yield();
  return 0;
}

TEST(ProcessTest, ThreadsCallWhileTheDriverEnds) {
  for (int round = 0; round < 5; round++) {
    std::string output, error;
    ASSERT_EQ(StartChild("calls_for_ever")->Finish(&output, &error), 0) << error;
  }
}

SOFTGPU_CHILD(init) {
  CUresult result = cuInit(0);
  int count = 0;
  if (result == CUDA_SUCCESS && cuDeviceGetCount(&count) != CUDA_SUCCESS) return 200;
  return result == CUDA_SUCCESS ? count : 10 + static_cast<int>(result);
}

TEST(ProcessTest, MissingDaemonIsNoDevice) {
  std::string error;
  EXPECT_EQ(RunChild("init", {"SOFTGPU_SOCKET=/nonexistent/socket", "SOFTGPU_AUTOSTART=0"}, &error),
            10 + CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(Lines(error), 1) << error;
}

TEST(ProcessTest, BadSettingsAreNamed) {
  for (const char* setting : {"SOFTGPU_SMS=0", "SOFTGPU_SMS=many", "SOFTGPU_AUTOSTART=perhaps",
                              "SOFTGPU_LOG=2", "SOFTGPU_IDLE_EXIT=0"}) {
    std::string error, name(setting, std::strchr(setting, '=') - setting);
    EXPECT_EQ(RunChild("init", {setting}, &error), 10 + CUDA_ERROR_INVALID_VALUE) << setting;
    EXPECT_EQ(Lines(error), 1) << error;
    EXPECT_NE(error.find(name), std::string::npos) << error;
  }
}

TEST(ProcessTest, VisibleDevices) {
  std::string error;
  EXPECT_EQ(RunChild("init", {}, &error), 3);
  EXPECT_EQ(RunChild("init", {"CUDA_VISIBLE_DEVICES=2,0"}, &error), 2);
  EXPECT_EQ(RunChild("init", {"CUDA_VISIBLE_DEVICES=1,7,0"}, &error), 1);
  EXPECT_EQ(RunChild("init", {"CUDA_VISIBLE_DEVICES="}, &error), 10 + CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(RunChild("init", {"CUDA_VISIBLE_DEVICES=GPU-"}, &error), 10 + CUDA_ERROR_NO_DEVICE);
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUuuid uuid;
  EXPECT_OK(cuDeviceGetUuid(&uuid, 1));
  char prefix[64];
  std::snprintf(prefix, sizeof prefix, "CUDA_VISIBLE_DEVICES=GPU-%02x%02x%02x%02x", uuid.bytes[0] & 0xff,
                uuid.bytes[1] & 0xff, uuid.bytes[2] & 0xff, uuid.bytes[3] & 0xff);
  EXPECT_EQ(RunChild("init", {prefix}, &error), 1);
}

SOFTGPU_CHILD(computes) {
  UseDevice();
  TestKernel store(kTestPtx, "store");
  uint32_t* word = nullptr;
  CHILD_CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&word), 64, 0) == CUDA_SUCCESS);
  CHILD_CHECK(store.Launch({reinterpret_cast<uint64_t>(word), 17}) == CUDA_SUCCESS);
  CHILD_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  return *word == 17 ? 0 : 1;
}

TEST(ProcessTest, ProcessesShareTheTimeOfADevice) {
  UseDevice();
  uint32_t* flag = nullptr;
  EXPECT_OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 64, 0));
  __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
  {
    TestKernel spin(kTestPtx, "spin");
    EXPECT_OK(spin.Launch({reinterpret_cast<uint64_t>(flag)}));
    std::string error;
    // The other process computes although the kernel here never gives the device up by itself.
    EXPECT_EQ(RunChild("computes", {}, &error), 0) << error;
    EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    EXPECT_OK(cuCtxSynchronize());
  }
  EXPECT_OK(cuMemFreeHost(flag));
}

TEST(ProcessTest, ASlowDeviceTakesLonger) {
  UseDevice();
  CUevent begin, end;
  EXPECT_OK(cuEventCreate(&begin, 0));
  EXPECT_OK(cuEventCreate(&end, 0));
  TestKernel busy(
      ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry busy()\n{\n  .reg .b32 %r<2>;\n"
      "  .reg .pred %p<2>;\n  mov.u32 %r1, 0;\nagain:\n  add.u32 %r1, %r1, 1;\n  setp.lt.u32 %p1, %r1, "
      "100000;\n"
      "  @%p1 bra again;\n  ret;\n}\n",
      "busy");
  auto measure = [&] {
    float milliseconds = 0;
    EXPECT_OK(cuEventRecord(begin, nullptr));
    EXPECT_OK(busy.Launch({}));
    EXPECT_OK(cuEventRecord(end, nullptr));
    EXPECT_OK(cuEventSynchronize(end));
    EXPECT_OK(cuEventElapsedTime(&milliseconds, begin, end));
    return milliseconds;
  };
  ConnectOptions options;
  options.observer = true;
  auto tool = DeviceClient::Connect(options, nullptr);
  ASSERT_TRUE(tool.ok());
  float fast = std::min({measure(), measure(), measure()});
  Fault fault;
  fault.kind = FaultKind::kSlow;
  fault.factor = 0.1;
  ASSERT_TRUE((*tool)->InjectFault(0, fault).ok());
  // The event reaches this process on its own; until then kernels run at full speed.
  EXPECT_TRUE(WithinAMinute([&] { return measure() > 4 * fast; }));
  fault.kind = FaultKind::kNone;
  ASSERT_TRUE((*tool)->InjectFault(0, fault).ok());
  EXPECT_OK(cuEventDestroy(begin));
  EXPECT_OK(cuEventDestroy(end));
}

TEST(ProcessTest, LossOfOneDeviceLeavesTheOthers) {
  CUcontext lost = UseDevice(2);
  uint32_t* flag = nullptr;
  EXPECT_OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 64, CU_MEMHOSTALLOC_PORTABLE));
  *flag = 0;
  TestKernel spin(kTestPtx, "spin");
  EXPECT_OK(spin.Launch({reinterpret_cast<uint64_t>(flag)}));
  CUcontext sound = UseDevice(1);
  ConnectOptions options;
  options.observer = true;
  auto tool = DeviceClient::Connect(options, nullptr);
  ASSERT_TRUE(tool.ok()) << tool.status().ToString();
  Fault fault;
  fault.kind = FaultKind::kFellOffBus;
  ASSERT_TRUE((*tool)->InjectFault(2, fault).ok());
  EXPECT_OK(cuCtxSetCurrent(lost));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  CUdeviceptr address;
  EXPECT_EQ(cuMemAlloc(&address, 4), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_OK(cuCtxSetCurrent(sound));
  EXPECT_OK(cuMemAlloc(&address, 4));
  EXPECT_OK(cuMemsetD32(address, 1, 1));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuMemFree(address));
}

}  // namespace
}  // namespace softgpu

// Native bodies as kernels, on a real daemon and through libcuda.so.1.
#include "softgpu/native/native.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "softgpu/device/client.h"
#include "softgpu/driver/memory_testing.h"
#include "softgpu/native/driver.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "2", "--memory", "256MiB"};

namespace {

using native::Launch;

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

// Host memory that device code and the test share.
class Word {
 public:
  Word() {
    EXPECT_EQ(cuMemHostAlloc(reinterpret_cast<void**>(&word_), 64, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    Set(0);
  }
  ~Word() { cuMemFreeHost(word_); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(word_); }
  void Set(uint32_t value) { __atomic_store_n(word_, value, __ATOMIC_RELEASE); }
  uint32_t Get() const { return __atomic_load_n(word_, __ATOMIC_ACQUIRE); }

 private:
  uint32_t* word_ = nullptr;
};

// *to = *to * 10 + digit: tells the order in which bodies ran.
struct Append {
  uint64_t to;
  uint32_t digit;
};
void AppendDigit(const Append& append, native::Device& device) {
  auto* word = static_cast<uint32_t*>(device.Write(append.to, 4));
  if (word != nullptr) __atomic_store_n(word, *word * 10 + append.digit, __ATOMIC_RELEASE);
}
CUresult LaunchAppend(CUstream stream, const Word& word, uint32_t digit) {
  return Launch<&AppendDigit>(stream, Append{word.address(), digit});
}

struct Access {
  uint64_t address;
  size_t bytes;
  bool write;
  std::atomic<int>* allowed;
};
void Touch(const Access& access, native::Device& device) {
  const void* got =
      access.write ? device.Write(access.address, access.bytes) : device.Read(access.address, access.bytes);
  access.allowed->store(got != nullptr);
}

void WaitForFlag(std::atomic<int>* const& flag, native::Device&) { flag->wait(0); }
void SetFlag(std::atomic<int>* const& flag, native::Device&) {
  flag->store(1);
  flag->notify_all();
}

class NativeTest : public testing::Test {
 protected:
  NativeTest() { UseDevice(); }
  ~NativeTest() override {
    EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  }
  static CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
  }
  // 1: the device may; what cuCtxSynchronize says is in *error.
  static int Try(uint64_t address, size_t bytes, bool write, CUresult* error) {
    std::atomic<int> allowed{-1};
    EXPECT_OK(Launch<&Touch>(nullptr, Access{address, bytes, write, &allowed}));
    *error = cuCtxSynchronize();
    return allowed.load();
  }
};

TEST_F(NativeTest, RunsInTheOrderOfItsStream) {
  Word flag, out;
  TestKernel spin(kTestPtx, "spin"), store(kTestPtx, "store");
  OK(spin.Launch({flag.address()}));
  OK(LaunchAppend(nullptr, out, 1));
  OK(LaunchAppend(nullptr, out, 2));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(out.Get(), 0u);
  flag.Set(1);
  OK(cuCtxSynchronize());
  EXPECT_EQ(out.Get(), 12u);
  OK(store.Launch({out.address(), 7}));
  OK(LaunchAppend(nullptr, out, 3));
  OK(cuCtxSynchronize());
  EXPECT_EQ(out.Get(), 73u);
}

TEST_F(NativeTest, CapturedLaunchesAreKernelNodesThatReplay) {
  Word out;
  CUstream stream = NewStream();
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(LaunchAppend(stream, out, 4));
  OK(LaunchAppend(stream, out, 5));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(out.Get(), 0u);
  size_t count = 0;
  OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 2u);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(out.Get(), 4545u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(NativeTest, ABodyMayWaitForAnother) {
  std::atomic<int> flag{0};
  Word out;
  TestKernel store(kTestPtx, "store");
  std::vector<CUstream> waiting;
  for (int i = 0; i < 40; i++) {
    waiting.push_back(NewStream());
    OK(Launch<&WaitForFlag>(waiting.back(), &flag));
  }
  CUstream stream = NewStream();
  OK(store.Launch({out.address(), 9}, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(out.Get(), 9u) << "kernels have their threads while bodies wait";
  for (CUstream one : waiting) EXPECT_EQ(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
  OK(Launch<&SetFlag>(stream, &flag));
  OK(cuCtxSynchronize());
}

TEST_F(NativeTest, AForbiddenAddressBreaksTheContext) {
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 5 << 20));
  CUresult error = CUDA_SUCCESS;
  EXPECT_EQ(Try(memory, 5 << 20, true, &error), 1);
  EXPECT_OK(error);
  EXPECT_EQ(Try(memory, 0, true, &error), 1);
  EXPECT_OK(error);
  EXPECT_EQ(Try(memory, 64 << 20, false, &error), 0);
  EXPECT_EQ(error, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemFree(memory), CUDA_ERROR_ILLEGAL_ADDRESS) << "sticky";
}

class ForbiddenTest : public NativeTest, public testing::WithParamInterface<std::pair<uint64_t, size_t>> {};
TEST_P(ForbiddenTest, IsRefused) {
  CUresult error = CUDA_SUCCESS;
  EXPECT_EQ(Try(GetParam().first, GetParam().second, false, &error), 0);
  EXPECT_EQ(error, CUDA_ERROR_ILLEGAL_ADDRESS);
}
INSTANTIATE_TEST_SUITE_P(
    Addresses, ForbiddenTest,
    testing::Values(std::pair<uint64_t, size_t>{0, 1}, std::pair<uint64_t, size_t>{uint64_t{1} << 46, 4096},
                    std::pair<uint64_t, size_t>{~uint64_t{0} - 4, 4},
                    std::pair<uint64_t, size_t>{~uint64_t{0} - 4, 64},
                    std::pair<uint64_t, size_t>{4096, std::numeric_limits<size_t>::max() - 4096}));

TEST_F(NativeTest, ARangeMaySpanSeveralMappings) {
  constexpr size_t kPart = 2 << 20;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUdeviceptr base = 0;
  OK(cuMemAddressReserve(&base, 4 * kPart, 0, 0, 0));
  CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (int i = 0; i < 3; i++) {
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, kPart, &prop, 0));
    OK(cuMemMap(base + i * kPart, kPart, 0, handle, 0));
    access.flags = i == 2 ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    OK(cuMemSetAccess(base + i * kPart, kPart, &access, 1));
    OK(cuMemRelease(handle));
  }
  CUresult error = CUDA_SUCCESS;
  EXPECT_EQ(Try(base, 2 * kPart, true, &error), 1);
  EXPECT_EQ(Try(base + 1, 3 * kPart - 1, false, &error), 1);
  EXPECT_OK(error);
  EXPECT_EQ(Try(base + 1, 2 * kPart, true, &error), 0) << "the last byte may only be read";
  EXPECT_EQ(error, CUDA_ERROR_ILLEGAL_ADDRESS);
}

void Refuse(const int&, native::Device& device) { device.Fail("as the test wants it"); }

TEST_F(NativeTest, AFailureIsThatOfALaunch) {
  Word out;
  OK(Launch<&Refuse>(nullptr, 0));
  // Refused at once, or passed over.
  static_cast<void>(LaunchAppend(nullptr, out, 1));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(out.Get(), 0u);
}

void CopyOut(const void* arguments, native::Device&) {
  unsigned char* out = nullptr;
  std::memcpy(&out, arguments, sizeof out);
  std::memcpy(out, arguments, native::kMaxArguments);
}

TEST_F(NativeTest, ArgumentsAreCopiedAndLimited) {
  std::vector<unsigned char> arguments(native::kMaxArguments + 1), out(native::kMaxArguments);
  for (size_t i = 0; i < arguments.size(); i++) arguments[i] = static_cast<unsigned char>(i * 7);
  unsigned char* to = out.data();
  std::memcpy(arguments.data(), &to, sizeof to);
  EXPECT_EQ(Launch(nullptr, &CopyOut, arguments.data(), arguments.size()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(nullptr, nullptr, arguments.data(), 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(nullptr, &CopyOut, nullptr, 8), CUDA_ERROR_INVALID_VALUE);
  std::vector<unsigned char> given(arguments.begin(), arguments.begin() + native::kMaxArguments);
  OK(Launch(nullptr, &CopyOut, given.data(), given.size()));
  std::fill(given.begin(), given.end(), 0);
  OK(cuCtxSynchronize());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), arguments.begin()));
}

TEST_F(NativeTest, OneModuleServesEveryContext) {
  Word out;
  OK(LaunchAppend(nullptr, out, 1));
  OK(cuCtxSynchronize());
  CUdeviceptr first = 0;
  OK(cuMemAlloc(&first, 4096));
  UseDevice(1);
  OK(LaunchAppend(nullptr, out, 2));
  OK(cuCtxSynchronize());
  EXPECT_EQ(out.Get(), 12u);
  CUresult error = CUDA_SUCCESS;
  EXPECT_EQ(Try(first, 4096, false, &error), 0) << "memory of a device that is no peer";
  EXPECT_EQ(error, CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuDevicePrimaryCtxReset(1));
  UseDevice(0);
  OK(cuDevicePrimaryCtxReset(0));
  UseDevice(0);
  Word again;
  OK(LaunchAppend(nullptr, again, 3));
  OK(cuCtxSynchronize());
  EXPECT_EQ(again.Get(), 3u);
}

// What a program may make of the pragma by itself.
class MarkedTest : public NativeTest, public testing::WithParamInterface<const char*> {};
TEST_P(MarkedTest, WithoutABodyTheLaunchFails) {
  std::string text = ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k(" +
                     std::string(GetParam()) + ")\n.pragma \"softgpu.native\";\n{ ret; }\n";
  TestKernel kernel(text.c_str(), "k");
  OK(kernel.Launch({0}));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}
INSTANTIATE_TEST_SUITE_P(Parameters, MarkedTest, testing::Values("", ".param .u64 body"));

TEST_F(NativeTest, AThreadWithoutAContextGetsThePrimaryOne) {
  CUcontext mine = nullptr, theirs = nullptr;
  OK(cuCtxGetCurrent(&mine));
  std::thread([&theirs] {
    EXPECT_OK(native::EnsureContext());
    EXPECT_OK(cuCtxGetCurrent(&theirs));
  }).join();
  EXPECT_EQ(theirs, mine);
  OK(cuDevicePrimaryCtxReset(0));
  OK(cuCtxSetCurrent(nullptr));
  std::thread([] {
    EXPECT_OK(native::EnsureContext());
    Word out;
    EXPECT_OK(LaunchAppend(nullptr, out, 8));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(out.Get(), 8u);
  }).join();
}

TEST_F(NativeTest, AContextOfTheProgramStays) {
  CUcontext own = nullptr, current = nullptr;
  OK(cuCtxCreate(&own, nullptr, 0, 1));
  OK(native::EnsureContext());
  OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, own);
  OK(cuCtxDestroy(own));
}

std::chrono::nanoseconds ProcessorTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

void Work(const std::chrono::nanoseconds& time, native::Device&) {
  auto begin = ProcessorTime();
  while (ProcessorTime() - begin < time) {
  }
}

constexpr std::chrono::milliseconds kWork(20);
constexpr double kFactor = 0.1;

SOFTGPU_CHILD(works_on_a_slow_device) {
  UseDevice();
  auto begin = std::chrono::steady_clock::now();
  CHILD_CHECK(Launch<&Work>(nullptr, std::chrono::nanoseconds(kWork)) == CUDA_SUCCESS);
  CHILD_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHILD_CHECK(std::chrono::steady_clock::now() - begin >= kWork / kFactor);
  return 0;
}

TEST_F(NativeTest, ASlowDeviceSlowsItDown) {
  ConnectOptions options;
  options.observer = true;
  auto client = DeviceClient::Connect(options, nullptr);
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_TRUE((*client)->InjectFault(0, Fault{FaultKind::kSlow, kFactor, 0}).ok());
  EXPECT_EQ(StartChild("works_on_a_slow_device")->Wait(), 0);
  ASSERT_TRUE((*client)->InjectFault(0, Fault{FaultKind::kReset, 1, 0}).ok());
}

}  // namespace
}  // namespace softgpu

// Launches, streams, events and errors on a real daemon.
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "1", "--memory", "512MiB"};

namespace {

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

// Host memory that kernels spin on and write to.
class Word {
 public:
  Word() {
    EXPECT_EQ(cuMemHostAlloc(reinterpret_cast<void**>(&word_), 64, 0), CUDA_SUCCESS);
    Set(0);
  }
  ~Word() { cuMemFreeHost(word_); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(word_); }
  void Set(uint32_t value) { __atomic_store_n(word_, value, __ATOMIC_RELEASE); }
  uint32_t Get() const { return __atomic_load_n(word_, __ATOMIC_ACQUIRE); }

 private:
  uint32_t* word_ = nullptr;
};

class StreamTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_OK(cuCtxSynchronize()); }
  CUstream NewStream(unsigned flags) {
    CUstream stream = nullptr;
    EXPECT_OK(cuStreamCreate(&stream, flags));
    return stream;
  }

  const CUcontext context_ = UseDevice();  // before the kernels
  TestKernel spin_{kTestPtx, "spin"};
  TestKernel store_{kTestPtx, "store"};
};

TEST_F(StreamTest, LaunchReturnsBeforeTheKernelRan) {
  Word flag, out;
  OK(spin_.Launch({flag.address()}));
  OK(store_.Launch({out.address(), 7}));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(out.Get(), 0u);
  flag.Set(1);
  OK(cuCtxSynchronize());
  EXPECT_EQ(out.Get(), 7u);
  EXPECT_OK(cuStreamQuery(nullptr));
}

// While `first` spins, is work of `second` held back?
struct OrderCase {
  unsigned first, second;  // CU_STREAM_*, or 99 for the legacy stream
  bool held;
};
class OrderTest : public StreamTest, public testing::WithParamInterface<OrderCase> {};

constexpr unsigned kLegacy = 99;

TEST_P(OrderTest, DefaultStreamRules) {
  Word flag, out;
  CUstream first = GetParam().first == kLegacy ? CU_STREAM_LEGACY : NewStream(GetParam().first);
  CUstream second = GetParam().second == kLegacy ? CU_STREAM_LEGACY : NewStream(GetParam().second);
  OK(spin_.Launch({flag.address()}, first));
  OK(store_.Launch({out.address(), 1}, second));
  if (GetParam().held) {
    EXPECT_EQ(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(out.Get(), 0u);
  } else {
    EXPECT_OK(cuStreamSynchronize(second));
    EXPECT_EQ(out.Get(), 1u);
  }
  flag.Set(1);
  OK(cuCtxSynchronize());
  EXPECT_EQ(out.Get(), 1u);
  for (CUstream stream : {first, second}) {
    if (stream != CU_STREAM_LEGACY) {
      EXPECT_OK(cuStreamDestroy(stream));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Matrix, OrderTest,
                         testing::Values(OrderCase{kLegacy, CU_STREAM_DEFAULT, true},
                                         OrderCase{kLegacy, CU_STREAM_NON_BLOCKING, false},
                                         OrderCase{kLegacy, kLegacy, true},
                                         OrderCase{CU_STREAM_DEFAULT, kLegacy, true},
                                         OrderCase{CU_STREAM_NON_BLOCKING, kLegacy, false},
                                         OrderCase{CU_STREAM_DEFAULT, CU_STREAM_DEFAULT, false},
                                         OrderCase{CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING, false}));

TEST_F(StreamTest, PerThreadStreamsAreDistinctAndWaitForTheLegacyStream) {
  Word flag, out, other;
  OK(spin_.Launch({flag.address()}, CU_STREAM_PER_THREAD));
  std::thread([&] {
    cuCtxSetCurrent(context_);
    EXPECT_OK(store_.Launch({other.address(), 3}, CU_STREAM_PER_THREAD));
    EXPECT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_EQ(other.Get(), 3u);
  OK(store_.Launch({out.address(), 5}, CU_STREAM_LEGACY));
  EXPECT_EQ(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
  flag.Set(1);
  OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  EXPECT_EQ(out.Get(), 5u);
}

TEST_F(StreamTest, EventsOrderStreamsAndMeasureTheDevice) {
  Word flag, out;
  CUstream first = NewStream(CU_STREAM_NON_BLOCKING), second = NewStream(CU_STREAM_NON_BLOCKING);
  CUevent begin, end;
  OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  float elapsed = -1;
  EXPECT_EQ(cuEventElapsedTime(&elapsed, begin, end), CUDA_ERROR_INVALID_HANDLE);
  OK(cuEventRecord(begin, first));
  OK(spin_.Launch({flag.address()}, first));
  OK(cuEventRecord(end, first));
  OK(cuStreamWaitEvent(second, end, 0));
  OK(store_.Launch({out.address(), 9}, second));
  EXPECT_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuEventElapsedTime(&elapsed, begin, end), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(out.Get(), 0u);
  auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(20)) std::this_thread::yield();
  flag.Set(1);
  OK(cuEventSynchronize(end));
  OK(cuEventElapsedTime(&elapsed, begin, end));
  EXPECT_GE(elapsed, 20.0f);
  OK(cuStreamSynchronize(second));
  EXPECT_EQ(out.Get(), 9u);
  EXPECT_OK(cuEventDestroy(begin));
  EXPECT_OK(cuEventDestroy(end));
  EXPECT_OK(cuStreamDestroy(first));
  EXPECT_OK(cuStreamDestroy(second));
}

struct Calls {
  std::mutex mutex;
  std::vector<int> order;
  CUresult inner = CUDA_SUCCESS;
  std::thread::id thread;
};

TEST_F(StreamTest, HostFunctionsRunInOrderOnAnotherThreadAndMayNotCall) {
  Calls calls;
  Word flag;
  CUstream stream = NewStream(CU_STREAM_DEFAULT);
  OK(spin_.Launch({flag.address()}, stream));
  auto function = [](void* data) {
    auto* all = static_cast<Calls*>(data);
    std::lock_guard lock(all->mutex);
    all->order.push_back(1);
    all->thread = std::this_thread::get_id();
    size_t free_bytes, total;
    all->inner = cuMemGetInfo(&free_bytes, &total);
  };
  auto callback = [](CUstream, CUresult status, void* data) {
    auto* all = static_cast<Calls*>(data);
    std::lock_guard lock(all->mutex);
    all->order.push_back(status == CUDA_SUCCESS ? 2 : -1);
  };
  OK(cuLaunchHostFunc(stream, function, &calls));
  OK(cuStreamAddCallback(stream, callback, &calls, 0));
  OK(cuLaunchHostFunc(stream, function, &calls));
  EXPECT_TRUE(calls.order.empty());
  flag.Set(1);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(calls.order, (std::vector<int>{1, 2, 1}));
  EXPECT_EQ(calls.inner, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_NE(calls.thread, std::this_thread::get_id());
  EXPECT_OK(cuStreamDestroy(stream));
}

TEST_F(StreamTest, DestroyedStreamAndEventFinishTheirWork) {
  Word flag, out;
  CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  CUevent event;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(spin_.Launch({flag.address()}, stream));
  OK(cuEventRecord(event, stream));
  OK(store_.Launch({out.address(), 2}, stream));
  OK(cuEventDestroy(event));
  OK(cuStreamDestroy(stream));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  flag.Set(1);
  OK(cuCtxSynchronize());
  EXPECT_EQ(out.Get(), 2u);
}

TEST_F(StreamTest, StreamMemoryOperations) {
  Word flag, out;
  CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  OK(cuStreamWaitValue32(stream, flag.address(), 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWriteValue32(stream, out.address(), 11, 0));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  flag.Set(4);
  EXPECT_EQ(out.Get(), 0u);
  flag.Set(6);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(out.Get(), 11u);
  EXPECT_EQ(cuStreamWriteValue32(stream, out.address() + 1, 11, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32(stream, 16, 5, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuStreamDestroy(stream));
}

TEST_F(StreamTest, LaunchLimits) {
  CUmodule module;
  CUfunction function;
  OK(cuModuleLoadData(&module, kTestPtx));
  OK(cuModuleGetFunction(&function, module, "store"));
  uint64_t address = 0, value = 0;
  void* params[] = {&address, &value};
  auto launch = [&](unsigned gx, unsigned gy, unsigned bx, unsigned bz, unsigned shared) {
    return cuLaunchKernel(function, gx, gy, 1, bx, 1, bz, shared, nullptr, params, nullptr);
  };
  EXPECT_EQ(launch(0, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 65536, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1025, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 512, 4, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1, 1, 48 * 1024 + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 99 * 1024 + 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  size_t offset = 0, size = 0;
  EXPECT_OK(cuFuncGetParamInfo(function, 1, &offset, &size));
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(size, 8u);
  EXPECT_EQ(cuFuncGetParamInfo(function, 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_OK(cuModuleUnload(module));
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, ParametersAreCopiedAtTheCall) {
  Word flag, out;
  CUmodule module;
  CUfunction function;
  OK(cuModuleLoadData(&module, kTestPtx));
  OK(cuModuleGetFunction(&function, module, "store"));
  OK(spin_.Launch({flag.address()}));
  uint64_t block[2] = {out.address(), 21};
  size_t size = sizeof block;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  block[0] = block[1] = 0;
  flag.Set(1);
  OK(cuCtxSynchronize());
  EXPECT_EQ(out.Get(), 21u);
  EXPECT_OK(cuModuleUnload(module));
}

TEST_F(StreamTest, BadCodeIsRefusedWithTheReason) {
  char log[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  const char* unknown =
      ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n  frobnicate.u32 ;\n  "
      "ret;\n}\n";
  CUmodule module;
  EXPECT_EQ(cuModuleLoadDataEx(&module, unknown, 2, options, values), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::strstr(log, "frobnicate"), nullptr) << log;
  EXPECT_NE(std::strstr(log, "line 6"), nullptr) << log;
  EXPECT_EQ(reinterpret_cast<size_t>(values[1]), std::strlen(log));
  EXPECT_EQ(cuModuleLoadData(&module, "no image at all"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(cuModuleLoad(&module, "/nonexistent/file"), CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(StreamTest, LinkedImagesLoad) {
  const char* library =
      ".version 8.0\n.target sm_75\n.address_size 64\n.visible .func (.param .b32 r) seven()\n{\n"
      "  .reg .b32 %r<2>;\n  mov.u32 %r1, 7;\n  st.param.b32 [r], %r1;\n  ret;\n}\n";
  const char* user =
      ".version 8.0\n.target sm_75\n.address_size 64\n.extern .func (.param .b32 r) seven();\n"
      ".visible .entry k(.param .u64 out)\n{\n  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n"
      "  ld.param.u64 %rd1, [out];\n  {\n  .param .b32 retval0;\n  call.uni (retval0), seven, ();\n"
      "  ld.param.b32 %r1, [retval0];\n  }\n  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";
  CUlinkState link;
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(user), std::strlen(user) + 1, "user", 0, nullptr,
                   nullptr));
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(library), std::strlen(library), "library", 0,
                   nullptr, nullptr));
  void* image;
  size_t size;
  OK(cuLinkComplete(link, &image, &size));
  CUlibrary loaded;
  OK(cuLibraryLoadData(&loaded, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLinkDestroy(link));
  CUkernel kernel;
  OK(cuLibraryGetKernel(&kernel, loaded, "k"));
  Word out;
  uint64_t address = out.address();
  void* params[] = {&address};
  // A kernel handle works where a function is wanted.
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(out.Get(), 7u);
  OK(cuLibraryUnload(loaded));
}

TEST_F(StreamTest, ManyThreadsAndStreams) {
  constexpr int kThreads = 6, kRounds = 20;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      cuCtxSetCurrent(context_);
      CUdeviceptr word;
      if (cuMemAlloc(&word, 4) != CUDA_SUCCESS) wrong++;
      for (int i = 0; i < kRounds; i++) {
        CUstream stream;
        CUevent event;
        uint32_t value = static_cast<uint32_t>(t * 1000 + i), seen = 0;
        if (cuStreamCreate(&stream, t % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT) != CUDA_SUCCESS)
          wrong++;
        if (cuEventCreate(&event, 0) != CUDA_SUCCESS) wrong++;
        if (store_.Launch({word, value}, stream) != CUDA_SUCCESS) wrong++;
        if (cuEventRecord(event, stream) != CUDA_SUCCESS) wrong++;
        if (cuEventSynchronize(event) != CUDA_SUCCESS) wrong++;
        if (cuMemcpyDtoHAsync(&seen, word, 4, stream) != CUDA_SUCCESS) wrong++;
        if (cuStreamSynchronize(stream) != CUDA_SUCCESS || seen != value) wrong++;
        if (cuEventDestroy(event) != CUDA_SUCCESS || cuStreamDestroy(stream) != CUDA_SUCCESS) wrong++;
      }
      if (cuMemFree(word) != CUDA_SUCCESS) wrong++;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ContextTest, StackAndStaleHandles) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext before = nullptr, current = nullptr, context = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&before));
  EXPECT_OK(cuCtxCreate(&context, nullptr, 0, 0));
  EXPECT_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context);
  std::thread([&] {
    size_t free_bytes, total;
    EXPECT_EQ(cuMemGetInfo(&free_bytes, &total), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_OK(cuCtxSetCurrent(context));
    std::thread([&] { EXPECT_OK(cuCtxDestroy(context)); }).join();
    EXPECT_EQ(cuMemGetInfo(&free_bytes, &total), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  EXPECT_OK(cuCtxPopCurrent(nullptr));
  EXPECT_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, before);
}

TEST(ContextTest, StickyErrorBreaksOneContextOnly) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext broken, sound;
  EXPECT_OK(cuCtxCreate(&broken, nullptr, 0, 0));
  {
    TestKernel store(kTestPtx, "store");
    EXPECT_OK(store.Launch({16, 1}));
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(store.Launch({16, 1}), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr address;
    EXPECT_EQ(cuMemAlloc(&address, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  EXPECT_OK(cuCtxCreate(&sound, nullptr, 0, 0));
  CUdeviceptr address;
  EXPECT_OK(cuMemAlloc(&address, 4));
  EXPECT_OK(cuMemFree(address));
  EXPECT_OK(cuCtxDestroy(sound));
  EXPECT_OK(cuCtxDestroy(broken));
}

TEST(ContextTest, PrimaryContextState) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUcontext first, second;
  unsigned flags = 9;
  int active = 9;
  EXPECT_OK(cuDevicePrimaryCtxRetain(&first, 0));
  EXPECT_OK(cuDevicePrimaryCtxRetain(&second, 0));
  EXPECT_EQ(first, second);
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1);
  EXPECT_OK(cuDevicePrimaryCtxReset(0));
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuDevicePrimaryCtxRetain(&second, 0));
  EXPECT_EQ(first, second);
  size_t value = 0;
  EXPECT_OK(cuCtxSetCurrent(second));
  EXPECT_OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4096));
  EXPECT_OK(cuCtxGetLimit(&value, CU_LIMIT_PRINTF_FIFO_SIZE));
  EXPECT_EQ(value, 4096u);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
  EXPECT_OK(cuDevicePrimaryCtxRelease(0));
}

}  // namespace
}  // namespace softgpu

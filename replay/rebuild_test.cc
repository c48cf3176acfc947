// Objects made through the interposer's own wrappers, and used again in a new driver under their old handles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "intercept/gate.h"
#include "intercept/process.h"
#include "replay/object_table.h"
#include "replay/pause.h"
#include "replay/testing.h"
#include "replay/translate.h"
#include "vmm/hold.h"
#include "vmm/pause.h"
#include "vmm/real_driver.h"
#include "vmm/testing.h"

namespace stasis {
namespace {

using replay::BackToReleased;
using replay::ComeBack;
using replay::LetGo;
using replay::PauseAndResume;
using replay::Stop;
using testing::HasSubstr;

const char kCode[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.global .align 8 .u64 where = generic(counter);
.visible .const .align 4 .u32 step = 3;
.visible .global .attribute(.managed) .align 4 .u32 shared_value = 7;
.visible .entry add(.param .u64 out)
{
  .reg .b64 %rd<5>;
  .reg .b32 %r<6>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u64 %rd3, [where];
  ld.u32 %r1, [%rd3];
  ld.const.u32 %r2, [step];
  add.u32 %r3, %r1, %r2;
  st.u32 [%rd3], %r3;
  ld.global.u32 %r4, [shared_value];
  add.u32 %r5, %r3, %r4;
  st.global.u32 [%rd2], %r5;
  ret;
}
.visible .entry spin(.param .u64 flag)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [flag];
  cvta.to.global.u64 %rd2, %rd1;
again:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
)";

class RebuildTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA_OK(cuInit(0));
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&primary_, 0));
    ASSERT_CUDA_OK(cuCtxSetCurrent(primary_));
    ASSERT_CUDA_OK(cuMemAlloc_v2(&out_, 64));
  }
  void TearDown() override {
    EXPECT_CUDA_OK(cuMemFree_v2(out_));
    EXPECT_CUDA_OK(cuDevicePrimaryCtxRelease_v2(0));
    CUcontext popped = nullptr;
    EXPECT_CUDA_OK(cuCtxPopCurrent_v2(&popped));
    EXPECT_EQ(popped, primary_);
    EXPECT_LE(replay::ObjectTable::Get().size(), 1u) << "the primary context's handle";
  }
  uint32_t Launch(CUfunction function, CUstream stream = nullptr) {
    void* parameters[] = {&out_};
    EXPECT_CUDA_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    EXPECT_CUDA_OK(cuCtxSynchronize());
    uint32_t value = 0;
    EXPECT_CUDA_OK(cuMemcpyDtoH_v2(&value, out_, sizeof value));
    return value;
  }
  CUcontext primary_ = nullptr;
  CUdeviceptr out_ = 0;
};

CUfunction AsFunction(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

TEST_F(RebuildTest, LibraryKernelAndItsVariables) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr, listed[2] = {};
  std::string text = kCode;  // the program may throw it away
  ASSERT_CUDA_OK(cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  text.assign(text.size(), 'x');
  ASSERT_CUDA_OK(cuLibraryGetKernel(&kernel, library, "add"));
  CUdeviceptr counter = 0, again = 0;
  size_t size = 0;
  ASSERT_CUDA_OK(cuLibraryGetGlobal(&counter, &size, library, "counter"));
  EXPECT_EQ(Launch(AsFunction(kernel)), 5u + 3 + 7);
  const uint32_t step = 10;
  CUdeviceptr step_address = 0;
  ASSERT_CUDA_OK(cuLibraryGetGlobal(&step_address, &size, library, "step"));
  ASSERT_CUDA_OK(cuMemcpyHtoD_v2(step_address, &step, sizeof step));
  for (uint32_t round = 1; round <= 3; ++round) {
    PauseAndResume();
    ASSERT_CUDA_OK(cuLibraryGetGlobal(&again, &size, library, "counter"));
    EXPECT_EQ(again, counter);
    EXPECT_EQ(Launch(AsFunction(kernel)), 8 + round * 10 + 7);
  }
  ASSERT_CUDA_OK(cuLibraryEnumerateKernels(listed, 2, library));
  EXPECT_TRUE(listed[0] == kernel || listed[1] == kernel);
  CUlibrary owner = nullptr;
  EXPECT_CUDA_OK(cuKernelGetLibrary(&owner, kernel));
  EXPECT_EQ(owner, library);
  EXPECT_CUDA_OK(cuLibraryUnload(library));
}

TEST_F(RebuildTest, ModulesFunctionsAndTheirSettings) {
  CUmodule first = nullptr, second = nullptr, found = nullptr;
  CUfunction function = nullptr, same = nullptr;
  ASSERT_CUDA_OK(cuModuleLoadData(&first, kCode));
  CUjit_option options[] = {CU_JIT_MAX_REGISTERS};
  void* values[] = {reinterpret_cast<void*>(32)};
  ASSERT_CUDA_OK(cuModuleLoadDataEx(&second, kCode, 1, options, values));
  ASSERT_CUDA_OK(cuModuleGetFunction(&function, second, "add"));
  ASSERT_CUDA_OK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
  EXPECT_EQ(Launch(function), 15u);
  ASSERT_CUDA_OK(cuModuleUnload(first));  // its place is free: the second must not move there
  CUdeviceptr before = 0, after = 0;
  ASSERT_CUDA_OK(cuModuleGetGlobal_v2(&before, nullptr, second, "counter"));
  PauseAndResume();
  ASSERT_CUDA_OK(cuModuleGetGlobal_v2(&after, nullptr, second, "counter"));
  EXPECT_EQ(after, before);
  EXPECT_EQ(Launch(function), 18u);
  int shared = 0;
  EXPECT_CUDA_OK(cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  EXPECT_EQ(shared, 60000);
  EXPECT_CUDA_OK(cuModuleGetFunction(&same, second, "add"));
  EXPECT_EQ(same, function);
  EXPECT_CUDA_OK(cuFuncGetModule(&found, function));
  EXPECT_EQ(found, second);
  EXPECT_CUDA_OK(cuModuleUnload(second));
}

TEST_F(RebuildTest, AVariableThatCannotComeBackIsNamedAndTheNextTrySucceeds) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_CUDA_OK(cuModuleLoadData(&module, kCode));
  ASSERT_CUDA_OK(cuModuleGetFunction(&function, module, "add"));
  EXPECT_EQ(Launch(function), 15u);
  CUdeviceptr counter = 0;
  ASSERT_CUDA_OK(cuModuleGetGlobal_v2(&counter, nullptr, module, "counter"));
  const uint64_t page = counter / 4096 * 4096;
  ASSERT_TRUE(Stop().ok());
  EXPECT_STATUS_OK(LetGo());
  EXPECT_THAT(vmm::OwnerOfAddresses(page, 4096), HasSubstr("---p")) << "the place is not held";
  vmm::DropHold(page, 4096);
  EXPECT_STATUS_OK(vmm::HoldAddresses(page + 4096, 4096));  // somebody else has come to lie there
  const Status failed = ComeBack();
  EXPECT_EQ(failed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failed.ToString(), HasSubstr("'counter'"));
  BackToReleased();
  vmm::DropHold(page + 4096, 4096);
  EXPECT_STATUS_OK(ComeBack());
  OpenGate();
  EXPECT_EQ(Launch(function), 18u);
  EXPECT_CUDA_OK(cuModuleUnload(module));
}

TEST_F(RebuildTest, StreamsKeepWhatTheyAre) {
  CUstream stream = nullptr, fresh = nullptr;
  ASSERT_CUDA_OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -2));
  CUstreamAttrValue value{};
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  ASSERT_CUDA_OK(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  unsigned long long id = 0, later = 0, fresh_id = 0;
  ASSERT_CUDA_OK(cuStreamGetId(stream, &id));
  PauseAndResume();
  unsigned flags = 0;
  int priority = 0;
  CUcontext context = nullptr;
  CUstreamAttrValue kept{};
  EXPECT_CUDA_OK(cuStreamGetFlags(stream, &flags));
  EXPECT_CUDA_OK(cuStreamGetPriority(stream, &priority));
  EXPECT_CUDA_OK(cuStreamGetCtx(stream, &context));
  EXPECT_CUDA_OK(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &kept));
  EXPECT_CUDA_OK(cuStreamGetId(stream, &later));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(priority, -2);
  EXPECT_EQ(context, primary_);
  EXPECT_EQ(kept.syncPolicy, CU_SYNC_POLICY_YIELD);
  EXPECT_EQ(later, id);
  ASSERT_CUDA_OK(cuStreamCreate(&fresh, 0));
  EXPECT_CUDA_OK(cuStreamGetId(fresh, &fresh_id));
  EXPECT_GT(fresh_id, id);
  CUstream told = nullptr;
  ASSERT_CUDA_OK(cuStreamAddCallback(
      stream, [](CUstream which, CUresult, void* data) { *static_cast<CUstream*>(data) = which; }, &told, 0));
  EXPECT_CUDA_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(told, stream);
  EXPECT_CUDA_OK(cuStreamDestroy_v2(stream));
  EXPECT_CUDA_OK(cuStreamDestroy_v2(fresh));
}

TEST_F(RebuildTest, EventTimesLeaveThePauseOut) {
  CUevent a = nullptr, b = nullptr, c = nullptr, never = nullptr, plain = nullptr;
  for (CUevent* event : {&a, &b, &c, &never}) ASSERT_CUDA_OK(cuEventCreate(event, 0));
  ASSERT_CUDA_OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  auto nap = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  ASSERT_CUDA_OK(cuEventRecord(a, nullptr));
  ASSERT_CUDA_OK(cuEventRecord(plain, nullptr));
  nap(5);
  ASSERT_CUDA_OK(cuEventRecord(b, nullptr));
  ASSERT_CUDA_OK(cuCtxSynchronize());
  float before = 0, after = 0, over = 0;
  ASSERT_CUDA_OK(cuEventElapsedTime_v2(&before, a, b));
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(Stop().ok());
    EXPECT_STATUS_OK(LetGo());
    nap(300);
    EXPECT_STATUS_OK(ComeBack());
    OpenGate();
    ASSERT_CUDA_OK(cuEventElapsedTime_v2(&after, a, b));
    EXPECT_EQ(after, before);
    EXPECT_CUDA_OK(cuEventQuery(a));
    EXPECT_CUDA_OK(cuEventQuery(plain));
    EXPECT_CUDA_OK(cuEventQuery(never));
    EXPECT_EQ(cuEventElapsedTime_v2(&after, a, never), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventElapsedTime_v2(&after, a, plain), CUDA_ERROR_INVALID_HANDLE);
  }
  nap(5);
  ASSERT_CUDA_OK(cuEventRecord(c, nullptr));
  ASSERT_CUDA_OK(cuEventSynchronize(c));
  ASSERT_CUDA_OK(cuEventElapsedTime_v2(&over, a, c));
  EXPECT_GT(over, before + 5 - 0.1);
  EXPECT_LT(over, 300) << "a pause was counted";
  ASSERT_CUDA_OK(cuEventElapsedTime_v2(&after, c, a));
  EXPECT_EQ(after, -over);
  ASSERT_CUDA_OK(cuEventRecord(a, nullptr));
  ASSERT_CUDA_OK(cuCtxSynchronize());
  ASSERT_CUDA_OK(cuEventElapsedTime_v2(&after, c, a));
  EXPECT_GE(after, 0) << "the new record counts, not the old one";
  for (CUevent event : {a, b, c, never, plain}) EXPECT_CUDA_OK(cuEventDestroy_v2(event));
}

TEST_F(RebuildTest, ContextsLimitsAndStacks) {
  CUcontext made = nullptr, current = nullptr;
  ASSERT_CUDA_OK(cuCtxCreate_v2(&made, CU_CTX_SCHED_YIELD, 1));
  ASSERT_CUDA_OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 3 << 20));
  ASSERT_CUDA_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  ASSERT_CUDA_OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  unsigned long long id = 0, later = 0;
  ASSERT_CUDA_OK(cuCtxGetId(made, &id));
  ASSERT_CUDA_OK(cuDevicePrimaryCtxSetFlags_v2(2, CU_CTX_SCHED_SPIN));
  CUcontext other = nullptr;
  std::thread([&] {  // a thread with a stack of its own, which ends before the pause
    EXPECT_CUDA_OK(cuCtxSetCurrent(primary_));
    EXPECT_CUDA_OK(cuCtxGetCurrent(&other));
  })
      .join();
  EXPECT_EQ(other, primary_);
  PauseAndResume();
  size_t limit = 0;
  CUfunc_cache cache{};
  unsigned flags = 0;
  int active = 1;
  CUdevice device = -1;
  EXPECT_CUDA_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, made);
  EXPECT_CUDA_OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 1);
  EXPECT_CUDA_OK(cuCtxGetLimit(&limit, CU_LIMIT_PRINTF_FIFO_SIZE));
  EXPECT_EQ(limit, size_t{3} << 20);
  EXPECT_CUDA_OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  EXPECT_EQ(limit, 4096u);
  EXPECT_CUDA_OK(cuCtxGetCacheConfig(&cache));
  EXPECT_EQ(cache, CU_FUNC_CACHE_PREFER_L1);
  EXPECT_CUDA_OK(cuCtxGetFlags(&flags));
  EXPECT_EQ(flags & CU_CTX_SCHED_MASK, static_cast<unsigned>(CU_CTX_SCHED_YIELD));
  EXPECT_CUDA_OK(cuCtxGetId(made, &later));
  EXPECT_EQ(later, id);
  EXPECT_CUDA_OK(cuDevicePrimaryCtxGetState(2, &flags, &active));
  EXPECT_EQ(flags & CU_CTX_SCHED_MASK, static_cast<unsigned>(CU_CTX_SCHED_SPIN));
  EXPECT_EQ(active, 0);
  EXPECT_CUDA_OK(cuCtxDestroy_v2(made));
  EXPECT_CUDA_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, primary_);
}

TEST_F(RebuildTest, AResetPrimaryContextComesBackUnderItsHandle) {
  CUcontext second = nullptr, again = nullptr;
  CUstream stream = nullptr;
  ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&second, 2));
  ASSERT_CUDA_OK(cuCtxPushCurrent_v2(second));
  ASSERT_CUDA_OK(cuStreamCreate(&stream, 0));
  const size_t records = replay::ObjectTable::Get().size();
  ASSERT_CUDA_OK(cuDevicePrimaryCtxReset_v2(2));
  EXPECT_EQ(replay::ObjectTable::Get().size(), records - 1);
  PauseAndResume();
  CUcontext current = nullptr;
  EXPECT_CUDA_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, primary_) << "the dead context left the stack";
  ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&again, 2));
  EXPECT_EQ(again, second);
  ASSERT_CUDA_OK(cuCtxPushCurrent_v2(again));
  EXPECT_CUDA_OK(cuCtxSynchronize());
  PauseAndResume();
  EXPECT_CUDA_OK(cuCtxSynchronize());
  EXPECT_CUDA_OK(cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(current, again);
  EXPECT_CUDA_OK(cuDevicePrimaryCtxRelease_v2(2));
  replay::ObjectTable::Get().Remove(replay::ObjectTable::Get().Find(reinterpret_cast<uint64_t>(again)));
}

TEST_F(RebuildTest, LinkedCode) {
  CUlinkState link = nullptr;
  ASSERT_CUDA_OK(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  ASSERT_TRUE(Stop().ok());
  const Status refused = LetGo();
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.ToString(), HasSubstr("cuLinkCreate"));
  OpenGate();
  std::string text = kCode;
  ASSERT_CUDA_OK(
      cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "a", 0, nullptr, nullptr));
  void *image = nullptr, *same = nullptr;
  size_t size = 0, same_size = 0;
  ASSERT_CUDA_OK(cuLinkComplete(link, &image, &size));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_CUDA_OK(cuModuleLoadData(&module, image));
  ASSERT_CUDA_OK(cuModuleGetFunction(&function, module, "add"));
  EXPECT_EQ(Launch(function), 15u);
  PauseAndResume();
  EXPECT_EQ(Launch(function), 18u);
  EXPECT_CUDA_OK(cuLinkComplete(link, &same, &same_size));
  EXPECT_EQ(same, image);
  EXPECT_EQ(same_size, size);
  CUmodule another = nullptr;
  EXPECT_CUDA_OK(cuModuleLoadData(&another, image));
  EXPECT_CUDA_OK(cuLinkDestroy(link));
  PauseAndResume();
  EXPECT_EQ(Launch(function), 21u);
  EXPECT_CUDA_OK(cuModuleUnload(another));
  EXPECT_CUDA_OK(cuModuleUnload(module));
}

TEST_F(RebuildTest, WorkThatDoesNotEndIsNamedAndGoesOn) {
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  ASSERT_CUDA_OK(cuModuleLoadData(&module, kCode));
  ASSERT_CUDA_OK(cuModuleGetFunction(&spin, module, "spin"));
  uint32_t* flag = nullptr;
  ASSERT_CUDA_OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 64, 0));
  __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
  void* parameters[] = {&flag};
  ASSERT_CUDA_OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  for (int i = 0; i < 2; ++i) {  // the second one first waits for the thread of the first
    std::vector<TaskBlocker> blockers;
    EXPECT_EQ(Stop(Deadline::After(std::chrono::milliseconds(100)), &blockers).code(), StatusCode::kTimeout);
    ASSERT_EQ(blockers.size(), 1u);
    EXPECT_THAT(blockers[0].call, HasSubstr("device work of primary context"));
    OpenGate();
  }
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  ASSERT_TRUE(Stop().ok());
  EXPECT_EQ(replay::BrokenContext(), "");
  OpenGate();
  EXPECT_CUDA_OK(cuMemFreeHost(flag));
  EXPECT_CUDA_OK(cuModuleUnload(module));
}

// Stands for what a driver does as a thread that called it ends.
pthread_key_t g_ending_key;
std::atomic<int> g_called{0}, g_ended{0};
decltype(&::cuThreadExchangeStreamCaptureMode) g_exchange;

void EndSlowly(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ++g_ended;
}

CUresult CUDAAPI ExchangeNoted(CUstreamCaptureMode* mode) {
  if (pthread_getspecific(g_ending_key) == nullptr) ++g_called;
  pthread_setspecific(g_ending_key, &g_ended);
  return g_exchange(mode);
}

// The driver may be closed then.
TEST_F(RebuildTest, ThreadsThatWaitedForTheDeviceHaveEnded) {
  ASSERT_EQ(pthread_key_create(&g_ending_key, EndSlowly), 0);
  g_exchange = std::exchange(internal::g_driver.cuThreadExchangeStreamCaptureMode, &ExchangeNoted);
  ASSERT_TRUE(Stop().ok());
  EXPECT_GT(g_called, 0);
  EXPECT_EQ(g_ended, g_called);
  internal::g_driver.cuThreadExchangeStreamCaptureMode = g_exchange;
  OpenGate();
  EXPECT_EQ(pthread_key_delete(g_ending_key), 0);
}

TEST_F(RebuildTest, ABrokenContextIsNamed) {
  CUcontext made = nullptr;
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  ASSERT_CUDA_OK(cuCtxCreate_v2(&made, 0, 1));
  ASSERT_CUDA_OK(cuModuleLoadData(&module, kCode));
  ASSERT_CUDA_OK(cuModuleGetFunction(&add, module, "add"));
  CUdeviceptr nowhere = 0x1000;
  void* parameters[] = {&nowhere};
  ASSERT_CUDA_OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  EXPECT_EQ(Stop().code(), StatusCode::kDriver);
  EXPECT_EQ(replay::BrokenContext(), "CUDA_ERROR_ILLEGAL_ADDRESS");
  OpenGate();
  EXPECT_CUDA_OK(cuCtxDestroy_v2(made));
}

TEST_F(RebuildTest, ObjectsThatAreDestroyedLeaveNoRecord) {
  const size_t before = replay::ObjectTable::Get().size();
  for (int i = 0; i < 10000; ++i) {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    ASSERT_CUDA_OK(cuStreamCreate(&stream, 0));
    ASSERT_CUDA_OK(cuEventCreate(&event, 0));
    ASSERT_CUDA_OK(cuEventRecord(event, stream));
    ASSERT_CUDA_OK(cuStreamDestroy_v2(stream));
    ASSERT_CUDA_OK(cuEventDestroy_v2(event));
  }
  EXPECT_EQ(replay::ObjectTable::Get().size(), before);
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const stasis::vmm::TestNode node({"--gpus", "3", "--memory", "256MiB"});
  setenv("STASIS_DRIVER", LIBCUDA_PATH, 1);
  return RUN_ALL_TESTS();
}

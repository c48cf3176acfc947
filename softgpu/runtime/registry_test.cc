#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "softgpu/runtime/runtime_fixture.h"

namespace softgpu::runtime::testing {
namespace {

char g_stub_a;
char g_stub_b;
char g_variable;

class RegistryTest : public RuntimeTest {};

TEST_F(RegistryTest, RegistrationCallsNoDriver) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_a, "a");
  module.Variable(&g_variable, "v");
  EXPECT_TRUE(FakeLog()->empty());
}

TEST_F(RegistryTest, LoadsOnceAtFirstUseAndLooksKernelsUpByStub) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_a, "a");
  module.Kernel(&g_stub_b, "b");
  cudaKernel_t a = nullptr;
  cudaKernel_t b = nullptr;
  ASSERT_EQ(__cudaGetKernel(&a, &g_stub_a), cudaSuccess);
  ASSERT_EQ(__cudaGetKernel(&b, &g_stub_b), cudaSuccess);
  EXPECT_NE(a, b);
  EXPECT_EQ(Calls("cuLibraryLoadData"), 1);
  EXPECT_EQ(Args("cuLibraryLoadData")[0], reinterpret_cast<uint64_t>(&fatbin_));
  ASSERT_EQ(__cudaGetKernel(&b, &g_stub_a), cudaSuccess);
  EXPECT_EQ(a, b);
  EXPECT_EQ(Calls("cuLibraryGetKernel"), 2);
}

TEST_F(RegistryTest, ThreadsThatArriveTogetherLoadOnce) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_a, "a");
  std::vector<std::thread> threads;
  std::vector<cudaKernel_t> kernels(8);
  for (cudaKernel_t& kernel : kernels) {
    threads.emplace_back([&kernel] { EXPECT_EQ(__cudaGetKernel(&kernel, &g_stub_a), cudaSuccess); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Calls("cuLibraryLoadData"), 1);
  for (cudaKernel_t kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
}

TEST_F(RegistryTest, UnregisteringUnloads) {
  {
    Registered module(&wrapper_);
    module.Kernel(&g_stub_a, "a");
    cudaKernel_t kernel = nullptr;
    ASSERT_EQ(__cudaGetKernel(&kernel, &g_stub_a), cudaSuccess);
  }
  EXPECT_EQ(Calls("cuLibraryUnload"), 1);
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(cudaGetKernel(&kernel, &g_stub_a), cudaErrorInvalidDeviceFunction);
}

TEST_F(RegistryTest, AModuleNeverUsedIsNeverLoadedOrUnloaded) {
  { Registered module(&wrapper_); }
  EXPECT_TRUE(FakeLog()->empty());
}

TEST_F(RegistryTest, LinksRelocatableDeviceCode) {
  EmptyFatbin first;
  EmptyFatbin second;
  second.entries_size = 32;
  const void* parts[] = {&first, &second, nullptr};
  FatbinWrapper wrapper{0x466243B1, 2, &fatbin_, parts};
  Registered module(&wrapper);
  module.Kernel(&g_stub_a, "a");
  cudaKernel_t kernel = nullptr;
  ASSERT_EQ(__cudaGetKernel(&kernel, &g_stub_a), cudaSuccess);
  EXPECT_EQ(Calls("cuLinkAddData_v2"), 2);
  EXPECT_EQ(Args("cuLinkAddData_v2"),
            (std::vector<uint64_t>{CU_JIT_INPUT_FATBINARY, reinterpret_cast<uint64_t>(&second), 48}));
  EXPECT_EQ(Calls("cuLinkDestroy"), 1);
  EXPECT_NE(Args("cuLibraryLoadData")[0], reinterpret_cast<uint64_t>(&fatbin_));
}

TEST_F(RegistryTest, ALinkErrorIsReportedAndTheLinkStateFreed) {
  const void* parts[] = {&fatbin_, nullptr};
  FatbinWrapper wrapper{0x466243B1, 2, &fatbin_, parts};
  Registered module(&wrapper);
  module.Kernel(&g_stub_a, "a");
  Fail("cuLinkAddData_v2", CUDA_ERROR_INVALID_PTX);
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(__cudaGetKernel(&kernel, &g_stub_a), cudaErrorInvalidPtx);
  EXPECT_EQ(Calls("cuLinkDestroy"), 1);
  EXPECT_EQ(Calls("cuLibraryLoadData"), 0);
}

TEST_F(RegistryTest, LinkingFailsWhenNoPartHasCodeForTheDevice) {
  const void* parts[] = {&fatbin_, nullptr};
  FatbinWrapper wrapper{0x466243B1, 2, &fatbin_, parts};
  Registered module(&wrapper);
  module.Kernel(&g_stub_a, "a");
  Fail("cuLinkAddData_v2", CUDA_ERROR_NO_BINARY_FOR_GPU);
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(__cudaGetKernel(&kernel, &g_stub_a), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(Calls("cuLibraryLoadData"), 0);
}

TEST_F(RegistryTest, DamagedImagesAreReportedAtFirstUse) {
  fatbin_.magic = 0;
  FatbinWrapper not_a_wrapper{1, 1, &fatbin_, nullptr};
  FatbinWrapper unknown_version{0x466243B1, 3, &fatbin_, nullptr};
  const void* parts[] = {&fatbin_, nullptr};
  FatbinWrapper damaged_part{0x466243B1, 2, &fatbin_, parts};
  for (FatbinWrapper* wrapper : {&wrapper_, &not_a_wrapper, &unknown_version, &damaged_part}) {
    Registered module(wrapper);
    module.Kernel(&g_stub_a, "a");
    cudaKernel_t kernel = nullptr;
    EXPECT_EQ(__cudaGetKernel(&kernel, &g_stub_a), cudaErrorInvalidKernelImage);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidKernelImage);
  }
}

// The stub asks for its handle once; every later launch must tell why there is none.
TEST_F(RegistryTest, LaunchesThroughAMissingHandleTellWhy) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_a, "a");
  Fail("cuLibraryLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU);
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(__cudaGetKernel(&kernel, &g_stub_a), cudaErrorNoKernelImageForDevice);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(__cudaLaunchKernel(kernel, 1, 1, nullptr, 0, nullptr), cudaErrorNoKernelImageForDevice);
    EXPECT_EQ(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
}

TEST_F(RegistryTest, AFailedLoadIsTriedAgain) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_a, "a");
  Fail("cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY);
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(cudaGetKernel(&kernel, &g_stub_a), cudaErrorMemoryAllocation);
  FakeFail("cuLibraryLoadData", CUDA_SUCCESS);
  EXPECT_EQ(cudaGetKernel(&kernel, &g_stub_a), cudaSuccess);
}

TEST_F(RegistryTest, FunctionsThatAreNoKernels) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_b, "missing_kernel");
  EXPECT_EQ(cudaLaunchKernel(nullptr, 1, 1, nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaLaunchKernel(&g_stub_a, 1, 1, nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaLaunchKernel(&g_stub_b, 1, 1, nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(Calls("cuLaunchKernel"), 0);
}

TEST_F(RegistryTest, AKernelHandleStandsInForAStub) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_a, "a");
  cudaKernel_t kernel = nullptr;
  ASSERT_EQ(cudaGetKernel(&kernel, &g_stub_a), cudaSuccess);
  EXPECT_EQ(cudaLaunchKernel(kernel, 1, 1, nullptr, 0, nullptr), cudaSuccess);
  EXPECT_EQ(Args("cuLaunchKernel")[0], reinterpret_cast<uint64_t>(kernel));
}

TEST_F(RegistryTest, HandlesOutliveADeviceReset) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_a, "a");
  cudaKernel_t kernel = nullptr;
  ASSERT_EQ(__cudaGetKernel(&kernel, &g_stub_a), cudaSuccess);
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(Calls("cuLibraryUnload"), 0);
  EXPECT_EQ(__cudaLaunchKernel(kernel, 1, 1, nullptr, 0, nullptr), cudaSuccess);
}

TEST_F(RegistryTest, Symbols) {
  Registered module(&wrapper_);
  module.Variable(&g_variable, "v");
  module.Variable(&g_stub_b, "missing_variable");
  void* address = nullptr;
  size_t size = 0;
  ASSERT_EQ(cudaGetSymbolAddress(&address, &g_variable), cudaSuccess);
  EXPECT_EQ(cudaGetSymbolSize(&size, &g_variable), cudaSuccess);
  EXPECT_EQ(size, kFakeGlobalSize);
  const int in = 42;
  int out = 0;
  EXPECT_EQ(cudaMemcpyToSymbol(&g_variable, &in, 4, 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(std::memcmp(static_cast<char*>(address) + 8, &in, 4), 0);
  EXPECT_EQ(cudaMemcpyFromSymbol(&out, &g_variable, 4, 8, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(out, 42);
  EXPECT_EQ(cudaMemcpyToSymbol(&g_variable, &in, 4, kFakeGlobalSize - 3, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyToSymbol(&g_variable, &in, 4, SIZE_MAX, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyToSymbol(&g_variable, &in, 4, 0, cudaMemcpyDeviceToHost),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaGetSymbolAddress(&address, &g_stub_a), cudaErrorInvalidSymbol);
  EXPECT_EQ(cudaGetSymbolAddress(&address, &g_stub_b), cudaErrorInvalidSymbol);
}

// Lookups take the registry's lock; a child must find it free however busy the other threads were.
TEST_F(RegistryTest, AForkedChildDoesNotHang) {
  Registered module(&wrapper_);
  module.Kernel(&g_stub_a, "a");
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    cudaKernel_t kernel = nullptr;
    while (!stop) cudaGetKernel(&kernel, &g_stub_b);
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      __cudaUnregisterFatBinary(__cudaRegisterFatBinary(&wrapper_));
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
}

TEST_F(RegistryTest, ManagedVariablesAreFilledByInitModule) {
  void* slot = nullptr;
  Registered module(&wrapper_);
  module.Managed(&slot, "m");
  EXPECT_EQ(slot, nullptr);
  EXPECT_NE(__cudaInitModule(module.handle()), 0);
  ASSERT_NE(slot, nullptr);
  // Host code names the variable by the address of its memory.
  void* address = nullptr;
  EXPECT_EQ(cudaGetSymbolAddress(&address, slot), cudaSuccess);
  EXPECT_EQ(address, slot);
}

TEST_F(RegistryTest, ADamagedModuleSpoilsNoOther) {
  EmptyFatbin damaged;
  damaged.magic = 0;
  FatbinWrapper damaged_wrapper{0x466243B1, 1, &damaged, nullptr};
  void* damaged_slot = nullptr;
  void* slot = nullptr;
  Registered broken(&damaged_wrapper);
  broken.Managed(&damaged_slot, "d");
  Registered module(&wrapper_);
  module.Managed(&slot, "m");
  module.Kernel(&g_stub_a, "a");
  EXPECT_EQ(cudaLaunchKernel(&g_stub_a, 1, 1, nullptr, 0, nullptr), cudaSuccess);
  EXPECT_NE(slot, nullptr);
  EXPECT_NE(__cudaInitModule(module.handle()), 0);
  EXPECT_EQ(__cudaInitModule(broken.handle()), 0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidKernelImage);
}

TEST_F(RegistryTest, ManagedVariablesAreFilledByTheFirstLaunchAndAgainAfterAReset) {
  void* slot = nullptr;
  Registered module(&wrapper_);
  module.Managed(&slot, "m");
  module.Kernel(&g_stub_a, "a");
  ASSERT_EQ(cudaLaunchKernel(&g_stub_a, 1, 1, nullptr, 0, nullptr), cudaSuccess);
  void* const before = slot;
  ASSERT_NE(before, nullptr);
  ASSERT_EQ(cudaLaunchKernel(&g_stub_a, 1, 1, nullptr, 0, nullptr), cudaSuccess);
  EXPECT_EQ(Calls("cuLibraryGetManaged"), 1);
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  ASSERT_EQ(cudaLaunchKernel(&g_stub_a, 1, 1, nullptr, 0, nullptr), cudaSuccess);
  EXPECT_NE(slot, before);
}

}  // namespace
}  // namespace softgpu::runtime::testing

#include "softgpu/driver/memory_testing.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

namespace softgpu {
namespace {

std::map<std::string, ChildRole>& Roles() {
  static std::map<std::string, ChildRole> roles;
  return roles;
}

std::string Self() {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return std::string(path, length > 0 ? static_cast<size_t>(length) : 0);
}

}  // namespace

const char* const kTestPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 address, .param .u64 value)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [address];
  ld.param.u64 %rd2, [value];
  cvt.u32.u64 %r1, %rd2;
  cvta.to.global.u64 %rd3, %rd1;
  st.global.u32 [%rd3], %r1;
  ret;
}
.visible .entry load(.param .u64 address, .param .u64 out)
{
  .reg .b64 %rd<5>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [address];
  ld.param.u64 %rd2, [out];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  ld.global.u32 %r1, [%rd3];
  st.global.u32 [%rd4], %r1;
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

RegisterChild::RegisterChild(const char* name, ChildRole role) { Roles()[name] = role; }

std::unique_ptr<ChildProgram> StartChild(const std::string& role, const std::vector<std::string>& arguments,
                                         int inherited) {
  std::vector<std::string> words = {Self(), "--child", role};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return std::make_unique<ChildProgram>(words, inherited);
}

void Say(const std::string& line) {
  std::string text = line + "\n";
  if (write(1, text.data(), text.size()) != static_cast<ssize_t>(text.size())) _exit(3);
}

void WaitForParent() {
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
}

CUcontext UseDevice(int device) {
  CUcontext context = nullptr;
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  return context;
}

TestKernel::TestKernel(const char* ptx, const char* name) {
  EXPECT_EQ(cuModuleLoadData(&module_, ptx), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function_, module_, name), CUDA_SUCCESS);
}

TestKernel::~TestKernel() { cuModuleUnload(module_); }

CUresult TestKernel::Launch(std::vector<uint64_t> parameters, CUstream stream, unsigned threads) {
  std::vector<void*> pointers;
  for (uint64_t& parameter : parameters) pointers.push_back(&parameter);
  return cuLaunchKernel(function_, 1, 1, 1, threads, 1, 1, 0, stream, pointers.data(), nullptr);
}

size_t FreeBytes() {
  size_t free = 0, total = 0;
  EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  return free;
}

}  // namespace softgpu

int main(int argc, char** argv) {
  if (argc >= 3 && std::string(argv[1]) == "--child") {
    auto role = softgpu::Roles().find(argv[2]);
    return role == softgpu::Roles().end() ? 2 : role->second({argv + 3, argv + argc});
  }
  testing::InitGoogleTest(&argc, argv);
  // On a failure the reason is in the output of the daemon, too.
  softgpu::TestDaemon daemon(softgpu::kDaemonOptions);
  setenv("SOFTGPU_SOCKET", daemon.socket().c_str(), 1);
  setenv("SOFTGPU_AUTOSTART", "0", 1);
  return RUN_ALL_TESTS();
}

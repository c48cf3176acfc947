// For tests of the driver's memory: a daemon, the driver in this process, and this program again as other
// processes.
#ifndef SOFTGPU_DRIVER_MEMORY_TESTING_H_
#define SOFTGPU_DRIVER_MEMORY_TESTING_H_

#include <cuda.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/device/test_daemon.h"

namespace softgpu {

// The role of this program when it was started again as "PROGRAM --child NAME ARGUMENTS...".
using ChildRole = int (*)(const std::vector<std::string>& arguments);
struct RegisterChild {
  RegisterChild(const char* name, ChildRole role);
};
#define SOFTGPU_CHILD(name)                                            \
  int Child_##name(const std::vector<std::string>&);                   \
  const ::softgpu::RegisterChild register_##name(#name, Child_##name); \
  int Child_##name([[maybe_unused]] const std::vector<std::string>& arguments)

std::unique_ptr<ChildProgram> StartChild(const std::string& role,
                                         const std::vector<std::string>& arguments = {}, int inherited = -1);
// In a child: a line for the parent, and the wait for the parent to close our input.
void Say(const std::string& line);
void WaitForParent();
// In a child: ends it with exit code 1 and says why. At once, since what the child has made may not be
// possible to take down in the state that it is in.
#define CHILD_CHECK(condition)                                        \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                       \
    }                                                                 \
  } while (0)

// Options of the daemon that the whole test program uses; defined by each test.
extern const std::vector<std::string> kDaemonOptions;

// cuInit, and the primary context of `device` current.
CUcontext UseDevice(int device = 0);

// A kernel from PTX text, launched with 64-bit parameters.
class TestKernel {
 public:
  TestKernel(const char* ptx, const char* name);
  ~TestKernel();
  CUresult Launch(std::vector<uint64_t> parameters, CUstream stream = nullptr, unsigned threads = 1);

 private:
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};
// store(address, value): *(u32*)address = value.   load(address, out): *(u32*)out = *(u32*)address.
// spin(flag): runs until *(u32*)flag is not 0.
extern const char* const kTestPtx;

size_t FreeBytes();

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_TESTING_H_

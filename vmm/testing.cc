#include "vmm/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "vmm/pause.h"

namespace stasis::vmm {
namespace {

pid_t Start(std::vector<std::string> words, int keep_fd) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (keep_fd >= 0) fcntl(keep_fd, F_SETFD, 0);
  execv(arguments[0], arguments.data());
  _exit(127);
}

void WaitFor(pid_t pid, int expected) {
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  if (expected >= 0) {
    EXPECT_EQ(WEXITSTATUS(status), expected);
  }
}

}  // namespace

TestNode::TestNode(const std::vector<std::string>& options) {
  char folder[] = "/tmp/stasis-vmm-XXXXXX";
  folder_ = mkdtemp(folder);
  const std::string socket = folder_ + "/d/softgpud.sock";
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd ready(ends[0]);
  Fd write_end(ends[1]);
  std::vector<std::string> words = {SOFTGPUD_PATH, "--socket", socket, "--ready-fd",
                                    std::to_string(write_end.get())};
  words.insert(words.end(), options.begin(), options.end());
  pid_ = Start(words, write_end.get());
  write_end.Reset();
  char byte;
  EXPECT_EQ(read(ready.get(), &byte, 1), 1) << "softgpud did not start";
  setenv("SOFTGPU_SOCKET", socket.c_str(), 1);
  setenv("SOFTGPU_AUTOSTART", "0", 1);
}

TestNode::~TestNode() {
  kill(pid_, SIGTERM);
  WaitFor(pid_, -1);
  unlink((folder_ + "/d/softgpud.sock").c_str());
  rmdir((folder_ + "/d").c_str());
  rmdir(folder_.c_str());
}

void TestNode::Fault(const std::string& fault) {
  WaitFor(
      Start({SOFTGPU_SMI_PATH, "--socket", getenv("SOFTGPU_SOCKET"), "fault", "--gpu", "0", "--kind", fault},
            -1),
      0);
}

CUcontext OpenOn(int device) {
  CUcontext context = nullptr;
  if (!DriverIsOpen()) {
    EXPECT_STATUS_OK(OpenDriver(LIBCUDA_PATH));
  }
  EXPECT_CUDA_OK(Driver().cuInit(0));
  EXPECT_CUDA_OK(Driver().cuDevicePrimaryCtxRetain(&context, device));
  EXPECT_CUDA_OK(Driver().cuCtxSetCurrent(context));
  return context;
}

void CloseAll(int devices) {
  for (int device = 0; device < devices; ++device)
    EXPECT_CUDA_OK(Driver().cuDevicePrimaryCtxReset_v2(device));
  CloseDriver();
}

Exported ExportAll() {
  Exported all;
  all.extents = Extents();
  for (const TaskExtent& extent : all.extents) {
    Result<Fd> fd = ExportExtent(extent);
    EXPECT_STATUS_OK(fd.status());
    if (fd.ok()) all.fds.push_back(*std::move(fd));
  }
  return all;
}

void ImportAll(const Exported& exported) {
  for (size_t i = 0; i < exported.extents.size(); ++i)
    EXPECT_STATUS_OK(ImportExtent(exported.extents[i], exported.fds[i].Duplicate()));
}

namespace {

std::atomic<int> g_copies, g_pageable;
decltype(&cuMemcpyDtoH_v2) g_to_host = nullptr;
decltype(&cuMemcpyHtoD_v2) g_to_device = nullptr;

bool IsPinned(uint64_t address) {
  unsigned type = 0;
  return Driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_HOST;
}

void NoteCopy(const void* host, size_t size) {
  const uint64_t address = reinterpret_cast<uint64_t>(host);
  ++g_copies;
  if (!IsPinned(address) || !IsPinned(address + size - 1)) ++g_pageable;
}

CUresult WatchedToHost(void* to, CUdeviceptr from, size_t size) {
  NoteCopy(to, size);
  return g_to_host(to, from, size);
}

CUresult WatchedToDevice(CUdeviceptr to, const void* from, size_t size) {
  NoteCopy(from, size);
  return g_to_device(to, from, size);
}

}  // namespace

CopyWatch::CopyWatch() {
  g_to_host = std::exchange(internal::g_driver.cuMemcpyDtoH_v2, &WatchedToHost);
  g_to_device = std::exchange(internal::g_driver.cuMemcpyHtoD_v2, &WatchedToDevice);
  Take();
}

CopyWatch::~CopyWatch() {
  internal::g_driver.cuMemcpyDtoH_v2 = g_to_host;
  internal::g_driver.cuMemcpyHtoD_v2 = g_to_device;
}

CopyWatch::Seen CopyWatch::Take() { return {g_copies.exchange(0), g_pageable.exchange(0)}; }

std::vector<unsigned char> ReadDevice(CUdeviceptr address, size_t size) {
  std::vector<unsigned char> bytes(size);
  EXPECT_CUDA_OK(Driver().cuMemcpyDtoH_v2(bytes.data(), address, size));
  return bytes;
}

void FillDevice(CUdeviceptr address, size_t size, unsigned char value) {
  EXPECT_CUDA_OK(Driver().cuMemsetD8_v2(address, value, size));
}

size_t DriverFreeBytes() {
  size_t free = 0, total = 0;
  EXPECT_CUDA_OK(Driver().cuMemGetInfo_v2(&free, &total));
  return free;
}

size_t OpenDescriptors() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace stasis::vmm

#include "vmm/testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

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

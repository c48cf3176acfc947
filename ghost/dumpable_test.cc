#include "ghost/dumpable.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/fd.h"
#include "ghost/proc.h"
#include "ghost/programs.h"
#include "ghost/testing.h"

namespace stasis {
namespace {

// What whoever started the tests left open is nobody's business here.
class CleanDescriptors : public testing::Environment {
 public:
  void SetUp() override { ASSERT_EQ(close_range(3, ~0u, 0), 0); }
};
[[maybe_unused]] const testing::Environment* const g_clean =
    testing::AddGlobalTestEnvironment(new CleanDescriptors);

// A process that has run `prepare`, and waits; a tree of one.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prepare();
      (void)!write(ends[1], "x", 1);
      close(ends[0]);
      close(ends[1]);
      int null = open("/dev/null", O_RDWR);
      for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
      close(null);
      raise(SIGSTOP);
      _exit(0);
    }
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::vector<pid_t> tree() const { return {pid_}; }

 private:
  pid_t pid_;
};

Status Residue(const Child& child, const std::string& driver = "/nonexistent") {
  std::string remedy;
  Status status = CheckResidue(child.tree(), child.tree(), driver, &remedy);
  EXPECT_EQ(status.ok(), remedy.empty());
  return status;
}

Status Descriptors(const Child& child) {
  std::string remedy;
  Status status = CheckDescriptors(child.tree(), &remedy);
  EXPECT_EQ(status.ok(), remedy.empty());
  return status;
}

void ExpectSays(const Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(std::string(status.message()).find(text), std::string::npos) << status.ToString();
}

TEST(DumpableTest, AProcessOnItsOwnIsFine) {
  Child child([] {
    int fds[2];
    (void)!pipe(fds);
    (void)!socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
    (void)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  });
  EXPECT_TRUE(Residue(child).ok()) << Residue(child).ToString();
  EXPECT_TRUE(Descriptors(child).ok()) << Descriptors(child).ToString();
}

// Processes of a task come and go until it is held still.
TEST(DumpableTest, AProcessThatHasEndedMeanwhileHasNothing) {
  Child child([] {});
  std::vector<pid_t> tree = child.tree();
  {
    Child gone([] {});
    tree.push_back(gone.tree().front());
  }
  std::string remedy;
  EXPECT_EQ(CheckResidue(tree, tree, "/nonexistent", &remedy).ToString(), Status().ToString());
  EXPECT_EQ(CheckDescriptors(tree, &remedy).ToString(), Status().ToString());
  EXPECT_EQ(ProgramsOf(tree, &remedy).status().ToString(), Status().ToString());
  EXPECT_EQ(remedy, "");
}

TEST(DumpableTest, APipeToTheOutsideNamesItsPeer) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  Fd ours(fds[0]);
  Child child([] {});
  close(fds[1]);
  ExpectSays(Residue(child), "a pipe to process " + std::to_string(getpid()));
}

TEST(DumpableTest, AUnixSocketToTheOutsideNamesItsPeer) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Fd ours(fds[0]);
  Child child([&] { close(fds[0]); });
  close(fds[1]);
  ExpectSays(Residue(child), "a unix socket connected to process " + std::to_string(getpid()));
}

TEST(DumpableTest, MemorySharedWithTheOutsideIsFound) {
  Fd memory(memfd_create("device", 0));
  ASSERT_EQ(ftruncate(memory.get(), 4096), 0);
  Child child([&] {
    (void)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    close(memory.get());
  });
  ExpectSays(Residue(child), "memory shared with process " + std::to_string(getpid()));
}

TEST(DumpableTest, AMappedDriverIsResidueOnlyWhereItWasClosed) {
  TempFolder folder;
  std::string driver = folder / "libcuda.so.1";
  WriteText(driver, std::string(4096, 'x'));
  Child child([&] {
    int fd = open(driver.c_str(), O_RDONLY);
    (void)mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
  });
  ExpectSays(Residue(child, driver), driver);
  std::string remedy;
  EXPECT_TRUE(CheckResidue(child.tree(), {}, driver, &remedy).ok());
}

TEST(DumpableTest, ATerminalIsRefused) {
  Fd master(posix_openpt(O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(master.valid());
  ASSERT_EQ(grantpt(master.get()) | unlockpt(master.get()), 0);
  std::string slave = ptsname(master.get());
  Child child([&] {
    (void)!open(slave.c_str(), O_RDWR | O_NOCTTY);
    close(master.get());
  });
  ExpectSays(Descriptors(child), "the terminal " + slave);
}

struct Kind {
  const char* what;
  std::function<int()> open;
  const char* named;
};

int OpenDevice(const char* path) { return open(path, O_RDONLY | O_CLOEXEC); }

long OpenCounter() {
  perf_event_attr counter{};
  counter.type = PERF_TYPE_SOFTWARE;
  counter.size = sizeof counter;
  counter.config = PERF_COUNT_SW_CPU_CLOCK;
  return syscall(SYS_perf_event_open, &counter, 0, -1, -1, 0);
}

long OpenRing() {
  alignas(8) char parameters[120] = {};
  return syscall(SYS_io_uring_setup, 4, parameters);
}

// Each kernel and each machine has some of them.
TEST(DumpableTest, WhateverCriuDoesNotKnowIsNamed) {
  const Kind kinds[] = {
      {"io_uring", [] { return static_cast<int>(OpenRing()); }, "io_uring is in use"},
      {"userfaultfd", [] { return static_cast<int>(syscall(SYS_userfaultfd, 0)); }, "userfaultfd is in use"},
      {"counter", [] { return static_cast<int>(OpenCounter()); }, "a performance counter is open"},
      {"fuse", [] { return OpenDevice("/dev/fuse"); }, "the device /dev/fuse is open"},
      {"kvm", [] { return OpenDevice("/dev/kvm"); }, "the device /dev/kvm is open"},
      {"disk", [] { return OpenDevice("/dev/loop0"); }, "the device /dev/loop0 is open"},
      {"machine", [] { return ioctl(OpenDevice("/dev/kvm"), KVM_CREATE_VM, 0); }, "is open"},
      {"vsock", [] { return socket(AF_VSOCK, SOCK_STREAM, 0); }, "a socket of protocol AF_VSOCK is open"},
      {"mptcp", [] { return socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP); }, "a socket of protocol MPTCP"},
      {"xdp", [] { return socket(AF_XDP, SOCK_RAW, 0); }, "a socket of protocol XDP is open"},
      {"alg", [] { return socket(AF_ALG, SOCK_SEQPACKET, 0); }, "a socket of protocol ALG is open"},
  };
  int there = 0;
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.what);
    Fd fd(kind.open());
    if (!fd.valid()) continue;
    ++there;
    Child child([] {});
    fd.Reset();
    ExpectSays(Descriptors(child), kind.named);
    close_range(3, ~0u, 0);
  }
  EXPECT_GE(there, 2);
}

TEST(DumpableTest, WhatCriuKnowsIsFine) {
  Child child([] {
    for (const char* device : {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full"})
      EXPECT_GE(OpenDevice(device), 0);
    EXPECT_GE(socket(AF_INET, SOCK_STREAM, 0), 0);
    EXPECT_GE(socket(AF_INET, SOCK_DGRAM, 0), 0);
    EXPECT_GE(socket(AF_INET6, SOCK_DGRAM, 0), 0);
    EXPECT_GE(socket(AF_UNIX, SOCK_SEQPACKET, 0), 0);
    EXPECT_GE(socket(AF_NETLINK, SOCK_RAW, 0), 0);
    EXPECT_GE(eventfd(0, 0), 0);
    EXPECT_GE(epoll_create1(0), 0);
    EXPECT_GE(inotify_init(), 0);
    sigset_t signals;
    sigemptyset(&signals);
    EXPECT_GE(signalfd(-1, &signals, 0), 0);
    EXPECT_GE(timerfd_create(CLOCK_MONOTONIC, 0), 0);
    EXPECT_GE(syscall(SYS_pidfd_open, getpid(), 0), 0);
  });
  EXPECT_EQ(Descriptors(child).ToString(), Status().ToString());
  EXPECT_EQ(Residue(child).ToString(), Status().ToString());
}

// NVIDIA's own, and those of a fabric, are open as long as the driver and NCCL have not let go of them.
TEST(DumpableTest, DevicesThatAreLetGoOfAreResidueOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "device files are made by root";
  const std::string device = "/dev/nvidia-stasis-test-" + std::to_string(getpid());
  struct stat other {};
  ASSERT_EQ(stat("/dev/fuse", &other), 0) << "a device that CRIU does not know is needed";
  ASSERT_EQ(mknod(device.c_str(), S_IFCHR | 0600, other.st_rdev), 0);
  const int fd = OpenDevice(device.c_str());
  EXPECT_EQ(unlink(device.c_str()), 0);
  ASSERT_GE(fd, 0);
  Child child([] {});
  close(fd);
  EXPECT_EQ(Descriptors(child).ToString(), Status().ToString());
  ExpectSays(Residue(child), "the driver left " + device);
}

TEST(DumpableTest, AReplacedFileIsRefusedAndADeletedOneIsNot) {
  TempFolder folder;
  WriteText(folder / "a", "x");
  WriteText(folder / "b", "x");
  Child child([&] {
    (void)!open((folder / "a").c_str(), O_RDONLY);
    (void)!open((folder / "b").c_str(), O_RDONLY);
  });
  ASSERT_EQ(unlink((folder / "a").c_str()), 0);
  EXPECT_TRUE(Descriptors(child).ok());
  ASSERT_EQ(link((folder / "b").c_str(), (folder / "c").c_str()), 0);
  ASSERT_EQ(unlink((folder / "b").c_str()), 0);
  ExpectSays(Descriptors(child), "was replaced");
}

}  // namespace
}  // namespace stasis

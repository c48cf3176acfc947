#include "ghost/dumpable.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/fd.h"
#include "ghost/proc.h"
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

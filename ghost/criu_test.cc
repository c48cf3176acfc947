#include "ghost/criu.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "ghost/proc.h"
#include "ghost/task_files.h"
#include "ghost/testing.h"

namespace stasis {
namespace {

TEST(CriuLogTest, TheFirstRealErrorIsExplained) {
  CriuFailure failure = ExplainCriuLog(
      "(00.000001) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not "
      "permitted\n"
      "(00.002000) Error (criu/net.c:1253): net: Unexpected error: -1(Operation not permitted)\n"
      "(00.004000) Dumping opened files (pid: 4711)\n"
      "(00.004001) 4711 fdinfo 3: pos:                0 flags:                2/0x1\n"
      "(00.004002) 4711 fdinfo 5: pos:                0 flags:                2/0x1\n"
      "(00.004003) Error (criu/sk-unix.c:873): unix: Can't dump half of stream unix connection.\n"
      "(00.004004) Error (criu/cr-dump.c:1562): Dump files (pid: 4711) failed with -1\n");
  EXPECT_NE(failure.message.find("process 4711, descriptor 5"), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find("outside of the task"), std::string::npos) << failure.message;
  EXPECT_FALSE(failure.remedy.empty());
}

TEST(CriuLogTest, EveryExplanationKeepsCriusOwnWords) {
  struct {
    const char* line;
    const char* said;
  } cases[] = {
      {"inet: Connected TCP socket, consider using --tcp-established option.", "TCP connection"},
      {"tcp: Failed to lock TCP connection bf11cc", "cannot be held still"},
      {"A session leader of 7(7) is outside of its pid namespace", "session"},
      {"Can't lookup mount=22 for fd=4 path=/x", "mount"},
      {"File tmp/x has bad size 168 (expect 114)", "another size"},
      {"File usr/bin/x has bad build-id", "replaced"},
      {"Timeout reached. Try to interrupt: 0", "in time"},
      {"Can't dump ghost file /x of 2 size, increase limit", "too large"},
      {"write: No space left on device", "disk is full"},
  };
  for (const auto& each : cases) {
    CriuFailure failure = ExplainCriuLog(std::string("(00.1) Error (criu/a.c:1): ") + each.line + "\n");
    EXPECT_NE(failure.message.find(each.said), std::string::npos) << failure.message;
    EXPECT_NE(failure.message.find(each.line), std::string::npos) << failure.message;
    EXPECT_FALSE(failure.remedy.empty()) << each.line;
  }
}

TEST(CriuLogTest, UnknownErrorsAreQuotedAndSilenceIsEmpty) {
  EXPECT_EQ(ExplainCriuLog("(00.1) Error (criu/a.c:1): something new\n").message, "something new");
  EXPECT_EQ(ExplainCriuLog("all is well\n").message, "");
}

// A task of two processes in a PID namespace, both held by a tracer, and so as CRIU holds them, that waits
// for the first one alone.
class HeldTask : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe2(ready_, O_CLOEXEC), 0);
    const int space = CLONE_NEWPID | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
    root_ = static_cast<pid_t>(syscall(SYS_clone, space | SIGCHLD, nullptr, nullptr, nullptr, 0));
    if (root_ == 0) {
      if (fork() != 0) (void)!write(ready_[1], "1", 1);
      for (;;) pause();
    }
    ASSERT_GT(root_, 1);
    AwaitReady();
    Result<std::vector<pid_t>> tree = ProcessTree(root_);
    ASSERT_TRUE(tree.ok()) << tree.status().ToString();
    ASSERT_EQ(tree->size(), 2u);
    tracer_ = fork();
    if (tracer_ == 0) {
      for (const pid_t pid : *tree)
        if (ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) _exit(1);
      (void)!write(ready_[1], "1", 1);
      (void)waitpid(root_, nullptr, __WALL);
      _exit(0);
    }
    AwaitReady();
  }
  void TearDown() override {
    for (const pid_t pid : {tracer_, root_}) {
      if (pid <= 1) continue;
      kill(pid, SIGKILL);
      (void)waitpid(pid, nullptr, 0);
    }
    for (const int fd : ready_) close(fd);
  }
  void AwaitReady() {
    pollfd wait{ready_[0], POLLIN, 0};
    ASSERT_EQ(poll(&wait, 1, 60000), 1);
    char byte = 0;
    ASSERT_EQ(read(ready_[0], &byte, 1), 1);
  }
  int ready_[2] = {-1, -1};
  pid_t root_ = 0, tracer_ = 0;
};

// The kernel lets neither end before the other one.
TEST_F(HeldTask, ADumpOfATaskThatIsKilledComesToItsEnd) {
  EXPECT_FALSE(ReadProcStat(root_)->dying);
  ASSERT_EQ(kill(root_, SIGKILL), 0);
  AwaitDump(tracer_, root_, std::chrono::milliseconds(10));
  EXPECT_TRUE(HasEnded(root_));
  Result<int> status = WaitChild(std::exchange(tracer_, 0), Deadline::After(std::chrono::seconds(60)));
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_EQ(ExitText(*status), "signal 9");
}

// The same of the threads of one process, below a root that lives.
TEST_F(HeldTask, ADumpInWhichAProcessWithThreadsIsKilledComesToItsEnd) {
  const pid_t victim = fork();
  if (victim == 0) {
    std::thread other([this] {
      (void)!write(ready_[1], "1", 1);
      for (;;) pause();
    });
    for (;;) pause();
  }
  ASSERT_GT(victim, 1);
  AwaitReady();
  const pid_t criu = fork();
  if (criu == 0) {
    for (const auto& thread :
         std::filesystem::directory_iterator("/proc/" + std::to_string(victim) + "/task"))
      if (ptrace(PTRACE_SEIZE, std::stoi(thread.path().filename()), nullptr, nullptr) != 0) _exit(1);
    (void)!write(ready_[1], "1", 1);
    (void)waitpid(victim, nullptr, __WALL);
    _exit(0);
  }
  ASSERT_GT(criu, 1);
  AwaitReady();
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  AwaitDump(criu, root_, std::chrono::milliseconds(10));
  Result<int> status = WaitChild(criu, Deadline::After(std::chrono::seconds(60)));
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_EQ(ExitText(*status), "signal 9");
  EXPECT_FALSE(HasEnded(root_));
  status = WaitChild(victim, Deadline::After(std::chrono::seconds(60)));
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_EQ(ExitText(*status), "signal 9");
}

TEST_F(HeldTask, ADumpOfATaskThatLivesIsWaitedFor) {
  const pid_t criu = fork();
  if (criu == 0) {
    char byte = 0;
    (void)!read(ready_[0], &byte, 1);
    _exit(7);
  }
  std::thread later([this] {
    // Longer than it takes to look at the task more than once.
    (void)poll(nullptr, 0, 1200);
    (void)!write(ready_[1], "1", 1);
  });
  AwaitDump(criu, root_, std::chrono::milliseconds(1));
  later.join();
  Result<int> status = WaitChild(criu, Deadline::After(std::chrono::seconds(60)));
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_EQ(ExitText(*status), "exit status 7");
}

// While it lives nothing more can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{3, before_.rlim_max};  // which stdin, stdout and stderr have used up
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

int PidFds() {
  int count = 0;
  const Result<std::vector<ProcFd>> fds = FdsOf(getpid());
  if (!fds.ok()) return 0;
  for (const ProcFd& fd : *fds) count += fd.target == "anon_inode:[pidfd]" ? 1 : 0;
  return count;
}

// What cannot be read of a task says nothing of its death: criu would be killed inside of it.
class ShortOfDescriptors : public HeldTask, public testing::WithParamInterface<bool> {};

TEST_P(ShortOfDescriptors, ADumpOfATaskThatLivesIsWaitedFor) {
  const bool from_the_start = GetParam();
  const pid_t criu = fork();
  if (criu == 0) {
    char byte = 0;
    (void)!read(ready_[0], &byte, 1);
    _exit(7);
  }
  std::optional<NoDescriptors> none;
  if (from_the_start) none.emplace();
  std::thread later([&] {
    // Until it is waited for, by descriptors of both.
    while (!from_the_start && PidFds() < 2) (void)poll(nullptr, 0, 1);
    if (!none) none.emplace();
    // Longer than it takes to look at the task more than once.
    (void)poll(nullptr, 0, 1200);
    (void)!write(ready_[1], "1", 1);
  });
  AwaitDump(criu, root_, std::chrono::milliseconds(1));
  later.join();
  Result<int> status = WaitChild(criu, Deadline::After(std::chrono::seconds(60)));
  none.reset();
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_EQ(ExitText(*status), "exit status 7");
}

INSTANTIATE_TEST_SUITE_P(All, ShortOfDescriptors, testing::Bool());

TEST(ProcTest, AProcessThatCannotBeLookedAtHasNotEnded) {
  const Result<ProcStat> stat = ReadProcStat(getpid());
  ASSERT_OK(stat.status());
  const TaskProcess process{getpid(), stat->start_time, getpid(), getpid(), BootId()};
  EXPECT_TRUE(IsAlive(process));
  NoDescriptors none;
  EXPECT_TRUE(IsAlive(process));
  EXPECT_EQ(ReadProcStat(getpid()).status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(HasEnded(getpid()));
}

// A stand-in for CRIU, which writes down what it was called with.
class CriuCommand : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::ofstream(folder_ + "/criu") << "#!/bin/sh\nprintf '%s\\n' \"$@\" >" << folder_ << "/arguments\n";
    ASSERT_EQ(chmod((folder_ + "/criu").c_str(), 0700), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // What follows `option` in the command line of the child, once it has ended.
  std::string Given(Result<HeldChild> child, const std::string& option) {
    EXPECT_TRUE(child.ok()) << child.status().ToString();
    if (!child.ok()) return "";
    EXPECT_TRUE(child->Go().ok());
    EXPECT_TRUE(WaitChild(child->pid, Deadline::After(std::chrono::seconds(30))).ok());
    std::ifstream arguments(folder_ + "/arguments");
    for (std::string line; std::getline(arguments, line);)
      if (line == option && std::getline(arguments, line)) return line;
    return "not given";
  }
  std::string folder_ = "/tmp/criu-command-XXXXXX";
};

// Plugins of CRIU, such as NVIDIA's, have nothing to do in a tree whose driver has let go; and none comes out
// of an image.
TEST_F(CriuCommand, PluginsAreNotLoaded) {
  const std::string criu = folder_ + "/criu";
  for (const std::string& plugins :
       {Given(StartCriuDump(criu, 1, folder_, DumpEnd::kStopped, DumpTcp::kNone), "--libdir"),
        Given(StartCriuRestore(criu, folder_, folder_, {}), "--libdir")}) {
    ASSERT_TRUE(std::filesystem::is_directory(plugins)) << plugins;
    for (const auto& entry : std::filesystem::directory_iterator(plugins))
      EXPECT_NE(entry.path().extension(), ".so") << entry.path();
    EXPECT_NE(plugins, folder_);
  }
}

class ImageBuilder {
 public:
  ImageBuilder() {
    Word(0x54564319);
    Word(0x56303138);
  }
  void Word(uint32_t word) { bytes_.append(reinterpret_cast<const char*>(&word), 4); }
  static std::string Varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
    return out + static_cast<char>(value);
  }
  static std::string Number(int field, uint64_t value) {
    return Varint(static_cast<uint64_t>(field) << 3) + Varint(value);
  }
  static std::string Bytes(int field, const std::string& value) {
    return Varint((static_cast<uint64_t>(field) << 3) | 2) + Varint(value.size()) + value;
  }
  void Regular(const std::string& name, uint64_t flags, uint64_t position, int64_t size) {
    std::string file =
        Number(1, 7) + Number(2, flags) + Number(3, position) + Bytes(5, Number(1, 0)) + Bytes(6, name);
    if (size >= 0) file += Number(8, static_cast<uint64_t>(size));
    std::string entry = Number(1, 1) + Number(2, 7) + Bytes(3, file);
    Word(static_cast<uint32_t>(entry.size()));
    bytes_ += entry;
  }
  void Socket(const std::string& socket) {
    std::string entry = Number(1, 2) + Number(2, 8) + Bytes(4, socket);
    Word(static_cast<uint32_t>(entry.size()));
    bytes_ += entry;
  }
  std::string& bytes() { return bytes_; }
  Result<std::vector<CriuFile>> Parse() const { return ParseCriuFiles(std::as_bytes(std::span(bytes_))); }

 private:
  std::string bytes_;
};

TEST(CriuFilesTest, SizesAndPositionsAreRead) {
  ImageBuilder image;
  image.Regular("tmp/data", 2, 5, 1000);
  image.Regular("/tmp/read", 0, 0, 3);
  image.Regular("tmp/log", 02001, 500, -1);  // O_WRONLY | O_APPEND
  image.Regular("dev/null", 1, 0, -1);
  Result<std::vector<CriuFile>> files = image.Parse();
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  ASSERT_EQ(files->size(), 3u);
  EXPECT_EQ((*files)[0].path, "/tmp/data");
  EXPECT_EQ((*files)[0].size, 1000u);
  EXPECT_TRUE((*files)[0].writable);
  EXPECT_EQ((*files)[1].path, "/tmp/read");
  EXPECT_FALSE((*files)[1].writable);
  EXPECT_FALSE((*files)[2].sized);
  EXPECT_EQ((*files)[2].position, 500u);
}

// An inet_sk_entry with addresses of `family` and one word each, or four.
std::string InetSocket(int family, int state, const std::vector<uint32_t>& local, uint64_t local_port,
                       const std::vector<uint32_t>& remote, uint64_t remote_port) {
  using B = ImageBuilder;
  std::string socket = B::Number(1, 8) + B::Number(2, 99) + B::Number(3, static_cast<uint64_t>(family)) +
                       B::Number(4, 1) + B::Number(5, 6) + B::Number(6, static_cast<uint64_t>(state)) +
                       B::Number(7, local_port) + B::Number(8, remote_port);
  for (uint32_t word : local) socket += B::Number(11, word);
  for (uint32_t word : remote) socket += B::Number(12, word);
  return socket + B::Bytes(14, B::Number(1, 4096) + B::Number(7, 1));
}

TEST(CriuFilesTest, TcpSocketsAreRead) {
  ImageBuilder image;
  image.Regular("tmp/data", 2, 5, 1000);
  image.Socket(InetSocket(2, 1, {0x0100007f}, 80, {0x0200000a}, 40000));
  image.Socket(InetSocket(10, 10, {0, 0, 0, 0}, 81, {0, 0, 0, 0}, 0));
  Result<std::vector<CriuTcp>> sockets = ParseCriuTcp(std::as_bytes(std::span(image.bytes())));
  ASSERT_TRUE(sockets.ok()) << sockets.status().ToString();
  ASSERT_EQ(sockets->size(), 2u);
  EXPECT_EQ((*sockets)[0].socket.inode, 99u);
  EXPECT_EQ((*sockets)[0].socket.local.Text(), "127.0.0.1:80");
  EXPECT_EQ((*sockets)[0].socket.remote.Text(), "10.0.0.2:40000");
  EXPECT_TRUE((*sockets)[0].reuse_address);
  EXPECT_EQ((*sockets)[1].socket.local.Text(), "[::]:81");
  EXPECT_EQ((*sockets)[1].socket.state, TcpState::kListening);
}

TEST(CriuFilesTest, ASocketThatMakesNoSenseIsCorrupt) {
  for (const std::string& socket :
       {InetSocket(2, 0, {1}, 80, {1}, 1), InetSocket(2, 12, {1}, 80, {1}, 1),
        InetSocket(2, 1, {1}, 70000, {1}, 1), InetSocket(10, 1, {1}, 80, {1}, 1)}) {
    ImageBuilder image;
    image.Socket(socket);
    EXPECT_EQ(ParseCriuTcp(std::as_bytes(std::span(image.bytes()))).status().code(), StatusCode::kCorrupt);
  }
}

TEST(CriuFilesTest, EveryCutIsAnErrorOrAWholeNumberOfEntries) {
  ImageBuilder image;
  image.Regular("tmp/data", 2, 5, 1000);
  image.Regular("tmp/more", 2, 5, 1000);
  std::string whole = image.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    Result<std::vector<CriuFile>> files = ParseCriuFiles(std::as_bytes(std::span(whole).first(size)));
    if (files.ok()) {
      EXPECT_LE(files->size(), 1u);
    } else {
      EXPECT_EQ(files.status().code(), StatusCode::kCorrupt);
    }
  }
}

}  // namespace
}  // namespace stasis

#include "softgpu/device/test_daemon.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/status.h"
#include "softgpu/device/config.h"

extern char** environ;

namespace softgpu {

using stasis::Deadline;
using stasis::Fd;

namespace {

std::pair<Fd, Fd> Pipe() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  return pointers;
}

bool WaitReadable(int fd, const Deadline& deadline) {
  pollfd wait{fd, POLLIN, 0};
  int ready;
  do {
    ready = poll(&wait, 1, deadline.PollTimeout());
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// What a pipe holds, which others may keep open.
std::string Left(int fd) {
  std::string text;
  char buffer[4096];
  while (WaitReadable(fd, Deadline::After({}))) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// To the test's output. Nothing when the test was not started through tests/harness/hung.py.
void TellOfProcess(pid_t pid) {
  const char* program = getenv("STASIS_HUNG");
  if (program == nullptr) return;
  fflush(nullptr);
  const std::string command = "'" + std::string(program) + "' " + std::to_string(pid);
  static_cast<void>(!system(command.c_str()));
}

// In the child: only system calls from here on, as other threads of the parent may have held any lock. The
// program dies with the parent, so that a test that crashes leaves nothing behind.
[[noreturn]] void ExecWithParent(pid_t parent, const int (&streams)[4], char** argv, char** envp) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  for (int target = 0; target < 4; target++) {
    if (streams[target] < 0) continue;
    // dup2() onto itself would leave close-on-exec set.
    if (streams[target] == target ? fcntl(target, F_SETFD, 0) < 0 : dup2(streams[target], target) < 0)
      _exit(127);
  }
  execve(argv[0], argv, envp);
  _exit(127);
}

}  // namespace

ChildProgram::ChildProgram(const std::vector<std::string>& arguments, int inherited,
                           const std::vector<std::string>& environment) {
  auto [in_read, in_write] = Pipe();
  auto [out_read, out_write] = Pipe();
  auto [err_read, err_write] = Pipe();
  std::vector<char*> argv = Pointers(arguments);
  argv.push_back(nullptr);
  std::vector<char*> envp = Pointers(environment);
  for (char** entry = environ; *entry != nullptr; entry++) envp.push_back(*entry);
  envp.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  // Not an expectation: kill(-1) would reach every process there is.
  STASIS_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    int streams[] = {in_read.get(), out_write.get(), err_write.get(), inherited};
    ExecWithParent(parent, streams, argv.data(), envp.data());
  }
  input_ = std::move(in_write);
  output_ = std::move(out_read);
  error_ = std::move(err_read);
}

ChildProgram::~ChildProgram() {
  if (exit_code_ < 0) {
    Kill(SIGKILL);
    Reap();
  }
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  const bool failed = tests.current_test_info() == nullptr ? tests.Failed() : testing::Test::HasFailure();
  if (!failed) return;
  const std::string said = Left(error_.get());
  if (!said.empty()) fprintf(stderr, "---- process %d wrote:\n%s\n", static_cast<int>(pid_), said.c_str());
}

void ChildProgram::Kill(int signal) {
  if (exit_code_ < 0) kill(pid_, signal);
}

void ChildProgram::Reap() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void ChildProgram::EndHung() {
  hung_ = true;
  ADD_FAILURE() << "process " << pid_ << " did not answer";
  TellOfProcess(pid_);
  Kill(SIGKILL);
}

bool ChildProgram::AwaitReadable(int fd, const Deadline& deadline) {
  if (WaitReadable(fd, deadline)) return true;
  if (!hung_) EndHung();
  return false;
}

int ChildProgram::Wait() {
  if (exit_code_ >= 0) return exit_code_;
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  STASIS_CHECK(process.valid());
  AwaitReadable(process.get(), Deadline::After(kPatience));
  Reap();
  return exit_code_;
}

std::string ChildProgram::ReadLine() {
  std::string line;
  const Deadline deadline = Deadline::After(kPatience);
  char c;
  while (AwaitReadable(output_.get(), deadline) && read(output_.get(), &c, 1) == 1 && c != '\n') line += c;
  return line;
}

std::string ChildProgram::ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  const Deadline deadline = Deadline::After(kPatience);
  for (;;) {
    const ssize_t got = AwaitReadable(fd, deadline) ? read(fd, buffer, sizeof buffer) : 0;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

int ChildProgram::Finish(std::string* output, std::string* error) {
  CloseInput();
  *error = ReadAll(error_.get());
  *output = ReadAll(output_.get());
  return Wait();
}

TempFolder::TempFolder() {
  char name[] = "/tmp/softgpu_test.XXXXXX";
  EXPECT_NE(mkdtemp(name), nullptr);
  path_ = name;
}

TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }

TestDaemon::TestDaemon(const std::vector<std::string>& options) : socket_(folder_.path() + "/softgpud.sock") {
  std::vector<std::string> arguments = {SOFTGPUD_PATH, "--socket", socket_, "--ready-fd", "3"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  auto [read_end, write_end] = Pipe();
  program_ = std::make_unique<ChildProgram>(arguments, write_end.get());
  write_end.Reset();
  char byte = 0;
  EXPECT_TRUE(WaitReadable(read_end.get(), Deadline::After(kPatience)));
  EXPECT_EQ(read(read_end.get(), &byte, 1), 1) << "softgpud did not start";
}

// A daemon that a test has brought down shows here, and so do the reports of sanitizers.
TestDaemon::~TestDaemon() {
  program_->Kill(SIGTERM);
  EXPECT_EQ(program_->Wait(), 0);
}

ConnectOptions TestDaemon::Options() const {
  ConnectOptions options;
  options.socket_path = socket_;
  options.rpc_timeout = kPatience;
  options.connect_timeout = kPatience;
  return options;
}

std::unique_ptr<DeviceClient> TestDaemon::Connect(EventHandler* handler, bool observer) {
  ConnectOptions options = Options();
  options.observer = observer;
  auto client = DeviceClient::Connect(options, handler);
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? std::move(client).value() : nullptr;
}

void EventLog::Add(std::string text) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(text));
  changed_.notify_all();
}

void EventLog::OnDeviceFault(uint32_t device, const Fault& fault) {
  Add("fault " + std::to_string(device) + " " + FaultText(fault));
}

void EventLog::OnCheckpointOp(const CheckpointEvent& event) {
  {
    std::lock_guard lock(mutex_);
    checkpoint_ = event;
  }
  Add("checkpoint " + std::to_string(static_cast<int>(event.op)));
}

std::string EventLog::Next() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kPatience, [this] { return !events_.empty(); })) return "";
  std::string text = std::move(events_.front());
  events_.pop_front();
  return text;
}

CheckpointEvent EventLog::checkpoint() {
  std::lock_guard lock(mutex_);
  return checkpoint_;
}

bool WithinAMinute(const std::function<bool()>& condition) {
  Deadline deadline = Deadline::After(std::chrono::seconds(60));
  while (!condition()) {
    if (deadline.Expired()) return false;
    (void)poll(nullptr, 0, 1);
  }
  return true;
}

}  // namespace softgpu

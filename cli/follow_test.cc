#include "cli/follow.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "coordinator/node/testing.h"

namespace stasis {
namespace {

// A pipe whose read end never blocks.
struct Output {
  Output() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read_end.Reset(ends[0]);
    write_end.Reset(ends[1]);
    fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  }
  std::string Take() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = read(read_end.get(), buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }
  Fd read_end, write_end;
};

TEST(LogFollower, CopiesWhatIsNew) {
  TempFolder folder;
  std::string path = folder.File("output.log");
  EXPECT_EQ(LogFollower::Open(path, 0).status().code(), StatusCode::kNotFound);
  WriteText(path, "one\n");
  Result<LogFollower> log = LogFollower::Open(path, 0);
  ASSERT_TRUE(log.ok());
  Output out;
  EXPECT_TRUE(*log->Pump(out.write_end.get()));
  EXPECT_EQ(out.Take(), "one\n");
  EXPECT_TRUE(*log->Pump(out.write_end.get()));
  EXPECT_EQ(out.Take(), "");
  AppendText(path, "two\n");
  EXPECT_TRUE(*log->Pump(out.write_end.get()));
  EXPECT_EQ(out.Take(), "two\n");
  EXPECT_EQ(log->offset(), 8u);
}

TEST(LogFollower, BeginsWhereItIsTold) {
  TempFolder folder;
  std::string path = folder.File("output.log");
  WriteText(path, "before after");
  Result<LogFollower> log = LogFollower::Open(path, 7);
  Output out;
  EXPECT_TRUE(*log->Pump(out.write_end.get()));
  EXPECT_EQ(out.Take(), "after");
}

TEST(LogFollower, AShortenedLogIsFollowedFromItsNewEnd) {
  TempFolder folder;
  std::string path = folder.File("output.log");
  WriteText(path, "0123456789");
  Result<LogFollower> log = LogFollower::Open(path, 0);
  Output out;
  EXPECT_TRUE(*log->Pump(out.write_end.get()));
  ASSERT_EQ(truncate(path.c_str(), 4), 0);
  EXPECT_TRUE(*log->Pump(out.write_end.get()));
  AppendText(path, "again");
  EXPECT_TRUE(*log->Pump(out.write_end.get()));
  EXPECT_EQ(out.Take(), "0123456789again");
}

TEST(LogFollower, AReaderThatIsGoneIsNoError) {
  TempFolder folder;
  std::string path = folder.File("output.log");
  WriteText(path, "one\n");
  Result<LogFollower> log = LogFollower::Open(path, 0);
  Output out;
  out.read_end.Reset();
  auto before = std::signal(SIGPIPE, SIG_IGN);
  Result<bool> read = log->Pump(out.write_end.get());
  std::signal(SIGPIPE, before);
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(*read);
}

TEST(LogFollower, AFullPipeOfSomebodyElseIsWaitedFor) {
  TempFolder folder;
  std::string path = folder.File("output.log");
  std::string text(1 << 20, 'x');
  WriteText(path, text);
  Result<LogFollower> log = LogFollower::Open(path, 0);
  Output out;
  fcntl(out.write_end.get(), F_SETFL, O_NONBLOCK);
  size_t taken = 0;
  std::thread reader([&] {
    while (taken < text.size()) {
      pollfd wait{out.read_end.get(), POLLIN, 0};
      poll(&wait, 1, -1);
      taken += out.Take().size();
    }
  });
  EXPECT_TRUE(*log->Pump(out.write_end.get()));
  reader.join();
  EXPECT_EQ(taken, text.size());
}

// A task whose init is a child of the test: it ends, or acts, when told through a pipe.
class Follower : public testing::Test {
 protected:
  Follower() : paths_({folder_.File("state"), folder_.File("run")}, "t") {
    EXPECT_TRUE(MakeFolders(paths_.folder).ok());
    EXPECT_TRUE(MakeFolders(paths_.ctl).ok());
    WriteText(paths_.File("task.json"), "{}");
    WriteText(paths_.File("output.log"), "");
  }

  template <typename Body>
  ProcessIdentity StartTask(Body body) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ == 0) {
      char byte;
      (void)!read(ends[0], &byte, 1);
      body();
      _exit(0);
    }
    go_.Reset(ends[1]);
    close(ends[0]);
    ProcessIdentity identity = *IdentifyProcess(child_);
    EXPECT_TRUE(WriteJson(paths_.File("process.json"), {{"init_pid", identity.pid},
                                                        {"init_start_time", identity.start_time},
                                                        {"boot_id", identity.boot_id}})
                    .ok());
    return identity;
  }
  void LetGo() { ASSERT_EQ(write(go_.get(), "g", 1), 1); }
  ~Follower() override {
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }

  Result<FollowResult> Follow(const ProcessIdentity& identity, std::function<void(int)> on_signal = {}) {
    Result<TaskFollower> follower = TaskFollower::Create(paths_);
    EXPECT_TRUE(follower.ok());
    Result<SignalSource> signals = SignalSource::Create();
    EXPECT_TRUE(signals.ok());
    LetGo();
    FollowOptions options;
    options.copy_output = false;
    options.on_signal = std::move(on_signal);
    return follower->Follow(identity, *signals, options);
  }

  TempFolder folder_;
  TaskPaths paths_;
  pid_t child_ = 0;
  Fd go_;
};

TEST_F(Follower, SeesTheEndAndTheControlSocket) {
  ProcessIdentity identity = StartTask([this] {
    WriteText(paths_.ctl + "/2.sock", "");
    unlink((paths_.ctl + "/2.sock").c_str());
    (void)WriteJson(paths_.File("exit.json"), {{"exit_code", 3}});
  });
  Result<FollowResult> result = Follow(identity);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->view.condition, TaskCondition::kExited);
  EXPECT_EQ(result->view.exit_code, 3);
  EXPECT_TRUE(result->managed);
}

TEST_F(Follower, AKilledTask) {
  Result<FollowResult> result = Follow(StartTask([] { raise(SIGKILL); }));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->view.condition, TaskCondition::kKilled);
  EXPECT_FALSE(result->managed);
}

TEST_F(Follower, PassesSignalsOn) {
  ProcessIdentity identity = StartTask([] {
    kill(getppid(), SIGTERM);
    pause();
  });
  int seen = 0;
  Result<FollowResult> result = Follow(identity, [&](int signal) {
    seen = signal;
    kill(identity.pid, SIGKILL);
  });
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(seen, SIGTERM);
}

TEST_F(Follower, ATaskThatIsGoneAlready) {
  ProcessIdentity identity = StartTask([] {});
  LetGo();
  waitpid(std::exchange(child_, 0), nullptr, 0);
  WriteText(paths_.File("exit.json"), "{\"exit_code\": 0}");
  child_ = fork();
  if (child_ == 0) _exit(0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Fd keep(ends[0]);
  go_.Reset(ends[1]);
  Result<FollowResult> result = Follow(identity);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->view.condition, TaskCondition::kExited);
}

}  // namespace
}  // namespace stasis

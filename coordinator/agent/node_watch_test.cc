#include "coordinator/agent/node_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/testing.h"

namespace stasis {
namespace {

using Place = NodeWatch::Place;
constexpr auto kLong = std::chrono::seconds(60);

class NodeWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<NodeWatch>> watch = NodeWatch::Make();
    ASSERT_OK(watch.status());
    watch_ = *std::move(watch);
  }
  NodeWatch::Events Wait(Duration most = kLong) {
    Result<NodeWatch::Events> events = watch_->Wait(Deadline::After(most));
    EXPECT_TRUE(events.ok());
    return events.ok() ? *events : NodeWatch::Events();
  }
  bool Quiet() {
    NodeWatch::Events events = Wait(Duration::zero());
    return events.files.empty() && events.ended.empty() && !events.woken && !events.lost;
  }

  TempFolder folder_;
  std::unique_ptr<NodeWatch> watch_;
};

TEST_F(NodeWatchTest, TellsWhatIsMadeReplacedAndRemoved) {
  ASSERT_OK(watch_->WatchFolder(folder_.path(), Place::kTask, "t"));
  ASSERT_OK(watch_->WatchFolder(folder_.path(), Place::kTask, "t"));  // once is enough
  ASSERT_OK(WriteFileAtomically(folder_ / "status.json", "{}"));
  bool seen = false;
  for (const NodeWatch::Event& event : Wait().files) {
    EXPECT_EQ(event.owner, "t");
    EXPECT_EQ(event.place, Place::kTask);
    seen = seen || event.file == "status.json";
  }
  EXPECT_TRUE(seen);
  EXPECT_TRUE(Quiet());
  ASSERT_OK(RemoveTree(folder_ / "status.json"));
  NodeWatch::Events events = Wait();
  ASSERT_EQ(events.files.size(), 1u);
  EXPECT_EQ(events.files[0].file, "status.json");
}

TEST_F(NodeWatchTest, OutputThatIsWrittenIsNoEvent) {
  Result<Fd> log = OpenFile(folder_ / "output.log", O_WRONLY | O_CREAT);
  ASSERT_OK(log.status());
  ASSERT_OK(watch_->WatchFolder(folder_.path(), Place::kTask, "t"));
  ASSERT_EQ(write(log->get(), "x", 1), 1);
  EXPECT_TRUE(Quiet());
}

TEST_F(NodeWatchTest, AFolderThatIsMadeAgainIsAnother) {
  std::string path = folder_ / "t";
  ASSERT_OK(watch_->WatchFolder(path, Place::kTask, "t"));  // there is none
  for (int i = 0; i < 3; i++) {
    ASSERT_OK(MakeFolders(path));
    ASSERT_OK(watch_->WatchFolder(path, Place::kTask, "t"));
    ASSERT_OK(MakeFolders(path + "/made"));
    NodeWatch::Events events = Wait();
    ASSERT_FALSE(events.files.empty());
    EXPECT_EQ(events.files[0].file, "made");
    ASSERT_OK(RemoveTree(path));
    while (!Quiet()) {
    }
  }
}

TEST_F(NodeWatchTest, TellsTheEndOfAProcessOnce) {
  pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  Result<ProcessIdentity> identity = IdentifyProcess(child);
  ASSERT_OK(identity.status());
  ASSERT_OK(watch_->WatchProcesses("j", {*identity}));
  ASSERT_OK(watch_->WatchProcesses("j", {*identity}));
  EXPECT_TRUE(Quiet());
  kill(child, SIGKILL);
  EXPECT_EQ(Wait().ended, std::vector<std::string>{"j"});
  EXPECT_TRUE(Quiet());
  waitpid(child, nullptr, 0);
  // Who had read that it lives, and says so too late, is told again.
  ASSERT_OK(watch_->WatchProcesses("j", {}));
  ASSERT_OK(watch_->WatchProcesses("j", {*identity}));
  EXPECT_EQ(Wait().ended, std::vector<std::string>{"j"});
  EXPECT_TRUE(Quiet());
}

TEST_F(NodeWatchTest, AProcessThatIsOfNoJobAnyMoreIsNotTold) {
  pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  Result<ProcessIdentity> identity = IdentifyProcess(child);
  ASSERT_OK(identity.status());
  ASSERT_OK(watch_->WatchProcesses("j", {*identity}));
  ASSERT_OK(watch_->WatchProcesses("j", {}));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Quiet());
}

TEST_F(NodeWatchTest, IsWokenFromAnotherThread) {
  std::thread other([&] { watch_->Wake(); });
  EXPECT_TRUE(Wait().woken);
  other.join();
  EXPECT_TRUE(Quiet());
}

TEST_F(NodeWatchTest, AsksWhoeverADescriptorIsOf) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Fd out(ends[0]), in(ends[1]);
  char got = 0;
  ASSERT_OK(watch_->WatchDescriptor(out.get(), [&] { EXPECT_EQ(read(out.get(), &got, 1), 1); }));
  ASSERT_EQ(write(in.get(), "x", 1), 1);
  Wait();
  EXPECT_EQ(got, 'x');
}

}  // namespace
}  // namespace stasis

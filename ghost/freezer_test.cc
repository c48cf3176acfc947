#include "ghost/freezer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "ghost/child.h"
#include "ghost/proc.h"
#include "ghost/testing.h"

namespace stasis {
namespace {

// A process with a child; both write a byte to a pipe again and again.
class Tree {
 public:
  Tree() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    read_end_ = Fd(ends[0]);
    root_ = fork();
    if (root_ == 0) {
      setpgid(0, 0);
      (void)!fork();
      for (char byte = 'x';; usleep(1000)) (void)!write(ends[1], &byte, 1);
    }
    setpgid(root_, root_);
    close(ends[1]);
  }
  ~Tree() {
    kill(-root_, SIGKILL);
    waitpid(root_, nullptr, 0);
  }
  pid_t root() const { return root_; }
  // Somebody writes.
  bool Moves() {
    char buffer[4096];
    return read(read_end_.get(), buffer, sizeof buffer) > 0;
  }
  // One letter a process, as ps(1) shows it.
  std::string States() {
    std::string states;
    Result<std::vector<pid_t>> tree = ProcessTree(root_);
    for (pid_t pid : tree.ok() ? *tree : std::vector<pid_t>()) {
      Result<ProcStat> stat = ReadProcStat(pid);
      states += stat.ok() ? stat->state : '?';
    }
    return states;
  }

 private:
  Fd read_end_;
  pid_t root_ = -1;
};

class FreezerTest : public testing::TestWithParam<FreezeKind> {};

TEST_P(FreezerTest, FreezesTheTreeAndSetsItFree) {
  Tree tree;
  ASSERT_TRUE(tree.Moves());
  Deadline deadline = Deadline::After(std::chrono::seconds(60));
  Result<Frozen> frozen = FreezeTree(tree.root(), "test", deadline, {GetParam()});
  if (!frozen.ok() && GetParam() != FreezeKind::kSigstop) {
    // Without a writable hierarchy there is nothing to freeze by; that the next way is taken is tested below.
    CgroupMounts mounts = FindCgroupMounts();
    EXPECT_TRUE(mounts.v1.empty() || mounts.v2.empty() || geteuid() != 0) << frozen.status().ToString();
    return;
  }
  ASSERT_OK(frozen.status());
  EXPECT_EQ(frozen->kind, GetParam());
  if (GetParam() == FreezeKind::kSigstop) {
    EXPECT_EQ(tree.States(), "TT");
  }
  if (GetParam() != FreezeKind::kSigstop) {
    EXPECT_TRUE(Exists(frozen->folder));
  }
  ASSERT_OK(ThawTree(*frozen, deadline));
  if (GetParam() != FreezeKind::kSigstop) {
    EXPECT_FALSE(Exists(frozen->folder));
  }
  ASSERT_OK(ThawTree(*frozen, deadline));
  EXPECT_TRUE(tree.Moves());
  EXPECT_EQ(tree.States().find('T'), std::string::npos);
}

TEST_P(FreezerTest, ATreeTellsThatItIsFrozen) {
  Tree tree;
  EXPECT_FALSE(IsFrozenTree(tree.root(), "test"));
  Result<Frozen> frozen =
      FreezeTree(tree.root(), "test", Deadline::After(std::chrono::seconds(60)), {GetParam()});
  ASSERT_TRUE(frozen.ok()) << frozen.status().ToString();
  EXPECT_EQ(IsFrozenTree(tree.root(), "test"), GetParam() != FreezeKind::kSigstop);
  EXPECT_FALSE(IsFrozenTree(tree.root(), "other"));
  ASSERT_TRUE(ThawTree(*frozen, Deadline::After(std::chrono::seconds(60))).ok());
  EXPECT_FALSE(IsFrozenTree(tree.root(), "test"));
}

// As after a ghost that was killed: nothing is known but the tree.
TEST_P(FreezerTest, WhatSomebodyElseHasFrozenIsFoundAndTakenAway) {
  Tree tree;
  Deadline deadline = Deadline::After(std::chrono::seconds(60));
  EXPECT_EQ(FindFrozenTree(tree.root(), "test").kind, FreezeKind::kNone);
  Result<Frozen> frozen = FreezeTree(tree.root(), "test", deadline, {GetParam(), FreezeKind::kSigstop});
  ASSERT_OK(frozen.status());
  EXPECT_EQ(FindFrozenTree(tree.root(), "other").kind, FreezeKind::kNone);
  const Frozen found = FindFrozenTree(tree.root(), "test");
  const bool by_cgroup = frozen->kind != FreezeKind::kSigstop;
  EXPECT_EQ(found.kind, by_cgroup ? frozen->kind : FreezeKind::kNone);
  EXPECT_EQ(found.folder, frozen->folder);
  EXPECT_EQ(found.home, frozen->home);
  ASSERT_OK(ThawTree(by_cgroup ? found : *frozen, deadline));
  EXPECT_TRUE(found.folder.empty() || !Exists(found.folder));
  EXPECT_TRUE(tree.Moves());
}

// As after a ghost that was killed between making it and putting the tree into it.
TEST_P(FreezerTest, ACgroupThatNothingIsInIsTakenAway) {
  Tree tree;
  Deadline deadline = Deadline::After(std::chrono::seconds(60));
  Result<Frozen> frozen = FreezeTree(tree.root(), "test", deadline, {GetParam(), FreezeKind::kSigstop});
  ASSERT_OK(frozen.status());
  RemoveUnusedFreezer(tree.root(), "test");
  EXPECT_TRUE(frozen->folder.empty() || IsFrozenTree(tree.root(), "test"));
  ASSERT_OK(ThawTree(*frozen, deadline));
  if (frozen->folder.empty()) return;
  ASSERT_EQ(mkdir(frozen->folder.c_str(), 0755), 0);
  RemoveUnusedFreezer(tree.root(), "other");
  EXPECT_TRUE(Exists(frozen->folder));
  RemoveUnusedFreezer(tree.root(), "test");
  EXPECT_FALSE(Exists(frozen->folder));
  EXPECT_TRUE(tree.Moves());
}

TEST_P(FreezerTest, AKilledTreeCanBeThawed) {
  Tree tree;
  Deadline deadline = Deadline::After(std::chrono::seconds(60));
  Result<Frozen> frozen = FreezeTree(tree.root(), "test", deadline, {GetParam(), FreezeKind::kSigstop});
  ASSERT_OK(frozen.status());
  kill(-tree.root(), SIGKILL);
  ASSERT_OK(ThawTree(*frozen, deadline));
}

// As after a ghost that was killed before it could tell anybody what it had frozen.
TEST_P(FreezerTest, AFrozenTreeIsFrozenAgainAndSetFree) {
  Tree tree;
  Deadline deadline = Deadline::After(std::chrono::seconds(60));
  Result<Frozen> first = FreezeTree(tree.root(), "test", deadline, {GetParam(), FreezeKind::kSigstop});
  ASSERT_OK(first.status());
  Result<Frozen> again = FreezeTree(tree.root(), "test", deadline, {GetParam(), FreezeKind::kSigstop});
  ASSERT_OK(again.status());
  EXPECT_EQ(again->folder, first->folder);
  EXPECT_EQ(again->home, first->home);
  ASSERT_OK(ThawTree(*again, deadline));
  EXPECT_TRUE(first->folder.empty() || !Exists(first->folder));
  EXPECT_TRUE(tree.Moves());
  EXPECT_EQ(tree.States().find('T'), std::string::npos);
}

// As in a container that is paused: what is left there has to end, and its cgroup with it.
TEST(FrozenInFrozenTest, WhatDoesNotThawEndsAndItsCgroupGoes) {
  const CgroupMounts mounts = FindCgroupMounts();
  const std::string outer = mounts.v2 + "/stasis-outer-" + std::to_string(getpid());
  if (mounts.v2.empty() || mkdir(outer.c_str(), 0755) != 0) GTEST_SKIP() << "no cgroup v2 to write to";
  auto write_to = [&](const char* file, const std::string& value) {
    Fd fd(open((outer + file).c_str(), O_WRONLY | O_CLOEXEC));
    return write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size());
  };
  {
    Tree tree;
    ASSERT_TRUE(tree.Moves());
    const Result<std::vector<pid_t>> pids = ProcessTree(tree.root());
    ASSERT_OK(pids.status());
    for (const pid_t pid : *pids) ASSERT_TRUE(write_to("/cgroup.procs", std::to_string(pid)));
    ASSERT_OK(
        FreezeTree(tree.root(), "test", Deadline::After(std::chrono::seconds(60)), {FreezeKind::kCgroupV2})
            .status());
    ASSERT_TRUE(write_to("/cgroup.freeze", "1"));
    const Frozen left = FindFrozenTree(tree.root(), "test");
    EXPECT_EQ(left.folder, outer + "/stasis-test-" + std::to_string(tree.root()));
    EXPECT_EQ(ThawTree(left, Deadline::After(std::chrono::milliseconds(10))).code(), StatusCode::kTimeout);
    ASSERT_EQ(kill(-tree.root(), SIGKILL), 0);
    ASSERT_OK(WaitProcess(tree.root(), Deadline::After(std::chrono::seconds(60))));
    RemoveFreezer(left);
    EXPECT_FALSE(Exists(left.folder));
  }
  EXPECT_TRUE(write_to("/cgroup.freeze", "0"));
  EXPECT_EQ(rmdir(outer.c_str()), 0);
}

INSTANTIATE_TEST_SUITE_P(All, FreezerTest,
                         testing::Values(FreezeKind::kCgroupV2, FreezeKind::kCgroupV1, FreezeKind::kSigstop));

// Each signal that it gets becomes a letter in a pipe: 'c' of SIGCONT, 'u' of SIGUSR1.
int letters = -1;
void WriteLetter(int signal) { (void)!write(letters, signal == SIGCONT ? "c" : "u", 1); }

TEST(ContinueTreeTest, WhoIsNotStoppedHearsNothing) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  letters = ends[1];
  const pid_t root = fork();
  if (root == 0) {
    setpgid(0, 0);
    signal(SIGCONT, WriteLetter);
    signal(SIGUSR1, WriteLetter);
    const pid_t child = fork();
    if (child > 0) (void)!write(ends[1], "r", 1);
    for (;;) pause();
  }
  setpgid(root, root);
  char letter = 0;
  ASSERT_EQ(read(ends[0], &letter, 1), 1);
  const Result<std::vector<pid_t>> tree = ProcessTree(root);
  ASSERT_OK(tree.status());
  ASSERT_EQ(tree->size(), 2u);
  ASSERT_EQ(kill(tree->back(), SIGSTOP), 0);
  for (char state = '?'; state != 'T'; usleep(1000)) state = ReadProcStat(tree->back())->state;
  ASSERT_OK(ThawTree({FreezeKind::kSigstop, "", "", root, false}, Deadline::After(std::chrono::seconds(60))));
  ASSERT_EQ(read(ends[0], &letter, 1), 1);
  EXPECT_EQ(letter, 'c');  // the child's
  // A signal that was sent before is heard before.
  ASSERT_EQ(kill(root, SIGUSR1), 0);
  ASSERT_EQ(read(ends[0], &letter, 1), 1);
  EXPECT_EQ(letter, 'u');
  kill(-root, SIGKILL);
  waitpid(root, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(ContinueTreeTest, AStopThatIsOnItsWayIsUndone) {
  Tree tree;
  ASSERT_TRUE(tree.Moves());
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(kill(-tree.root(), SIGSTOP), 0);
    ASSERT_OK(ThawTree({FreezeKind::kSigstop, "", "", tree.root(), false}, Deadline::Never()));
    ASSERT_EQ(tree.States().find('T'), std::string::npos) << "round " << i;
  }
}

TEST(FreezeTreeTest, NothingToFreezeIsAnError) {
  EXPECT_EQ(FreezeTree(0x3ffffff, "test", Deadline::After(std::chrono::seconds(1))).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace stasis

#include "ghost/child.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/files.h"
#include "ghost/testing.h"

namespace stasis {
namespace {

Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

class ChildTest : public testing::Test {
 protected:
  ChildOptions Writes(const std::string& text) {
    return {.argv = {"/bin/sh", "-c", "echo \"$0\"; read -r line || echo no input", text}, .output = output_};
  }
  std::string Output() { return *ReadFile(output_); }

  TempFolder folder_;
  const std::string output_ = folder_ / "output";
};

TEST_F(ChildTest, AHeldChildDoesNothingUntilItIsLetGo) {
  Result<HeldChild> child = StartHeldChild(Writes("ran"));
  ASSERT_TRUE(child.ok()) << child.status().ToString();
  EXPECT_EQ(WaitChild(child->pid, Deadline::After(std::chrono::milliseconds(100))).status().code(),
            StatusCode::kTimeout);
  EXPECT_EQ(Output(), "");
  ASSERT_TRUE(child->Go().ok());
  Result<int> status = WaitChild(child->pid, Soon());
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(*status, 0);
  EXPECT_EQ(Output(), "ran\nno input\n");
}

TEST_F(ChildTest, AHeldChildThatIsNeverLetGoEnds) {
  Result<HeldChild> child = StartHeldChild(Writes("ran"));
  ASSERT_TRUE(child.ok());
  child->go.Reset();
  Result<int> status = WaitChild(child->pid, Soon());
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(WEXITSTATUS(*status), HeldChild::kNeverLetGo);
  EXPECT_EQ(Output(), "");
}

TEST_F(ChildTest, AHeldChildEndsWithWhoeverHoldsIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t holder = fork();
  if (holder == 0) {
    Result<HeldChild> child = StartHeldChild(Writes("ran"));
    (void)!write(ends[1], &child->pid, sizeof child->pid);
    _exit(0);
  }
  pid_t held = 0;
  ASSERT_EQ(read(ends[0], &held, sizeof held), static_cast<ssize_t>(sizeof held));
  close(ends[0]);
  close(ends[1]);
  EXPECT_TRUE(WaitProcess(held, Soon()).ok());
  ASSERT_EQ(waitpid(holder, nullptr, 0), holder);
  EXPECT_EQ(Output(), "");
}

}  // namespace
}  // namespace stasis

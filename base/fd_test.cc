#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

namespace stasis {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FdTest, ClosesOnceAndKeepsErrno) {
  int raw = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(raw, 0);
  errno = 42;
  {
    Fd fd(raw);
    Fd moved(std::move(fd));
    EXPECT_EQ(moved.get(), raw);
    EXPECT_TRUE(IsOpen(raw));
    errno = 42;
  }
  EXPECT_EQ(errno, 42);
  EXPECT_FALSE(IsOpen(raw));
}

TEST(FdTest, AssignmentClosesWhatWasHeld) {
  Fd first(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Fd second(open("/dev/null", O_RDONLY | O_CLOEXEC));
  int held = first.get();
  first = std::move(second);
  EXPECT_FALSE(IsOpen(held));
  EXPECT_TRUE(IsOpen(first.get()));
  EXPECT_FALSE(second.valid());
}

TEST(FdTest, ReleaseGivesUpOwnership) {
  Fd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  int raw = fd.Release();
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(IsOpen(raw));
  close(raw);
}

TEST(FdTest, DuplicateIsCloseOnExecAndIndependent) {
  Fd fd(open("/dev/null", O_RDONLY));
  Fd copy = fd.Duplicate();
  ASSERT_TRUE(copy.valid());
  EXPECT_NE(fcntl(copy.get(), F_GETFD) & FD_CLOEXEC, 0);
  fd.Reset();
  EXPECT_TRUE(IsOpen(copy.get()));
  EXPECT_FALSE(fd.Duplicate().valid());
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace stasis

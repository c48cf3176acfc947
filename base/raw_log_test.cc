#include "base/raw_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <climits>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>

#include "base/fd.h"

namespace stasis {
namespace {

// What snprintf makes of the same arguments is the model.
template <typename... Args>
void ExpectLikePrintf(const char* format, Args... args) {
  char expected[256], actual[256];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  std::snprintf(expected, sizeof expected, format, args...);
  size_t length = RawFormat(actual, sizeof actual, format, args...);
#pragma GCC diagnostic pop
  EXPECT_STREQ(actual, expected) << format;
  EXPECT_EQ(length, std::string(expected).size()) << format;
}

TEST(RawFormatTest, AgreesWithPrintf) {
  ExpectLikePrintf("plain");
  ExpectLikePrintf("%d %i %u", -1, INT_MIN, UINT_MAX);
  ExpectLikePrintf("%ld %lld %zu", LONG_MIN, LLONG_MAX, SIZE_MAX);
  ExpectLikePrintf("%hhd %hd %hhu %hu", 200, 40000, 300, 70000);
  ExpectLikePrintf("%x %X %08x %16lx", 0xabcdef, 0xabcdef, 0x12, 0xdeadbeefcafe);
  ExpectLikePrintf("[%5d] [%-5d] [%05d] [%5s] [%-5s] [%.2s] [%.*s]", 42, 42, -42, "ab", "ab", "abcdef", 3,
                   "abcdef");
  ExpectLikePrintf("%c%c %%", 'x', 'y');
  ExpectLikePrintf("%" PRIu64 " %jd %td", uint64_t{1} << 63, intmax_t{-7}, ptrdiff_t{-8});
  ExpectLikePrintf("%p", reinterpret_cast<void*>(0x1234));
}

TEST(RawFormatTest, LongTextIsCutWithAMark) {
  char buffer[16];
  size_t length = RawFormat(buffer, sizeof buffer, "%s", "0123456789abcdefgh");
  EXPECT_STREQ(buffer, "0123456789ab...");
  EXPECT_EQ(length, 15u);
  length = RawFormat(buffer, sizeof buffer, "%s", "0123456789abcde");
  EXPECT_STREQ(buffer, "0123456789abcde");
  EXPECT_EQ(length, 15u);
}

TEST(RawFormatTest, NullStringIsNamed) {
  char buffer[32];
  const char* volatile none = nullptr;
  RawFormat(buffer, sizeof buffer, "<%s>", none);
  EXPECT_STREQ(buffer, "<(null)>");
}

TEST(RawFormatTest, UnknownConversionEndsTheFormatting) {
  char buffer[64];
  const char* volatile format = "%d %f %s";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  RawFormat(buffer, sizeof buffer, format, 1, 2.0, "x");
#pragma GCC diagnostic pop
  EXPECT_STREQ(buffer, "1 %f %s");
}

// Lines go into a pipe for the life of the object.
class RawLogTest : public ::testing::Test {
 protected:
  RawLogTest() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    read_.Reset(ends[0]);
    write_.Reset(ends[1]);
    SetRawLogFd(write_.get());
  }
  ~RawLogTest() override {
    SetRawLogFd(STDERR_FILENO);
    SetRawLogLevel(LogLevel::kWarning);
    SetRawLogName("stasis");
  }
  std::string Written() {
    char buffer[4096];
    ssize_t got = read(read_.get(), buffer, sizeof buffer);
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : "";
  }
  Fd read_, write_;
};

TEST_F(RawLogTest, LineHasNamePidAndLevel) {
  SetRawLogName("unit");
  RawLog(LogLevel::kError, "broke %d", 3);
  char expected[64];
  std::snprintf(expected, sizeof expected, "unit[%d:%d] E broke 3\n", getpid(), gettid());
  EXPECT_EQ(Written(), expected);
}

TEST_F(RawLogTest, LevelFilters) {
  RawLog(LogLevel::kInfo, "quiet");
  EXPECT_EQ(Written(), "");
  SetRawLogLevel(LogLevel::kInfo);
  RawLog(LogLevel::kInfo, "loud");
  EXPECT_NE(Written().find(" I loud\n"), std::string::npos);
  SetRawLogLevel(LogLevel::kOff);
  RawLog(LogLevel::kError, "never");
  EXPECT_EQ(Written(), "");
}

TEST_F(RawLogTest, OneLineIsAtMostOneKiB) {
  std::string text(5000, 'x');
  RawLog(LogLevel::kError, "%s", text.c_str());
  std::string line = Written();
  EXPECT_EQ(line.size(), 1024u);
  EXPECT_EQ(line.substr(line.size() - 5), "x...\n");
}

TEST_F(RawLogTest, ErrnoIsKeptEvenIfNothingCanBeWritten) {
  SetRawLogFd(1 << 20);
  errno = 77;
  RawLog(LogLevel::kError, "nowhere");
  EXPECT_EQ(errno, 77);
  SetRawLogFd(-1);
  RawLog(LogLevel::kError, "dropped");
  EXPECT_EQ(errno, 77);
}

TEST_F(RawLogTest, WorksInASignalHandler) {
  signal(SIGUSR1, [](int number) { RawLog(LogLevel::kWarning, "signal %d", number); });
  raise(SIGUSR1);
  signal(SIGUSR1, SIG_DFL);
  EXPECT_NE(Written().find(" W signal 10\n"), std::string::npos);
}

TEST_F(RawLogTest, ChildAfterForkLogsItsOwnPid) {
  pid_t child = fork();
  if (child == 0) {
    RawLog(LogLevel::kError, "child");
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_NE(Written().find("[" + std::to_string(child) + ":" + std::to_string(child) + "]"),
            std::string::npos);
}

}  // namespace
}  // namespace stasis

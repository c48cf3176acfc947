#include "proto/rpc/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <thread>

namespace stasis {
namespace {

using testing::HasSubstr;

TEST(ParseCommandLineTest, SaysWhatIsWrongAndWhereHelpIs) {
  auto parse = [](const std::vector<std::string>& arguments, const Status& meaning) {
    CLI::App app("It serves.", "some-daemon");
    int number = 0;
    app.add_option("--number", number, "a number");
    return ParseCommandLine(app, arguments, [&] { return meaning; });
  };
  EXPECT_FALSE(parse({"--number", "5"}, Status()).done);
  const ConfigOutcome help = parse({"--help"}, Status());
  EXPECT_TRUE(help.done);
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.text, HasSubstr("--number"));
  for (const ConfigOutcome& wrong :
       {parse({"--number", "x"}, Status()), parse({"more"}, Status()),
        parse({"--number", "5"}, Status(StatusCode::kInvalidArgument, "--number: five is taken"))}) {
    EXPECT_TRUE(wrong.done);
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_THAT(wrong.text, HasSubstr("(`some-daemon --help` explains)"));
  }
}

TEST(EndSignalsTest, TellWhatEndsADaemonAndWhatDoesNot) {
  // In a thread of its own, whose mask is nobody else's.
  std::thread([] {
    Result<EndSignals> signals = EndSignals::Take();
    ASSERT_TRUE(signals.ok());
    pollfd wait{signals->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 0), 0);
    for (const auto& [signal, told] :
         {std::pair(SIGHUP, 0), std::pair(SIGTERM, SIGTERM), std::pair(SIGINT, SIGINT)}) {
      pthread_kill(pthread_self(), signal);
      EXPECT_EQ(poll(&wait, 1, 60000), 1);
      EXPECT_EQ(signals->Read(), told);
    }
    raise(SIGPIPE);
  }).join();
}

TEST(RunDaemonTest, AnswersWhatServingDid) {
  EXPECT_TRUE(RunDaemon("test", LogLevel::kInfo, [] { return Status(); }).ok());
  const Status failed =
      RunDaemon("test", LogLevel::kInfo, [] { return Status(StatusCode::kTimeout, "late"); });
  EXPECT_EQ(failed.code(), StatusCode::kTimeout);
}

}  // namespace
}  // namespace stasis

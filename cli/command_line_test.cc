#include "cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "cli/completion.h"
#include "cli/doctor.h"
#include "cli/exit_codes.h"
#include "cli/node_choice.h"
#include "coordinator/node/criu_program.h"
#include "coordinator/node/subprocess.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

using Words = std::vector<std::string>;

Options Parsed(const Words& arguments) {
  CommandLine line;
  CommandLine::Outcome outcome = line.Parse(arguments);
  EXPECT_FALSE(outcome.done) << outcome.text;
  return line.options();
}

std::string Refused(const Words& arguments) {
  CommandLine line;
  CommandLine::Outcome outcome = line.Parse(arguments);
  EXPECT_TRUE(outcome.done);
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  return outcome.text;
}

TEST(CommandLine, RunTakesTheRestAsItIs) {
  Words program = {"./train", "--json", "-e", "--", "--name", "x"};
  Words arguments = {"run", "--name", "t", "--gpus", "2,0", "-e", "A=1", "--env", "B=2 3", "--"};
  arguments.insert(arguments.end(), program.begin(), program.end());
  Options options = Parsed(arguments);
  EXPECT_EQ(options.verb, "run");
  EXPECT_EQ(options.program, program);
  EXPECT_EQ(options.name, "t");
  EXPECT_EQ(options.gpus, std::vector<int>({2, 0}));
  EXPECT_EQ(options.environment, Words({"A=1", "B=2 3"}));
  EXPECT_FALSE(options.json);
  EXPECT_EQ(options.device, "auto");
}

TEST(CommandLine, RunThatIsStartedAgain) {
  Options options =
      Parsed({"run", "--again", "--name", "t", "--checkpoint-on", "TERM,USR1", "--rm", "./train"});
  EXPECT_TRUE(options.again);
  EXPECT_TRUE(options.forget);
  EXPECT_EQ(options.checkpoint_on, std::vector<int>({SIGTERM, SIGUSR1}));
  EXPECT_STREQ(EmbeddedOption(options), "--again");
  EXPECT_TRUE(Parsed({"run", "./train"}).checkpoint_on.empty());
  EXPECT_NE(Refused({"run", "--checkpoint-on", "TERM,KILL", "./train"}).find("'KILL'"), std::string::npos);
  EXPECT_NE(Refused({"run", "--checkpoint-on", "TERM,", "./train"}).find("none of"), std::string::npos);
  EXPECT_NE(Refused({"run", "--again", "./train"}).find("--name"), std::string::npos);
  EXPECT_NE(Refused({"run", "--rm", "--detach", "./train"}).find("--detach"), std::string::npos);
}

TEST(CommandLine, RunWithoutTheMark) {
  Options options = Parsed({"run", "-d", "./train", "--epochs", "3", "-q"});
  EXPECT_EQ(options.program, Words({"./train", "--epochs", "3", "-q"}));
  EXPECT_TRUE(options.detach);
  EXPECT_FALSE(options.quiet);
}

TEST(CommandLine, WrongUsageIsNamed) {
  EXPECT_NE(Refused({}).find("no verb"), std::string::npos);
  EXPECT_NE(Refused({"frobnicate"}).find("frobnicate"), std::string::npos);
  EXPECT_NE(Refused({""}).find("no verb"), std::string::npos);
  EXPECT_NE(Refused({"run"}).find("no program"), std::string::npos);
  EXPECT_NE(Refused({"run", "--"}).find("no program"), std::string::npos);
  EXPECT_NE(Refused({"run", "--nmae", "x", "--", "true"}).find("--nmae"), std::string::npos);
  EXPECT_NE(Refused({"run", "--nmae", "true"}).find("--nmae"), std::string::npos);
  EXPECT_NE(Refused({"run", "stray", "--", "true"}).find("stray"), std::string::npos);
  EXPECT_NE(Refused({"run", "--name", "a/b", "--", "true"}).find("a/b"), std::string::npos);
  EXPECT_NE(Refused({"run", "--gpus", "x", "--", "true"}).find("--gpus"), std::string::npos);
  EXPECT_NE(Refused({"run", "--device", "amd", "--", "true"}).find("amd"), std::string::npos);
  EXPECT_NE(Refused({"run", "--env", "x", "--", "true"}).find("KEY=VALUE"), std::string::npos);
  EXPECT_NE(Refused({"pause"}).find("NAME"), std::string::npos);
  EXPECT_NE(Refused({"pause", "t", "--deadline", "soon"}).find("soon"), std::string::npos);
  EXPECT_NE(Refused({"pause", "t", "--residency", "moon"}).find("moon"), std::string::npos);
  EXPECT_NE(Refused({"migrate", "t"}).find("--gpus"), std::string::npos);
  EXPECT_NE(Refused({"pause", "t", "u"}).find("u"), std::string::npos);
  EXPECT_NE(Refused({"completion", "tcsh"}).find("tcsh"), std::string::npos);
}

TEST(CommandLine, Verbs) {
  Options pause = Parsed({"pause", "t", "--residency", "host", "--deadline", "2m", "--no-freeze", "--json"});
  EXPECT_EQ(pause.name, "t");
  EXPECT_EQ(pause.residency, "host");
  EXPECT_EQ(*pause.deadline, std::chrono::minutes(2));
  EXPECT_TRUE(pause.no_freeze);
  EXPECT_TRUE(pause.json);
  EXPECT_FALSE(Parsed({"pause", "t"}).deadline.has_value());
  EXPECT_TRUE(Parsed({"checkpoint", "t", "--stop"}).stop);
  Options restore = Parsed({"restore", "t/000002", "--gpus", "1", "-d"});
  EXPECT_EQ(restore.target, "t/000002");
  EXPECT_TRUE(restore.detach);
  EXPECT_FALSE(restore.take_back);
  EXPECT_TRUE(Parsed({"restore", "t", "--take-back"}).take_back);
  EXPECT_EQ(Parsed({"migrate", "--gpus", "1", "t"}).name, "t");
  EXPECT_EQ(*Parsed({"cancel", "t", "--grace", "100ms"}).grace, std::chrono::milliseconds(100));
  EXPECT_TRUE(Parsed({"ps", "-a"}).all);
  EXPECT_TRUE(Parsed({"logs", "-f", "t"}).follow);
}

TEST(CommandLine, TheSimulatorGetsItsArgumentsUntouched) {
  EXPECT_EQ(Parsed({"sim", "--trace", "t.csv", "--", "--help"}).program,
            (Words{"--trace", "t.csv", "--", "--help"}));
  EXPECT_TRUE(Parsed({"sim"}).program.empty());
}

TEST(CommandLine, EveryVerbHasHelpWithAnExampleAndJson) {
  CommandLine all;
  for (const CLI::App* verb : all.app().get_subcommands([](const CLI::App*) { return true; })) {
    // The simulator is a program of its own, and explains itself.
    if (verb->get_group().empty() || verb->get_name() == "sim") continue;
    CommandLine line;
    CommandLine::Outcome outcome = line.Parse({verb->get_name(), "--help"});
    EXPECT_TRUE(outcome.done);
    EXPECT_EQ(outcome.exit_code, kExitOk);
    EXPECT_NE(outcome.text.find("Example"), std::string::npos) << verb->get_name();
    EXPECT_NE(outcome.text.find("stasis " + verb->get_name()), std::string::npos) << outcome.text;
    bool has_json = outcome.text.find("--json") != std::string::npos;
    auto below = verb->get_subcommands([](const CLI::App*) { return true; });
    bool does_something = below.empty() || verb->get_require_subcommand_min() == 0;
    EXPECT_EQ(has_json, verb->get_name() != "completion" && does_something) << verb->get_name();
    for (const CLI::App* one : below) {
      CommandLine lower;
      EXPECT_NE(lower.Parse({verb->get_name(), one->get_name(), "--help"}).text.find("--json"),
                std::string::npos)
          << verb->get_name() << " " << one->get_name();
    }
  }
}

TEST(CommandLine, HelpAndVersion) {
  CommandLine line;
  CommandLine::Outcome help = line.Parse({"--help"});
  EXPECT_EQ(help.exit_code, kExitOk);
  for (const char* verb :
       {"run", "ps", "pause", "resume", "checkpoint", "restore", "migrate", "cancel", "doctor"}) {
    EXPECT_NE(help.text.find(verb), std::string::npos) << verb;
  }
  EXPECT_EQ(help.text.find("probe-driver"), std::string::npos);
  CommandLine other;
  EXPECT_EQ(other.Parse({"--version"}).text, "stasis " STASIS_VERSION "\n");
}

// What bash offers for a command line.
std::string BashOffers(const Words& words) {
  TempFolder folder;
  WriteText(folder.File("completion"), CompletionScript(CommandLine().app(), "bash"));
  std::string command =
      "stasis() { echo task-a; echo task-b; }; . " + folder.File("completion") + "; COMP_WORDS=(";
  for (const std::string& word : words) command += "'" + word + "' ";
  command += "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _stasis; echo \"${COMPREPLY[*]}\"";
  Result<SubprocessResult> result = RunSubprocess({{"/bin/bash", "--norc", "-c", command}, OwnEnvironment()},
                                                  Deadline::After(std::chrono::seconds(60)));
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result->error_output, "");
  return result->output;
}

TEST(Completion, Bash) {
  EXPECT_EQ(BashOffers({"stasis", "pau"}), "pause\n");
  EXPECT_EQ(BashOffers({"stasis", "probe"}), "\n");
  EXPECT_EQ(BashOffers({"stasis", "pause", "--resi"}), "--residency\n");
  EXPECT_EQ(BashOffers({"stasis", "pause", "--residency", ""}), "device host disk\n");
  EXPECT_EQ(BashOffers({"stasis", "pause", "task-"}), "task-a task-b\n");
  EXPECT_EQ(BashOffers({"stasis", "completion", "z"}), "zsh\n");
  EXPECT_EQ(BashOffers({"stasis", "run", "--device", "s"}), "soft\n");
}

TEST(Completion, EveryVerbAndOptionIsInEveryShell) {
  CommandLine line;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    std::string script = CompletionScript(line.app(), shell);
    for (const CLI::App* verb : line.app().get_subcommands([](const CLI::App*) { return true; })) {
      bool hidden = verb->get_group().empty();
      EXPECT_EQ(script.find(verb->get_name()) != std::string::npos,
                !hidden || verb->get_name().rfind("complete-", 0) == 0)
          << shell << " " << verb->get_name();
      if (hidden) continue;
      for (const CLI::Option* option : verb->get_options()) {
        for (const std::string& name : option->get_lnames()) {
          EXPECT_NE(script.find(name), std::string::npos) << shell << " " << name;
        }
      }
    }
  }
}

TEST(Doctor, Versions) {
  EXPECT_EQ(ParseCriuVersion("Version: 4.2.1\nGitID: 0\n"), 402);
  EXPECT_EQ(ParseCriuVersion("Version: 3.17.1\n"), 317);
  EXPECT_EQ(ParseCriuVersion("criu: not found"), 0);
  EXPECT_EQ(ParseKernelVersion("6.18.44-x"), 6018);
  EXPECT_EQ(ParseKernelVersion("5.4"), 5004);
  EXPECT_EQ(ParseKernelVersion("six"), 0);
  EXPECT_EQ(ParseKernelVersion("6"), 0);
}

// As CRIU 4.2 words it.
TEST(Doctor, WhatCriuSaysOfAnothersNetworkIsToldFromTheRest) {
  const std::string network =
      "Warn  (criu/net.c:3837): net: Unable to get socket network namespace\n"
      "Error (criu/net.c:1253): net: Unexpected error: -1(Operation not permitted)\n"
      "Error (criu/cr-check.c:1056): Can't turn TCP repair mode ON: Operation not permitted\n"
      "Warn  (criu/cr-check.c:1680): Does not look good.\n";
  EXPECT_THAT(CriuErrorsBesideNetwork(network), testing::IsEmpty());
  const std::string mount = "Error (criu/kerndat.c:1092): Fail to mount tmpfs to /tmp: Operation not permitted";
  EXPECT_THAT(CriuErrorsBesideNetwork(network + mount + "\n"), testing::ElementsAre(mount));
  const std::string repair = "Error (criu/cr-check.c:1056): Can't turn TCP repair mode ON: Protocol not available";
  EXPECT_THAT(CriuErrorsBesideNetwork(repair), testing::ElementsAre(repair));
}

TEST(Doctor, WhatNvidiasDriverCanDoByItself) {
  struct Row {
    int version;
    bool ok;
    const char* says;
  };
  for (const Row& row : {Row{12040, false, "CUDA 12.4: no checkpoint"},
                         Row{12080, true, "CUDA 12.8: brings programs back on the devices"},
                         Row{13000, true, "CUDA 13.0: carries programs, and moves them"}}) {
    const Finding finding = CheckDriverVersion(row.version);
    EXPECT_EQ(finding.ok, row.ok);
    EXPECT_TRUE(Works({finding}, Needed::kCheckpoint)) << "there are programs that do not need it";
    EXPECT_EQ(finding.detail.find(row.says), 0u) << finding.detail;
    EXPECT_NE(finding.remedy.find("570"), std::string::npos);
  }
}

}  // namespace
}  // namespace stasis

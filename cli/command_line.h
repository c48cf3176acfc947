// The command line of `stasis`: the verbs, their options, help and completion.
#ifndef CLI_COMMAND_LINE_H_
#define CLI_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"

namespace stasis {

class CommandLine {
 public:
  CommandLine();

  struct Outcome {
    bool done = false;  // nothing is left to do: help or a usage error, in `text`
    int exit_code = 0;
    std::string text;
  };
  // Fills options(). argv as main() gets it.
  Outcome Parse(const std::vector<std::string>& arguments);

  const Options& options() const { return options_; }
  const CLI::App& app() const { return app_; }

 private:
  CLI::App* AddVerb(const char* name, const char* what, const char* examples);
  CLI::App* AddVerbTo(CLI::App* parent, const char* name, const char* what, const char* examples);
  void AddRun();
  void AddGhostVerbs();
  void AddOthers();
  void AddImages();      // command_line_images.cc
  void AddAgentVerbs();  // command_line_agent.cc
  void AddOps();
  void AddSchedule();
  void AddSchedulerVerbs();  // command_line_scheduler.cc
  void AddSubmit();
  void AddQueue();
  void AddClusterNodes();
  void AddScheduler(CLI::App* verb);
  void AddNode(CLI::App* verb);
  CLI::App* AddBranch(const char* name, const char* what, const char* examples);
  static bool HasVerb(const CLI::App& parent, const std::string& name);
  void NoteVerb();
  Outcome TakeProgram();
  Outcome CheckJobOptions();
  Outcome InterpretScheduler();  // command_line_scheduler.cc
  Outcome Interpret();
  Outcome UsageError(const std::string& text) const;

  CLI::App app_;
  Options options_;
  std::string gpus_, deadline_, grace_, wait_low_, checkpoint_on_;  // as given, before they are understood
  std::string every_, mtbf_, keep_every_, backoff_, estimate_, drain_wait_, notice_;
  std::string start_, end_, length_;
  bool clear_ = false;
};

}  // namespace stasis

#endif  // CLI_COMMAND_LINE_H_

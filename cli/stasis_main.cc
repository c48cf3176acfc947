// stasis: the command. Parses, does one verb, reports, exits with that verb's code.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/completion.h"
#include "cli/run_job.h"
#include "cli/verbs.h"
#include "coordinator/job_record.h"
#include "coordinator/node/driver_probe.h"
#include "coordinator/node/image_names.h"

namespace stasis {
namespace {

struct Verb {
  const char* name;
  int (*run)(const Options&, Context&);
};

constexpr Verb kVerbs[] = {
    {"run", RunVerb},
    {"ps", PsVerb},
    {"logs", LogsVerb},
    {"rm", RmVerb},
    {"pause", PauseVerb},
    {"resume", ResumeVerb},
    {"checkpoint", CheckpointVerb},
    {"restore", RestoreVerb},
    {"migrate", MigrateVerb},
    {"cancel", CancelVerb},
    {"images", ImagesVerb},
    {"doctor", DoctorVerb},
    {"sim", SimVerb},
};

int CompleteTasks() {
  for (const std::string& name : ListTasks(FindFolders())) std::printf("%s\n", name.c_str());
  for (const std::string& name : ListJobs(FindFolders().state)) std::printf("%s\n", name.c_str());
  return kExitOk;
}

int CompleteImages() {
  for (const std::string& job : ListJobs(FindFolders().state)) {
    Result<std::vector<JobImage>> images = ListJobImages(FindFolders().state, job);
    for (size_t i = 0; images.ok() && i < images->size(); i++) {
      std::printf("%s/%s\n", job.c_str(), (*images)[i].id.c_str());
    }
  }
  Result<std::shared_ptr<Store>> store = OpenStore(FindFolders());
  if (!store.ok()) return kExitOk;
  Result<std::vector<std::string>> tasks = ListStoredTasks(**store);
  for (size_t i = 0; tasks.ok() && i < tasks->size(); i++) {
    Result<std::vector<std::string>> ids = ListImages(**store, (*tasks)[i]);
    for (size_t j = 0; ids.ok() && j < ids->size(); j++) {
      std::printf("%s/%s\n", (*tasks)[i].c_str(), (*ids)[j].c_str());
    }
  }
  return kExitOk;
}

bool WantsJson(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return false;
    if (argument == "--json") return true;
  }
  return false;
}

// As a user would write it.
std::string FullVerb(const Options& options) {
  return options.images_verb.empty() ? options.verb : options.verb + " " + options.images_verb;
}

int SayOutcome(const CommandLine::Outcome& outcome, const std::string& verb, bool json) {
  if (outcome.exit_code == kExitOk) {
    std::fputs(outcome.text.c_str(), stdout);
    return kExitOk;
  }
  Reporter reporter({json, false, false}, verb);
  return reporter.Fail(Status(StatusCode::kInvalidArgument, outcome.text));
}

int Main(const std::vector<std::string>& arguments) {
  CommandLine line;
  CommandLine::Outcome outcome = line.Parse(arguments);
  const Options& options = line.options();
  if (outcome.done) return SayOutcome(outcome, FullVerb(options), WantsJson(arguments));
  if (options.verb == "probe-driver") return ProbeDriverMain(options.paths);
  if (options.verb == "free-port") return FreePortMain();
  if (options.verb == "complete-tasks") return CompleteTasks();
  if (options.verb == "complete-images") return CompleteImages();
  if (options.verb == "completion") {
    std::fputs(CompletionScript(line.app(), options.shell).c_str(), stdout);
    return kExitOk;
  }
  Reporter reporter({options.json, options.quiet, isatty(STDERR_FILENO) == 1}, FullVerb(options));
  Context context{{FindFolders(), FindOwnFiles()}, reporter};
  for (const Verb& verb : kVerbs) {
    if (options.verb == verb.name) return verb.run(options, context);
  }
  return reporter.Fail(Status(StatusCode::kInternal, "the verb is not built in"));
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) {
  // A reader that goes away is an error of write(2), not the end of us.
  std::signal(SIGPIPE, SIG_IGN);
  return stasis::Main(std::vector<std::string>(argv + 1, argv + argc));
}

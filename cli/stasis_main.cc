// stasis: the command. Parses, does one verb, reports, exits with that verb's code.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/unix_socket.h"
#include "cli/agent_verbs.h"
#include "cli/command_line.h"
#include "cli/completion.h"
#include "cli/node_choice.h"
#include "cli/run_job.h"
#include "cli/scheduler_verbs.h"
#include "cli/verbs.h"
#include "coordinator/job_record.h"
#include "coordinator/node/driver_probe.h"
#include "coordinator/node/image_names.h"

namespace stasis {
namespace {

using VerbFunction = int (*)(const Options&, Context&);

struct Verb {
  const char* name;
  VerbFunction here;                 // by this process; null: needs an agent
  VerbFunction agent;                // by an agent; null: is about this machine
  VerbFunction scheduler = nullptr;  // by a scheduler, where one is named, or nobody else can
};

constexpr Verb kVerbs[] = {
    {"run", RunVerb, AgentRunVerb},
    {"ps", PsVerb, AgentPsVerb},
    {"logs", LogsVerb, AgentLogsVerb, SchedulerLogsVerb},
    {"rm", RmVerb, AgentRmVerb},
    {"pause", PauseVerb, AgentPauseVerb},
    {"resume", ResumeVerb, AgentResumeVerb},
    {"checkpoint", CheckpointVerb, AgentCheckpointVerb},
    {"restore", RestoreVerb, AgentRestoreVerb},
    {"migrate", MigrateVerb, AgentMigrateVerb},
    {"cancel", CancelVerb, AgentCancelVerb, SchedulerCancelVerb},
    {"ops", nullptr, OpsVerb},
    {"schedule", nullptr, ScheduleVerb},
    {"images", ImagesVerb, nullptr},
    {"doctor", DoctorVerb, nullptr},
    {"sim", SimVerb, nullptr},
    {"top", TopVerb, nullptr},  // finds its agents itself
    {"submit", nullptr, nullptr, SubmitVerb},
    {"queue", nullptr, nullptr, QueueVerb},
    {"tenants", nullptr, nullptr, TenantsVerb},
    {"nodes", nullptr, nullptr, NodesVerb},
    {"drain", nullptr, nullptr, DrainVerb},
    {"undrain", nullptr, nullptr, UndrainVerb},
    {"maintenance", nullptr, nullptr, MaintenanceVerb},
    {"defrag", nullptr, nullptr, DefragVerb},
    {"events", nullptr, nullptr, EventsVerb},
};

bool AsksScheduler(const Verb& verb, const Options& options) {
  if (verb.scheduler == nullptr) return false;
  return (verb.here == nullptr && verb.agent == nullptr) || !NamedScheduler(options).empty();
}

int RunSchedulerVerb(const Verb& verb, const Options& options, Context& context) {
  Result<std::string> scheduler = ChooseScheduler(options, context.folders);
  if (!scheduler.ok()) {
    bool none = scheduler.status().code() == StatusCode::kUnavailable;
    return context.reporter.Fail(scheduler.status(),
                                 none ? "start stasis-schedd, or name one with --scheduler" : "");
  }
  context.node = *scheduler;
  return verb.scheduler(options, context);
}

int RunVerbOf(const Verb& verb, const Options& options, Context& context) {
  if (AsksScheduler(verb, options)) return RunSchedulerVerb(verb, options, context);
  if (verb.agent == nullptr) return verb.here(options, context);
  Result<std::string> node = ChooseNode(options, context.folders);
  if (!node.ok()) return context.reporter.Fail(node.status());
  context.node = *node;
  if (context.node.empty()) {
    bool needs_agent = verb.here == nullptr || !options.to.empty() || options.take_back;
    if (!needs_agent) return verb.here(options, context);
    return context.reporter.Fail(Status(StatusCode::kUnavailable, "no agent runs here"),
                                 "start stasisd, or name one with --node");
  }
  const char* option = EmbeddedOption(options);
  if (option == nullptr) return verb.agent(options, context);
  return context.reporter.Fail(Errorf(StatusCode::kUnsupported, "an agent does not take %s", option),
                               "with --embedded this command does it itself, on this machine");
}

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

int CompleteOperations() {
  Result<std::string> node = ChooseNode(Options(), FindFolders());
  if (!node.ok() || node->empty()) return kExitOk;
  for (const std::string& id : OperationIds(*node)) std::printf("%s\n", id.c_str());
  return kExitOk;
}

int CompleteFromScheduler(std::vector<std::string> (*names)(const std::string&)) {
  Result<std::string> scheduler = ChooseScheduler(Options(), FindFolders());
  if (!scheduler.ok()) return kExitOk;
  for (const std::string& name : names(*scheduler)) std::printf("%s\n", name.c_str());
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
  std::string below = options.images_verb + options.below;
  return below.empty() ? options.verb : options.verb + " " + below;
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
  if (options.verb == "complete-operations") return CompleteOperations();
  if (options.verb == "complete-queue") return CompleteFromScheduler(QueuedJobNames);
  if (options.verb == "complete-nodes") return CompleteFromScheduler(ClusterNodeNames);
  if (options.verb == "completion") {
    std::fputs(CompletionScript(line.app(), options.shell).c_str(), stdout);
    return kExitOk;
  }
  Reporter reporter({options.json, options.quiet, isatty(STDERR_FILENO) == 1}, FullVerb(options));
  Context context{{FindFolders(), FindOwnFiles()}, reporter, ""};
  Status run_folder = CheckRunFolder(context.folders.run);
  if (!run_folder.ok()) return reporter.Fail(run_folder, "name a folder of your own by STASIS_RUN_DIR");
  for (const Verb& verb : kVerbs) {
    if (options.verb == verb.name) return RunVerbOf(verb, options, context);
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

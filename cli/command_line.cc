#include "cli/command_line.h"

#include <algorithm>
#include <sstream>

#include "base/field_checks.h"
#include "cli/exit_codes.h"
#include "cli/signal_list.h"
#include "coordinator/job_json.h"
#include "coordinator/node/layout.h"
#include "coordinator/node/values.h"

#ifndef STASIS_VERSION
#error "the build tells the version"
#endif

namespace stasis {
namespace {

constexpr char kAbout[] =
    "Pause, resume, checkpoint, restore and migrate unmodified CUDA programs.\n"
    "A task is a program started by `stasis run`; every other verb takes its name.";

constexpr char kAppFooter[] = R"(Examples:
  stasis run --name train -- ./train --epochs 3
  stasis pause train --residency host          GPU memory is free for others
  stasis resume train
  stasis checkpoint train --stop               ends it; everything is in an image
  stasis restore train --gpus 1                goes on where it was, on another GPU
  stasis images ls                             what images take, and what removing them frees
  stasis doctor                                what works on this machine
  stasis top --node node7:7470                 what goes on there
  stasis submit --gpus 2 -- ./train            runs when and where a scheduler has room

Where an agent (stasisd) runs, verbs are carried out by it; else, and with --embedded, by this command itself.
`stasis VERB --help` explains a verb. Exit codes:
  0 done   1 failed   2 wrong usage   3 no such task or image   4 not possible in its state, or name taken
  5 deadline passed   6 refused: the task holds what cannot be carried   7 privilege missing   8 no room
  9 cancelled   10 the task or its ghost went away   11 damaged image
  run and restore in the foreground exit as the program does: its own code, or 128 + the signal that ended it;
  124 when a checkpoint ended it, 126 when it cannot be executed, 127 when it is not found.

Environment:
  STASIS_STATE_DIR   records, logs and images (default: /var/lib/stasis for root, else ~/.local/state/stasis)
  STASIS_RUN_DIR     sockets (default: /run/stasis for root, else $XDG_RUNTIME_DIR/stasis or /tmp/stasis-UID)
  STASIS_NODE        the agent that verbs are carried out by, as --node; STASIS_TLS_CA, _CERT, _KEY for its TLS
  STASIS_SCHEDULER   the scheduler that jobs are submitted to, as --scheduler; with the same TLS
  STASIS_CRIU        the criu to use
  STASIS_IDENTITY    file that reads images which are encrypted (`stasis images keygen`))";

constexpr char kRunFooter[] =
    R"(The program's standard output and error go to a log that this command follows; its standard input is empty.
SIGINT, SIGTERM and SIGQUIT are passed on to the program. Closing the terminal leaves it running. With --json the output
stays in the log, and one document tells at the end how the program ended.

Examples:
  stasis run -- ./train --epochs 3
  stasis run --name train --gpus 2 --detach -- python train.py
  stasis run --device soft --env OMP_NUM_THREADS=4 -- ./mlp_train
  stasis run --ranks 4 --name ddp -- ./ddp_train

With --ranks the program runs N times, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and so on as torchrun sets
them. The output of rank 2 has [2] before each line. When one rank fails the others are ended.)";

constexpr char kPauseFooter[] = R"(Residency says where the GPU memory stays meanwhile:
  device   on the GPU; nothing is copied, resuming takes milliseconds
  host     in this machine's memory; the GPU is free
  disk     in the state folder; nothing is held

Examples:
  stasis pause train
  stasis pause train --residency host --deadline 2m)";

constexpr char kCheckpointFooter[] =
    R"(The task runs on afterwards, unless --stop. A paused task can be checkpointed, and stays paused.

Examples:
  stasis checkpoint train
  stasis checkpoint train --stop && stasis restore train --gpus 1)";

constexpr char kRestoreFooter[] =
    R"(Goes on from the newest image of the task, or from the one named. Follows its output from there on and exits as the
program does, unless --detach.

Examples:
  stasis restore train
  stasis restore train/000002 --gpus 1,0 --detach
  stasis restore train --take-back)";

// CLI11 does not know that `run` takes a program.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    if (app->get_prefix_command()) return "\nUsage: " + name + " [OPTIONS] -- PROGRAM [ARGUMENTS...]\n";
    return CLI::Formatter::make_usage(app, name);
  }
};

// Verbs that have verbs of their own.
bool IsBranch(const std::string& verb) {
  return verb == "images" || verb == "ops" || verb == "schedule" || verb == "tenants";
}

bool TakesProgram(const std::string& verb) { return verb == "run" || verb == "submit"; }

// Which arguments are the program's own: all after the first "--" that follows a verb that takes one.
size_t ProgramSeparator(const std::vector<std::string>& arguments) {
  if (arguments.empty() || !TakesProgram(arguments[0])) return arguments.size();
  return static_cast<size_t>(std::find(arguments.begin(), arguments.end(), "--") - arguments.begin());
}

}  // namespace

CommandLine::CommandLine() : app_(kAbout, "stasis") {
  app_.set_version_flag("--version", "stasis " STASIS_VERSION);
  app_.require_subcommand(1);
  app_.footer(kAppFooter);
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(34);
  app_.formatter(formatter);
  AddRun();
  AddOthers();
  AddImages();
  AddGhostVerbs();
  AddAgentVerbs();
  AddSchedulerVerbs();
}

CLI::App* CommandLine::AddVerb(const char* name, const char* what, const char* examples) {
  return AddVerbTo(&app_, name, what, examples);
}

CLI::App* CommandLine::AddVerbTo(CLI::App* parent, const char* name, const char* what, const char* examples) {
  CLI::App* verb = parent->add_subcommand(name, what);
  verb->footer(examples);
  verb->add_flag("--json", options_.json, "one JSON document on standard output, errors too");
  verb->add_flag("-q,--quiet", options_.quiet, "no notes and no progress");
  return verb;
}

// Of the verbs that an agent can carry out.
void CommandLine::AddNode(CLI::App* verb) {
  verb->add_option(
          "--node", options_.node,
          "agent that does it, as host:port or unix:/path (default: $STASIS_NODE, else the local one "
          "if it runs)")
      ->type_name("ENDPOINT");
  verb->add_flag("--embedded", options_.embedded, "do it in this process, without an agent");
}

void CommandLine::AddRun() {
  CLI::App* run = AddVerb("run", "start a program as a task", kRunFooter);
  AddNode(run);
  run->prefix_command();
  run->add_option("--name", options_.name, "name of the task (default: the program's, with a number)")
      ->type_name("NAME");
  run->add_option("--device", options_.device,
                  "driver: auto (NVIDIA's, else the software device), nvidia, soft")
      ->check(CLI::IsMember({"auto", "nvidia", "soft"}))
      ->type_name("KIND");
  run->add_option("--gpus", gpus_, "GPUs that the program sees, in this order, as 2,0 (default: all)")
      ->type_name("LIST");
  run->add_option("--strategy", options_.strategy,
                  "how the driver is let go: auto, reconstruct, driver-checkpoint")
      ->check(CLI::IsMember({"auto", "reconstruct", "driver-checkpoint"}))
      ->type_name("KIND");
  run->add_option("--managed", options_.managed, "managed memory: refuse to pause, or keep on the host")
      ->check(CLI::IsMember({"refuse", "host"}))
      ->type_name("KIND");
  run->add_flag("-d,--detach", options_.detach, "print the name and leave the task running");
  run->add_option("-n,--ranks", options_.ranks,
                  "a job of so many ranks, each a task, with an environment as torchrun sets it")
      ->check(CLI::Range(1, kMaxRanks))
      ->type_name("N");
  run->add_option("--nodes", options_.nodes, "places for the ranks, as a JSON file (docs/cli.md)")
      ->type_name("FILE");
  run->add_option("--master-port", options_.master_port, "MASTER_PORT of the ranks (default: a free one)")
      ->check(CLI::Range(1, 65535))
      ->type_name("PORT");
  run->add_option("--grace", grace_,
                  "when a rank fails: time for the others between SIGTERM and SIGKILL (default 5s)")
      ->type_name("TIME");
  run->add_flag("--again", options_.again,
                "go on from the newest image of a task of that name, or begin in the place of one without");
  run->add_option("--checkpoint-on", checkpoint_on_,
                  "signals, as TERM,USR1, that end the task by an image: exit code 124")
      ->type_name("SIGNALS");
  run->add_flag("--rm", options_.forget, "forget the task and its images once it has exited with 0");
  run->add_option("-e,--env", options_.environment, "variable for the program; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void CommandLine::AddGhostVerbs() {
  auto task = [this](CLI::App* verb) {
    verb->add_option("NAME", options_.name, "the task or job")->required();
  };
  auto deadline = [this](CLI::App* verb) {
    verb->add_option("--deadline", deadline_,
                     "give up and leave the task as it is after this time (default 30s)")
        ->type_name("TIME");
  };
  auto wait_low = [this](CLI::App* verb) {
    verb->add_option("--wait-low", wait_low_,
                     "let it run on for up to this time, to stop it where it holds least active memory")
        ->type_name("TIME");
  };
  auto protocol = [this](CLI::App* verb) {
    verb->add_option(
            "--pause-protocol", options_.pause_protocol,
            "how ranks with NCCL communicators are stopped: cut (default: where nobody waits for anybody), "
            "timeout (anywhere, and on again when that has not worked by the deadline)")
        ->check(CLI::IsMember({"cut", "timeout"}))
        ->type_name("RULE");
    verb->add_option("--attempts", options_.attempts,
                     "of a job: how often to try before the deadline of the last one is over (default 3)")
        ->check(CLI::Range(1, 1000))
        ->type_name("N");
  };
  auto gpus = [this](CLI::App* verb, const char* what) {
    return verb->add_option("--gpus", gpus_, what)->type_name("LIST");
  };
  CLI::App* pause = AddVerb("pause", "stop a task and let go of the GPU", kPauseFooter);
  task(pause);
  AddNode(pause);
  deadline(pause);
  wait_low(pause);
  protocol(pause);
  pause->add_option("--residency", options_.residency, "where its GPU memory stays: device, host, disk")
      ->check(CLI::IsMember({"device", "host", "disk"}))
      ->type_name("WHERE");
  pause->add_flag("--no-freeze", options_.no_freeze,
                  "leave its CPU threads running up to their next CUDA call");

  CLI::App* resume =
      AddVerb("resume", "let a paused task run on", "Example:\n  stasis resume train --gpus 1");
  task(resume);
  AddNode(resume);
  deadline(resume);
  gpus(resume, "GPUs to go on with, one for each that the program sees (default: where it was)");

  CLI::App* checkpoint = AddVerb("checkpoint", "write an image of a task", kCheckpointFooter);
  task(checkpoint);
  AddNode(checkpoint);
  deadline(checkpoint);
  wait_low(checkpoint);
  protocol(checkpoint);
  checkpoint
      ->add_option("--snapshot", options_.snapshot,
                   "second copy that is written while it runs on: auto, device, host; off: write it while it "
                   "stands still")
      ->check(CLI::IsMember({"auto", "device", "host", "off"}))
      ->type_name("WHERE");
  checkpoint
      ->add_option("--snapshot-host-share", options_.snapshot_host_share,
                   "how much of this machine's free memory that copy may take (default 50)")
      ->check(CLI::Range(0, 100))
      ->type_name("PERCENT");
  checkpoint
      ->add_option("--device-hash", options_.device_hash,
                   "let the GPU find what an earlier image has, and copy only the rest: auto (where that is "
                   "fast), on, off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->type_name("WHEN");
  checkpoint->add_flag("--stop", options_.stop, "end the task once the image is complete");

  CLI::App* restore = AddVerb("restore", "bring a task back from an image", kRestoreFooter);
  AddNode(restore);
  restore->add_option("IMAGE", options_.target, "the task or job, NAME/ID, or the path of an image")
      ->required();
  deadline(restore);
  gpus(restore, "GPUs to go on with, one for each that the program sees (default: where it was)");
  restore
      ->add_option("--nodes", options_.nodes,
                   "of a job: other places for its ranks, as a JSON file (docs/cli.md)")
      ->type_name("FILE");
  restore->add_flag(
      "--take-back", options_.take_back,
      "through an agent: also where it was handed over to another node, which is gone for good");
  restore->add_flag("-d,--detach", options_.detach, "do not follow the task");

  CLI::App* migrate = AddVerb("migrate", "move a running task to other GPUs, or to another node",
                              "Examples:\n  stasis migrate train --gpus 1\n  stasis migrate train --to "
                              "node7:7470");
  task(migrate);
  AddNode(migrate);
  deadline(migrate);
  protocol(migrate);
  gpus(migrate, "GPUs to move to, one for each that the program sees");
  migrate->add_option("--to", options_.to, "agent of the node to move to, as host:port")->type_name("NODE");
  migrate
      ->add_option("--precopy", options_.precopy,
                   "to another node: send memory while the task runs: auto (where that pays), always, never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");

  CLI::App* cancel =
      AddVerb("cancel", "end a task, running or paused, or a job of a scheduler, or give up an operation",
              "Examples:\n  stasis cancel train\n  stasis cancel train --operation\n"
              "  stasis cancel train --scheduler login1:7471");
  task(cancel);
  AddNode(cancel);
  AddScheduler(cancel);
  cancel->add_flag("--operation", options_.operation,
                   "give up the pause, checkpoint or restore that runs now");
  cancel->add_option("--grace", grace_, "time between SIGTERM and SIGKILL (default 5s)")->type_name("TIME");
}

void CommandLine::AddOthers() {
  CLI::App* ps = AddVerb("ps", "list tasks and jobs",
                         "Examples:\n  stasis ps\n  stasis ps train\n  stasis ps --all --json");
  AddNode(ps);
  ps->add_option("NAME", options_.name, "only this task, or this job with its ranks");
  ps->add_flag("-a,--all", options_.all, "also the tasks that have ended");
  ps->add_flag("-r,--ranks", options_.show_ranks, "also the ranks of jobs");
  CLI::App* logs = AddVerb(
      "logs", "print what a task, or each rank of a job, has printed",
      "Of a job each line begins with its rank, [0]; NAME.0 is that rank alone.\n\nExamples:\n  stasis logs "
      "-f train\n  stasis logs train.3");
  AddNode(logs);
  AddScheduler(logs);
  logs->add_option("NAME", options_.name, "the task or job")->required();
  logs->add_flag("-f,--follow", options_.follow, "until it ends");
  CLI::App* rm = AddVerb("rm", "forget a task or job that has ended: its record, logs and images",
                         "Example:\n  stasis rm train");
  AddNode(rm);
  rm->add_option("NAME", options_.name, "the task or job")->required();
  AddVerb("doctor", "say what works on this machine, and how to mend what does not",
          "Exits with 0 when `stasis run` works.\n\nExample:\n  stasis doctor --json");
  // Its options are its own program's, which explains them itself.
  CLI::App* sim = app_.add_subcommand("sim", "try scheduling policies on a trace of jobs");
  sim->set_help_flag();
  sim->prefix_command();
  CLI::App* completion = app_.add_subcommand("completion", "print the completion script of a shell");
  completion->footer(
      "Examples:\n  source <(stasis completion bash)\n  stasis completion fish > "
      "~/.config/fish/completions/stasis.fish");
  completion->add_option("SHELL", options_.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  // For our own use: the child that opens a driver, what finds a port on another node, and the names that
  // completion offers.
  app_.add_subcommand("probe-driver")->group("")->add_option("PATH", options_.paths)->required();
  app_.add_subcommand("free-port")->group("");
  app_.add_subcommand("complete-tasks")->group("");
  app_.add_subcommand("complete-images")->group("");
  app_.add_subcommand("complete-operations")->group("");
  app_.add_subcommand("complete-queue")->group("");
  app_.add_subcommand("complete-nodes")->group("");
}

CommandLine::Outcome CommandLine::UsageError(const std::string& text) const {
  std::string verb = options_.verb.empty() ? "" : " " + options_.verb;
  if (!options_.images_verb.empty()) verb += " " + options_.images_verb;
  if (!options_.below.empty()) verb += " " + options_.below;
  return {true, kExitUsage, text + " (`stasis" + verb + " --help` explains)"};
}

void CommandLine::NoteVerb() {
  for (const CLI::App* verb : app_.get_subcommands()) {
    options_.verb = verb->get_name();
    for (const CLI::App* below : verb->get_subcommands()) {
      (options_.verb == "images" ? options_.images_verb : options_.below) = below->get_name();
    }
  }
}

bool CommandLine::HasVerb(const CLI::App& parent, const std::string& name) {
  std::vector<const CLI::App*> verbs = parent.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(verbs.begin(), verbs.end(),
                     [&](const CLI::App* verb) { return verb->get_name() == name; });
}

// The program may also follow without "--".
CommandLine::Outcome CommandLine::TakeProgram() {
  if (!options_.program.empty()) return {};
  options_.program = app_.get_subcommand(options_.verb)->remaining();
  if (options_.program.empty()) return UsageError("no program given");
  if (options_.program[0][0] == '-') return UsageError("unknown option " + options_.program[0]);
  return {};
}

// What is only of use for a job of ranks.
CommandLine::Outcome CommandLine::CheckJobOptions() {
  if (options_.verb != "run") return {};
  if (!options_.nodes.empty() && !options_.gpus.empty()) {
    return UsageError("--gpus with --nodes: the file names the GPUs of each node");
  }
  bool again = options_.again || options_.forget || !checkpoint_on_.empty();
  if (again && options_.detach) return UsageError("--again, --checkpoint-on, --rm: not with --detach");
  if (options_.again && options_.name.empty()) return UsageError("--again of what? --name NAME");
  if (options_.ranks > 0 || !options_.nodes.empty()) return {};
  if (options_.master_port > 0) return UsageError("--master-port is for jobs: --ranks N");
  if (!grace_.empty()) return UsageError("--grace is for jobs: --ranks N");
  return {};
}

CommandLine::Outcome CommandLine::Interpret() {
  if (!gpus_.empty()) {
    Result<std::vector<int>> gpus = ParseGpuList(gpus_);
    if (!gpus.ok()) return UsageError("--gpus: " + std::string(gpus.status().message()));
    options_.gpus = *gpus;
  }
  if (!checkpoint_on_.empty()) {
    Result<std::vector<int>> signals = ParseSignals(checkpoint_on_);
    if (!signals.ok()) return UsageError("--checkpoint-on: " + std::string(signals.status().message()));
    options_.checkpoint_on = *signals;
  }
  for (auto [text, value] : {std::pair(&deadline_, &options_.deadline), std::pair(&grace_, &options_.grace),
                             std::pair(&wait_low_, &options_.wait_low)}) {
    if (text->empty()) continue;
    Result<Duration> time = ParseDuration(*text);
    if (!time.ok()) return UsageError(std::string(time.status().message()));
    *value = *time;
  }
  for (auto [text, value] :
       {std::pair(&every_, &options_.every), std::pair(&mtbf_, &options_.mtbf),
        std::pair(&keep_every_, &options_.keep_every), std::pair(&backoff_, &options_.backoff),
        std::pair(&estimate_, &options_.estimate), std::pair(&drain_wait_, &options_.drain_wait),
        std::pair(&notice_, &options_.notice)}) {
    if (text->empty()) continue;
    Result<Duration> time = ParseLongDuration(*text);
    if (!time.ok()) return UsageError(std::string(time.status().message()));
    *value = *time;
  }
  for (const std::string& entry : options_.environment) {
    Status good = CheckEnvironmentEntry(entry);
    if (!good.ok()) return UsageError("--env: " + std::string(good.message()));
  }
  Outcome job = CheckJobOptions();
  if (job.done) return job;
  if (options_.verb == "schedule" && options_.below == "set") {
    bool rule = options_.every || options_.mtbf || !options_.cron.empty() || options_.max_restarts > 0;
    if (!rule) return UsageError("when? --every TIME, --cron FIELDS or --mtbf TIME");
    if (options_.every && !options_.cron.empty()) return UsageError("--every with --cron: which of them?");
  }
  if (options_.verb == "migrate" && options_.gpus.empty() && options_.to.empty()) {
    return UsageError("where to? --gpus LIST, --to NODE, or both");
  }
  if (TakesProgram(options_.verb) && !options_.name.empty()) {
    Status good = CheckTaskName(options_.name);
    if (!good.ok()) return UsageError(std::string(good.message()));
  }
  return InterpretScheduler();
}

CommandLine::Outcome CommandLine::Parse(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].empty()) return UsageError("no verb given");
  if (arguments[0][0] != '-' && !HasVerb(app_, arguments[0])) {
    return UsageError("there is no verb " + arguments[0]);
  }
  if (arguments.size() > 1 && arguments[1].rfind('-', 0) != 0 && IsBranch(arguments[0]) &&
      !HasVerb(*app_.get_subcommand(arguments[0]), arguments[1])) {
    options_.verb = arguments[0];
    return UsageError("there is no verb " + arguments[1]);
  }
  if (arguments[0] == "sim") {
    options_.verb = arguments[0];
    options_.program.assign(arguments.begin() + 1, arguments.end());
    return {};
  }
  size_t separator = ProgramSeparator(arguments);
  if (separator < arguments.size()) {
    options_.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(separator) + 1, arguments.end());
  }
  std::vector<std::string> ours(arguments.begin(),
                                arguments.begin() + static_cast<std::ptrdiff_t>(separator));
  std::reverse(ours.begin(), ours.end());  // as CLI::App::parse(vector) wants them
  std::ostringstream out, errors;
  try {
    app_.parse(ours);
  } catch (const CLI::Success& help) {
    app_.exit(help, out, errors);
    return {true, kExitOk, out.str()};
  } catch (const CLI::ParseError& error) {
    NoteVerb();
    return UsageError(error.what());
  }
  NoteVerb();
  if (TakesProgram(options_.verb)) {
    if (separator < arguments.size()) {
      std::vector<std::string> stray = app_.get_subcommand(options_.verb)->remaining();
      if (!stray.empty()) return UsageError("unknown argument " + stray[0] + " before --");
    }
    Outcome outcome = TakeProgram();
    if (outcome.done) return outcome;
  }
  return Interpret();
}

}  // namespace stasis

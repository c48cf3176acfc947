// The command line of the verbs that need an agent: `ops`, `top`, `schedule`.
#include "cli/command_line.h"
#include "coordinator/node/layout.h"

namespace stasis {
namespace {

constexpr char kOpsFooter[] =
    R"(Every change to a job by an agent is an operation: it is on record, can be watched and given up, and outlives the agent's
process.

Examples:
  stasis ops ls
  stasis ops show op-000017
  stasis ops cancel op-000017

`stasis ops VERB --help` explains a verb.)";

constexpr char kOpsLsFooter[] = R"(Examples:
  stasis ops ls
  stasis ops ls train --running)";

constexpr char kOpsShowFooter[] =
    R"(Each step is a bar from where it began to where it ended; steps of ranks that work side by side lie above each other. An
operation that still runs is shown as it is now.

Example:
  stasis ops show op-000017)";

constexpr char kOpsCancelFooter[] =
    R"(The operation is undone, and its job is as it was before. It may be too late for that: `stasis ops show` tells.

Example:
  stasis ops cancel op-000017)";

constexpr char kTopFooter[] =
    R"(Keys: q quit, j and k or the arrows move, Tab the next part, Space stop and go on. Without a terminal, or with --json, it is
told once.

Examples:
  stasis top
  stasis top --node node7:7470,node8:7470)";

constexpr char kScheduleFooter[] =
    R"(Examples:
  stasis schedule set train --every 10m --keep 3
  stasis schedule set train --cron "0 * * * *" --keep-every 1d --max-restarts 5
  stasis schedule ls
  stasis schedule rm train

`stasis schedule VERB --help` explains a verb.)";

constexpr char kScheduleSetFooter[] =
    R"(Replaces what the schedule was. Times are as 90s, 10m, 2h, 7d. With --mtbf and neither --every nor --cron the interval follows
from what checkpoints have been measured to cost (Young and Daly).

Examples:
  stasis schedule set train --every 10m --keep 3 --max-restarts 5
  stasis schedule set train --cron "30 2 * * *" --keep-every 7d
  stasis schedule set train --mtbf 7d --budget 2)";

std::string NameError(const std::string& name) {
  Status good = CheckTaskName(name);
  return good.ok() ? "" : std::string(good.message());
}

}  // namespace

CLI::App* CommandLine::AddBranch(const char* name, const char* what, const char* examples) {
  CLI::App* branch = app_.add_subcommand(name, what);
  branch->footer(examples);
  branch->require_subcommand(1);
  return branch;
}

void CommandLine::AddOps() {
  CLI::App* ops = AddBranch("ops", "list, show and give up what an agent is doing", kOpsFooter);
  CLI::App* ls = AddVerbTo(ops, "ls", "list operations, the newest first", kOpsLsFooter);
  AddNode(ls);
  ls->add_option("NAME", options_.name, "only those on this task or job")->check(NameError);
  ls->add_flag("-r,--running", options_.running, "only those that have not ended");
  ls->add_option("--limit", options_.limit, "at most so many (default 20)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  CLI::App* show = AddVerbTo(ops, "show", "say where an operation's time went", kOpsShowFooter);
  AddNode(show);
  show->add_option("OPERATION", options_.target, "its id")->required();
  CLI::App* cancel = AddVerbTo(ops, "cancel", "give an operation up", kOpsCancelFooter);
  AddNode(cancel);
  cancel->add_option("OPERATION", options_.target, "its id")->required();
}

void CommandLine::AddSchedule() {
  CLI::App* schedule =
      AddBranch("schedule", "checkpoint jobs regularly, and bring failed ones back", kScheduleFooter);
  CLI::App* set = AddVerbTo(schedule, "set", "give a task or job a schedule", kScheduleSetFooter);
  AddNode(set);
  set->add_option("NAME", options_.name, "the task or job")->required()->check(NameError);
  set->add_option("--every", every_, "time from one checkpoint to the next")->type_name("TIME");
  set->add_option("--cron", options_.cron, "when, in five fields: minute, hour, day, month, day of the week")
      ->type_name("FIELDS");
  set->add_option("--mtbf", mtbf_, "mean time between failures, from which the best interval follows")
      ->type_name("TIME");
  set->add_option("--keep", options_.keep, "how many images of the schedule stay (default 3)")
      ->check(CLI::Range(1, 10000))
      ->type_name("N");
  set->add_option("--keep-every", keep_every_, "beyond these keep the newest of each such stretch of time")
      ->type_name("TIME");
  set->add_option("--budget", options_.budget,
                  "share of the job's time that checkpoints may cost; the interval is stretched to hold it")
      ->check(CLI::Range(0.001, 100.0))
      ->type_name("PERCENT");
  set->add_option("--max-restarts", options_.max_restarts,
                  "bring it back from its last image when it fails, so many times (default 0)")
      ->check(CLI::Range(0, 10000))
      ->type_name("N");
  set->add_option("--restart-backoff", backoff_,
                  "time before the first restart, doubled with each one in a row (default 1s)")
      ->type_name("TIME");
  set->add_flag("--suspended", options_.suspended, "keep the schedule, but do nothing until it is set again");
  CLI::App* ls = AddVerbTo(schedule, "ls", "list schedules", "Example:\n  stasis schedule ls");
  AddNode(ls);
  ls->add_option("NAME", options_.name, "only that of this task or job")->check(NameError);
  CLI::App* rm =
      AddVerbTo(schedule, "rm", "end a schedule; its images stay", "Example:\n  stasis schedule rm train");
  AddNode(rm);
  rm->add_option("NAME", options_.name, "the task or job")->required()->check(NameError);
}

void CommandLine::AddAgentVerbs() {
  AddOps();
  AddSchedule();
  CLI::App* top = AddVerb("top", "watch nodes, devices, jobs and operations", kTopFooter);
  top->add_option("--node", options_.node, "agents to look at, separated by commas (default: the local one)")
      ->type_name("ENDPOINTS");
}

}  // namespace stasis

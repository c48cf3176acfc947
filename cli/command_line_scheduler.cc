// The command line of the verbs that need a scheduler.
#include <chrono>

#include "cli/command_line.h"
#include "cli/when.h"
#include "coordinator/node/layout.h"
#include "coordinator/node/values.h"

namespace stasis {
namespace {

constexpr int kMaxGang = 64;

constexpr char kSubmitFooter[] =
    R"(The program runs in this folder and with this environment, which must be there on every node. Prints the name of the job;
with --wait it stays until the job has ended and exits as the program did. Ctrl-C then ends the waiting and not the job.

Examples:
  stasis submit --tenant vision --gpus 4 -- ./train --epochs 90
  stasis submit --gpus 2 --ranks --name ddp --priority 10 -- ./ddp_train
  stasis submit --gpus 4 --min-gpus 2 --max-gpus 8 --checkpoint-every 10m --max-restarts 3 --wait -- ./train)";

constexpr char kQueueFooter[] =
    R"(TIME is how long it has waited, or since when it runs, or how long it took. F is the share of what the job deserved that it has
got.

Examples:
  stasis queue
  stasis queue train
  stasis queue --tenant vision --all --json)";

constexpr char kTenantsFooter[] =
    R"(Quotas follow the weights. F is the share of what a tenant deserved that it has got: over the last leases, and of all time.

Examples:
  stasis tenants
  stasis tenants set vision 2)";

constexpr char kDrainFooter[] =
    R"(Nothing new goes to the node. What runs there is moved away, or checkpointed where it cannot be.

With --deadline the node will be gone after TIME, as one that is reclaimed: what saves the most work for its time goes first, a few
jobs at once. What is not elsewhere by then runs on, and comes back from its last image. `undrain` takes the notice back. With --wait,
for longer than that, the command stays until it is known of each job whether it is saved, at the deadline at the latest, and exits with
4 where one is not.

Examples:
  stasis drain node7 --reason "a fan is broken"
  stasis drain node7 --deadline 2m --wait 3m)";

constexpr char kMaintenanceFooter[] =
    R"(The node is drained so that it is empty when the window begins, and comes back when it ends. WHEN is now, +90m,
'2026-12-24 18:00' or 2026-12-24T18:00Z.

Examples:
  stasis maintenance node7 --start "2026-12-24 18:00" --for 4h
  stasis maintenance node7 --clear)";

constexpr char kDefragFooter[] =
    R"(Finds the moves with the fewest bytes after which a gang of N fits on one node, and makes them. Exits with 4 when none do.

Examples:
  stasis defrag --gpus 8 --dry-run
  stasis defrag --gpus 8)";

constexpr char kEventsFooter[] =
    R"(With --follow and --json each event is one document on a line of its own.

Examples:
  stasis events
  stasis events --follow)";

int64_t NowMs() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string NameError(const std::string& name) {
  Status good = CheckTaskName(name);
  return good.ok() ? "" : std::string(good.message());
}

}  // namespace

void CommandLine::AddScheduler(CLI::App* verb) {
  verb->add_option("--scheduler", options_.scheduler,
                   "scheduler to ask, as host:port or unix:/path (default: $STASIS_SCHEDULER)")
      ->type_name("ENDPOINT");
}

void CommandLine::AddSubmit() {
  CLI::App* submit = AddVerb("submit", "give a job to a scheduler", kSubmitFooter);
  AddScheduler(submit);
  submit->prefix_command();
  submit->add_option("--name", options_.name, "name of the job (default: the program's, with a number)")
      ->type_name("NAME");
  submit
      ->add_option("--tenant", options_.tenant,
                   "who it is for (default: $STASIS_TENANT, else your user name)")
      ->check(NameError)
      ->type_name("TENANT");
  submit->add_option("-g,--gpus", options_.gpu_count, "how many, all of one node (default 1)")
      ->check(CLI::Range(1, kMaxGang))
      ->type_name("N");
  submit->add_flag("-n,--ranks", options_.ranked,
                   "as many ranks as GPUs, each with one, with an environment as torchrun sets it");
  submit
      ->add_option("--priority", options_.priority,
                   "class, -100 to 100 (default 0); a higher one preempts lower ones")
      ->check(CLI::Range(-100, 100))
      ->type_name("N");
  submit->add_option("--weight", options_.weight, "share among the tenant's jobs (default 1)")
      ->check(CLI::Range(1e-6, 1e6))
      ->type_name("W");
  submit->add_option("--estimate", estimate_, "of its run time, for policies that go by it")
      ->type_name("TIME");
  submit->add_option("--min-gpus", options_.min_gpus, "it may run on fewer, down to this")
      ->check(CLI::Range(1, kMaxGang))
      ->type_name("N");
  submit->add_option("--max-gpus", options_.max_gpus, "it may run on more, up to this")
      ->check(CLI::Range(1, kMaxGang))
      ->type_name("N");
  submit
      ->add_option("--device-memory", options_.device_memory,
                   "it needs no more of each GPU, and may share them by a policy that does so")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  submit
      ->add_option("--utilization", options_.utilization,
                   "how busy it keeps GPUs that it has for itself, up to 1: who shares with whom goes by it")
      ->check(CLI::Range(0.01, 1.0))
      ->type_name("U");
  submit
      ->add_option("--checkpoint-every", every_, "time from one image to the next (default: the scheduler's)")
      ->type_name("TIME");
  submit
      ->add_option("--max-restarts", options_.max_restarts,
                   "bring it back from its last image when its program fails, so many times (default 0)")
      ->check(CLI::Range(0, 10000))
      ->type_name("N");
  submit
      ->add_option("--device", options_.device,
                   "driver: auto (NVIDIA's, else the software device), nvidia, soft")
      ->check(CLI::IsMember({"auto", "nvidia", "soft"}))
      ->type_name("KIND");
  submit->add_option("-e,--env", options_.environment, "variable for the program; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  submit->add_flag("-w,--wait", options_.wait, "stay until it has ended, and exit as it did");
}

void CommandLine::AddQueue() {
  CLI::App* queue = AddVerb("queue", "list the jobs of a scheduler", kQueueFooter);
  AddScheduler(queue);
  queue->add_option("JOB", options_.name, "only this one, also after its end")->check(NameError);
  queue->add_option("--tenant", options_.tenant, "only this tenant's")->check(NameError)->type_name("TENANT");
  queue->add_flag("-a,--all", options_.all, "also those that have ended");
  CLI::App* tenants = AddVerb("tenants", "list who shares a cluster, or set a share", kTenantsFooter);
  AddScheduler(tenants);
  tenants->require_subcommand(0, 1);
  CLI::App* set = AddVerbTo(tenants, "set", "add a tenant, or change its weight",
                            "Example:\n  stasis tenants set vision 2");
  AddScheduler(set);
  set->add_option("TENANT", options_.tenant, "its name")->required()->check(NameError);
  set->add_option("WEIGHT", options_.weight, "more than 0")->required()->check(CLI::Range(1e-6, 1e6));
  CLI::App* events = AddVerb("events", "list what has happened to a cluster", kEventsFooter);
  AddScheduler(events);
  events->add_flag("-f,--follow", options_.follow, "and what happens from now on");
  CLI::Option* last =
      events->add_option("--last", options_.limit, "begin with the newest so many (default 20)")
          ->check(CLI::Range(1, 10000))
          ->type_name("N");
  events->add_option("--after", options_.after, "begin behind the event of this number")
      ->type_name("NUMBER")
      ->excludes(last);
}

void CommandLine::AddClusterNodes() {
  AddScheduler(AddVerb("nodes", "list the nodes of a scheduler", "Example:\n  stasis nodes"));
  auto node = [this](const char* name, const char* what, const char* footer) {
    CLI::App* verb = AddVerb(name, what, footer);
    AddScheduler(verb);
    verb->add_option("NODE", options_.node_name, "its name")->required();
    return verb;
  };
  CLI::App* drain = node("drain", "empty a node", kDrainFooter);
  drain->add_option("--reason", options_.reason, "for those who look at the node")->type_name("TEXT");
  drain->add_option("--deadline", notice_, "after so long it will be gone")->type_name("TIME");
  drain
      ->add_option(
          "--wait", drain_wait_,
          "stay until nobody holds its devices, with --deadline until it is known of each job whether it "
          "is saved; at most so long")
      ->type_name("TIME");
  node("undrain", "let jobs go to a node again", "Example:\n  stasis undrain node7");
  CLI::App* maintenance = node("maintenance", "set when a node is to be empty", kMaintenanceFooter);
  maintenance->add_option("--start", start_, "the window's beginning")->type_name("WHEN");
  maintenance->add_option("--end", end_, "the window's end")->type_name("WHEN");
  maintenance->add_option("--for", length_, "the window's length, instead of --end")->type_name("TIME");
  maintenance->add_flag("--clear", clear_, "no window");
  CLI::App* defrag = AddVerb("defrag", "move jobs together so that a gang fits", kDefragFooter);
  AddScheduler(defrag);
  defrag->add_option("-g,--gpus", options_.gpu_count, "of the gang")
      ->required()
      ->check(CLI::Range(1, kMaxGang))
      ->type_name("N");
  defrag->add_flag("--dry-run", options_.dry_run, "only say what would be moved");
}

void CommandLine::AddSchedulerVerbs() {
  AddSubmit();
  AddQueue();
  AddClusterNodes();
}

CommandLine::Outcome CommandLine::InterpretScheduler() {
  if (options_.verb == "submit") {
    if (options_.min_gpus > options_.gpu_count) return UsageError("--min-gpus is more than --gpus");
    if (options_.max_gpus != 0 && options_.max_gpus < options_.gpu_count) {
      return UsageError("--max-gpus is less than --gpus");
    }
  }
  if (options_.verb != "maintenance") return {};
  bool window = !start_.empty() || !end_.empty() || !length_.empty();
  if (clear_ && window) return UsageError("--clear with a window: which of them?");
  if (clear_) return {};
  if (start_.empty() || end_.empty() == length_.empty()) {
    return UsageError("when? --start WHEN with --end WHEN or --for TIME, or --clear");
  }
  Result<int64_t> start = ParseWhen(start_, NowMs());
  if (!start.ok()) return UsageError("--start: " + std::string(start.status().message()));
  Result<int64_t> end = length_.empty() ? ParseWhen(end_, NowMs()) : ParseWhen("+" + length_, *start);
  if (!end.ok()) return UsageError(std::string(end.status().message()));
  if (*end <= *start) return UsageError("the window ends before it begins");
  options_.start_ms = *start;
  options_.end_ms = *end;
  return {};
}

}  // namespace stasis

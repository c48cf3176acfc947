// `stasis ps`: what is on record.
#include <fmt/format.h>

#include <ctime>
#include <map>
#include <set>

#include "cli/verbs.h"
#include "coordinator/node/job.h"
#include "coordinator/node/task.h"
#include "coordinator/node/values.h"

namespace stasis {
namespace {

constexpr size_t kMaxCommandText = 48;

std::string CommandText(const std::vector<std::string>& argv) {
  std::string text;
  for (const std::string& argument : argv) text += (text.empty() ? "" : " ") + argument;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text.size() <= kMaxCommandText ? text : text.substr(0, kMaxCommandText - 3) + "...";
}

std::string StateText(const TaskView& view, const TaskFacts& facts) {
  switch (view.condition) {
    case TaskCondition::kExited:
      return fmt::format("exited ({})", view.exit_code);
    case TaskCondition::kKilled:
      return fmt::format("killed ({})", view.signal);
    case TaskCondition::kPaused:
      return fmt::format("paused ({})", TextField(facts.status, "residency", "?"));
    default:
      return TaskConditionName(view.condition);
  }
}

std::vector<int> GpusOf(const TaskFacts& facts) {
  std::vector<int> now = IntegersField(facts.status, "gpus");
  return now.empty() ? IntegersField(facts.task, "gpus") : now;
}

Json Describe(const TaskPaths& paths, const TaskFacts& facts, const TaskView& view) {
  Json entry = {{"name", paths.name},
                {"state", TaskConditionName(view.condition)},
                {"argv", TextsField(facts.task, "argv")},
                {"created", IntegerField(facts.task, "created")},
                {"device", TextField(facts.task, "device")},
                {"driver", TextField(facts.task, "driver")},
                {"gpus", GpusOf(facts)},
                {"log", paths.File("output.log")},
                {"last_image", view.last_image}};
  if (IsLive(view.condition)) {
    entry["pid"] = IntegerField(facts.process, "pid");
    entry["init_pid"] = IntegerField(facts.process, "init_pid");
    entry["managed"] = HasControlSocket(paths);
  }
  if (view.condition == TaskCondition::kPaused) {
    entry["residency"] = TextField(facts.status, "residency");
    entry["device_bytes"] = IntegerField(facts.status, "device_bytes");
  }
  if (view.condition == TaskCondition::kExited) entry["exit_code"] = view.exit_code;
  if (view.condition == TaskCondition::kKilled) entry["signal"] = view.signal;
  std::string error = TextField(facts.status, "error");
  if (!error.empty()) entry["error"] = error;
  return entry;
}

std::string Line(const std::string& name, const std::string& state, const std::string& pid,
                 const std::string& device, const std::string& gpus, const std::string& age,
                 const std::string& image, const std::string& command) {
  return fmt::format("{:<20} {:<16} {:>8} {:<7} {:<6} {:>7} {:<8} {}\n", name, state, pid, device, gpus, age,
                     image, command);
}

std::string AgeOf(int64_t created) { return AgeText(std::time(nullptr) - created); }
std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }
std::string GpusText(const std::vector<int>& gpus) { return gpus.empty() ? "all" : GpuListText(gpus); }

std::string Row(const TaskPaths& paths, const TaskFacts& facts, const TaskView& view) {
  std::string pid = IsLive(view.condition) ? std::to_string(IntegerField(facts.process, "pid")) : "-";
  return Line(paths.name, StateText(view, facts), pid, TextField(facts.task, "device", "?"),
              GpusText(GpusOf(facts)), AgeOf(IntegerField(facts.task, "created")), OrDash(view.last_image),
              CommandText(TextsField(facts.task, "argv")));
}

// What the ranks have in common of something, else "-".
template <typename Of>
std::string Common(const JobFacts& job, Of of) {
  std::optional<std::string> common;
  for (const RankFacts& rank : job.ranks) {
    if (!rank.on_record) continue;
    std::string here = of(rank);
    if (common && *common != here) return "-";
    common = here;
  }
  return common.value_or("-");
}

std::string ResidencyOf(const RankFacts& rank) { return TextField(rank.facts.status, "residency", "?"); }

std::string JobStateText(const JobFacts& job, const JobView& view) {
  if (view.name != TaskConditionName(TaskCondition::kPaused)) return view.text;
  std::string residency = Common(job, ResidencyOf);
  return residency == "-" ? view.text : fmt::format("{} ({})", view.name, residency);
}

std::string JobRow(const JobFacts& job, const JobView& view) {
  std::string ranks = fmt::format("{} rank{}", job.ranks.size(), job.ranks.size() == 1 ? "" : "s");
  std::string device =
      Common(job, [](const RankFacts& rank) { return TextField(rank.facts.task, "device", "?"); });
  std::string gpus = Common(job, [](const RankFacts& rank) { return GpusText(GpusOf(rank.facts)); });
  return Line(job.record.name, JobStateText(job, view), ranks, device, gpus,
              AgeOf(static_cast<int64_t>(job.record.created)), OrDash(job.last_image),
              CommandText(job.record.argv));
}

std::string RankRow(const JobFacts& job, int rank) {
  const RankFacts& facts = job.ranks[static_cast<size_t>(rank)];
  std::string name = "  " + job.record.TaskOf(rank);
  if (!facts.on_record) return Line(name, "missing", "-", "-", "-", "-", "-", "");
  std::string pid =
      IsLive(facts.view.condition) ? std::to_string(IntegerField(facts.facts.process, "pid")) : "-";
  return Line(name, StateText(facts.view, facts.facts), pid, TextField(facts.facts.task, "device", "?"),
              GpusText(GpusOf(facts.facts)), "", "-", "on " + job.record.NodeOf(rank).name);
}

Json DescribeRank(const JobFacts& job, int rank, const Context& context) {
  const RankFacts& facts = job.ranks[static_cast<size_t>(rank)];
  Json entry = {{"name", job.record.TaskOf(rank)}, {"state", "missing"}};
  if (facts.on_record) {
    entry = Describe(TaskPaths(context.folders, job.record.TaskOf(rank)), facts.facts, facts.view);
    entry.erase("last_image");  // of use together with those of the other ranks only
  }
  entry["rank"] = rank;
  entry["node"] = job.record.NodeOf(rank).name;
  return entry;
}

Json DescribeJob(const JobFacts& job, const JobView& view, const Context& context) {
  Json ranks = Json::array();
  for (int rank = 0; rank < job.record.ranks(); rank++) ranks.push_back(DescribeRank(job, rank, context));
  Json entry = {{"name", job.record.name},
                {"state", view.name},
                {"argv", job.record.argv},
                {"created", job.record.created},
                {"master_port", job.record.master_port},
                {"last_image", job.last_image},
                {"live", view.live},
                {"ranks", ranks}};
  if (view.name == TaskConditionName(TaskCondition::kExited)) entry["exit_code"] = view.exit_code;
  if (view.name == TaskConditionName(TaskCondition::kKilled)) entry["signal"] = view.signal;
  if (view.failed_rank >= 0) entry["failed_rank"] = view.failed_rank;
  return entry;
}

bool IsListed(TaskCondition condition, const Options& options) {
  return options.all || !options.name.empty() || IsLive(condition) ||
         condition == TaskCondition::kCheckpointed;
}

bool IsListed(const JobView& view, const Options& options) {
  bool checkpointed = view.kind == JobCondition::kSame && view.condition == TaskCondition::kCheckpointed;
  return options.all || !options.name.empty() || view.live || checkpointed;
}

struct Listing {
  Json tasks = Json::array();
  Json jobs = Json::array();
  std::map<std::string, std::string> rows;  // by name
};

void ListJob(const std::string& name, const Options& options, Context& context, Listing* listing) {
  Result<JobFacts> job = ReadJobFacts(context.folders, name);
  if (!job.ok()) {
    if (job.status().code() != StatusCode::kNotFound) context.reporter.Note(job.status().ToString());
    return;
  }
  JobView view = DeriveJobView(job->ranks);
  if (!IsListed(view, options)) return;
  listing->jobs.push_back(DescribeJob(*job, view, context));
  std::string rows = JobRow(*job, view);
  bool show_ranks = options.show_ranks || !options.name.empty();
  for (int rank = 0; show_ranks && rank < job->record.ranks(); rank++) rows += RankRow(*job, rank);
  listing->rows[name] = rows;
}

void ListTask(const std::string& name, const Options& options, Context& context, Listing* listing) {
  TaskPaths paths(context.folders, name);
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  if (!facts.ok()) {
    // Being made or removed at this moment, or somebody else's.
    if (facts.status().code() != StatusCode::kNotFound) context.reporter.Note(facts.status().ToString());
    return;
  }
  TaskView view = DeriveCondition(*facts);
  if (!IsListed(view.condition, options)) return;
  listing->tasks.push_back(Describe(paths, *facts, view));
  listing->rows[name] = Row(paths, *facts, view);
}

// The tasks of ranks are shown with their job.
std::set<std::string> TasksOfJobs(const std::vector<std::string>& jobs, const Folders& folders) {
  std::set<std::string> tasks;
  for (const std::string& name : jobs) {
    Result<JobRecord> record = ReadJobRecord(folders.state, name);
    for (int rank = 0; record.ok() && rank < record->ranks(); rank++) tasks.insert(record->TaskOf(rank));
  }
  return tasks;
}

void ListAll(const Options& options, Context& context, Listing* listing) {
  std::vector<std::string> jobs = ListJobs(context.folders.state);
  std::set<std::string> ranks = TasksOfJobs(jobs, context.folders);
  for (const std::string& name : jobs) ListJob(name, options, context, listing);
  for (const std::string& name : ListTasks(context.folders)) {
    if (ranks.count(name) == 0) ListTask(name, options, context, listing);
  }
}

Status ListOne(const Options& options, Context& context, Listing* listing) {
  RETURN_IF_ERROR(CheckTaskName(options.name));
  context.reporter.set_task(options.name);
  if (IsJob(context.folders, options.name)) {
    RETURN_IF_ERROR(ReadJobFacts(context.folders, options.name).status());
    ListJob(options.name, options, context, listing);
    return Status();
  }
  RETURN_IF_ERROR(ReadTaskFacts(TaskPaths(context.folders, options.name)).status());
  ListTask(options.name, options, context, listing);
  return Status();
}

}  // namespace

int PsVerb(const Options& options, Context& context) {
  Listing listing;
  Status status;
  if (options.name.empty())
    ListAll(options, context, &listing);
  else
    status = ListOne(options, context, &listing);
  if (!status.ok()) return context.reporter.Fail(status);
  std::string table = Line("NAME", "STATE", "PID", "DEVICE", "GPUS", "AGE", "IMAGE", "COMMAND");
  for (const auto& [name, rows] : listing.rows) table += rows;
  return context.reporter.Done({{"tasks", listing.tasks}, {"jobs", listing.jobs}}, table);
}

}  // namespace stasis

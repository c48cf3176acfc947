// `stasis ps`, `stasis logs`: what is on record.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>

#include "cli/foreground.h"
#include "cli/task.h"
#include "cli/values.h"
#include "cli/verbs.h"

namespace stasis {
namespace {

constexpr size_t kMaxCommandText = 48;

std::string CommandText(const Json& task) {
  std::string text;
  for (const std::string& argument : TextsField(task, "argv")) text += (text.empty() ? "" : " ") + argument;
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

std::string Row(const TaskPaths& paths, const TaskFacts& facts, const TaskView& view) {
  std::string pid = IsLive(view.condition) ? std::to_string(IntegerField(facts.process, "pid")) : "-";
  std::string gpus = GpuListText(GpusOf(facts));
  int64_t age = std::time(nullptr) - IntegerField(facts.task, "created");
  return fmt::format("{:<20} {:<16} {:>8} {:<7} {:<6} {:>7} {:<8} {}\n", paths.name, StateText(view, facts),
                     pid, TextField(facts.task, "device", "?"), gpus.empty() ? "all" : gpus, AgeText(age),
                     view.last_image.empty() ? "-" : view.last_image, CommandText(facts.task));
}

bool IsListed(TaskCondition condition, bool all) {
  return all || IsLive(condition) || condition == TaskCondition::kCheckpointed;
}

// The one task that a verb is about.
Result<TaskFacts> FindTask(const Options& options, Context& context, TaskPaths* paths) {
  RETURN_IF_ERROR(CheckTaskName(options.name));
  context.reporter.set_task(options.name);
  *paths = TaskPaths(context.folders, options.name);
  return ReadTaskFacts(*paths);
}

}  // namespace

int PsVerb(const Options& options, Context& context) {
  Json entries = Json::array();
  std::string table = fmt::format("{:<20} {:<16} {:>8} {:<7} {:<6} {:>7} {:<8} {}\n", "NAME", "STATE", "PID",
                                  "DEVICE", "GPUS", "AGE", "IMAGE", "COMMAND");
  for (const std::string& name : ListTasks(context.folders)) {
    TaskPaths paths(context.folders, name);
    Result<TaskFacts> facts = ReadTaskFacts(paths);
    if (!facts.ok()) {
      // Being made or removed at this moment, or somebody else's.
      if (facts.status().code() != StatusCode::kNotFound) context.reporter.Note(facts.status().ToString());
      continue;
    }
    TaskView view = DeriveCondition(*facts);
    if (!IsListed(view.condition, options.all)) continue;
    entries.push_back(Describe(paths, *facts, view));
    table += Row(paths, *facts, view);
  }
  return context.reporter.Done({{"tasks", entries}}, table);
}

int LogsVerb(const Options& options, Context& context) {
  TaskPaths paths(context.folders, "");
  Result<TaskFacts> facts = FindTask(options, context, &paths);
  if (!facts.ok()) return context.reporter.Fail(facts.status());
  std::string path = paths.File("output.log");
  if (context.reporter.json()) {
    Result<std::string> text = ReadFile(path);
    if (!text.ok()) return context.reporter.Fail(text.status());
    return context.reporter.Done({{"log", path}, {"output", *text}}, "");
  }
  Result<LogFollower> log = LogFollower::Open(path, 0);
  if (!log.ok()) return context.reporter.Fail(log.status());
  if (!options.follow || !facts->alive) {
    Result<bool> copied = log->Pump(STDOUT_FILENO);
    return copied.ok() ? kExitOk : context.reporter.Fail(copied.status());
  }
  Result<TaskFollower> follower = TaskFollower::Create(paths);
  if (!follower.ok()) return context.reporter.Fail(follower.status());
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return context.reporter.Fail(signals.status());
  FollowOptions follow;
  follow.stop_when_unread = true;
  // Who only looks must not end the task by leaving.
  follow.on_signal = [](int signal) { _exit(128 + signal); };
  Result<FollowResult> result = follower->Follow(IdentityOf(facts->process), *signals, follow);
  bool unread = !result.ok() && result.status().code() == StatusCode::kPeerDied;
  return result.ok() || unread ? kExitOk : context.reporter.Fail(result.status());
}

}  // namespace stasis

#include "coordinator/agent/picture.h"

#include <cmath>

namespace stasis {
namespace {

constexpr struct {
  v1::Condition condition;
  const char* name;
} kNames[] = {
    {v1::CONDITION_CREATED, "created"},     {v1::CONDITION_RUNNING, "running"},
    {v1::CONDITION_PAUSED, "paused"},       {v1::CONDITION_CHECKPOINTING, "checkpointing"},
    {v1::CONDITION_RESTORING, "restoring"}, {v1::CONDITION_IN_DOUBT, "in-doubt"},
    {v1::CONDITION_STRANDED, "stranded"},   {v1::CONDITION_EXITED, "exited"},
    {v1::CONDITION_KILLED, "killed"},       {v1::CONDITION_CHECKPOINTED, "checkpointed"},
    {v1::CONDITION_MIXED, "mixed"},         {v1::CONDITION_BROKEN, "broken"},
    {v1::CONDITION_MIGRATED, "migrated"},
};

v1::Condition ConditionOf(const JobView& view) {
  switch (view.kind) {
    case JobCondition::kMixed:
      return v1::CONDITION_MIXED;
    case JobCondition::kBroken:
      return v1::CONDITION_BROKEN;
    case JobCondition::kSame:
      break;
  }
  return stasis::ConditionOf(view.condition);
}

int64_t Microseconds(double seconds) { return std::llround(seconds * 1e6); }

void DescribePlace(const TaskFacts& facts, v1::Rank* rank) {
  std::vector<int> gpus = IntegersField(facts.status, "gpus");
  if (gpus.empty()) gpus = IntegersField(facts.task, "gpus");
  for (int gpu : gpus) rank->add_gpus(static_cast<uint32_t>(gpu));
  rank->set_device(TextField(facts.task, "device"));
  rank->set_driver(TextField(facts.task, "driver"));
}

void DescribeProcess(const TaskPaths& paths, const TaskFacts& facts, v1::Rank* rank) {
  rank->set_pid(static_cast<int>(IntegerField(facts.process, "pid")));
  rank->set_init_pid(static_cast<int>(IntegerField(facts.process, "init_pid")));
  rank->set_managed(HasControlSocket(paths));
}

// Its processes are gone, and whether an image brings them back is about to be known (verdict.h).
bool GhostDecides(const TaskFacts& facts, const TaskView& view) {
  return view.condition == TaskCondition::kKilled && facts.exit.is_null() && facts.ghost_listens &&
         TextField(facts.status, "state") == "checkpointing";
}

void DescribeState(const TaskFacts& facts, const TaskView& view, v1::Rank* rank) {
  rank->set_condition(GhostDecides(facts, view) ? v1::CONDITION_CHECKPOINTING : ConditionOf(view.condition));
  if (view.condition == TaskCondition::kPaused) {
    rank->set_residency(TextField(facts.status, "residency"));
    rank->set_device_bytes(static_cast<uint64_t>(IntegerField(facts.status, "device_bytes")));
  }
  if (view.condition == TaskCondition::kExited) rank->set_exit_code(view.exit_code);
  if (view.condition == TaskCondition::kKilled) rank->set_signal(view.signal);
  if (!IsLive(view.condition)) rank->set_ended_us(Microseconds(EndTimeOf(facts)));
  rank->set_error(TextField(facts.status, "error"));
  rank->set_cancelled(TextField(facts.status, "state") == "ended" &&
                      TextField(facts.status, "ended_by") == "cancel");
}

v1::Rank DescribeRank(const TaskPaths& paths, const TaskFacts& facts, const TaskView& view) {
  v1::Rank rank;
  rank.set_task(paths.name);
  rank.set_log(paths.File("output.log"));
  rank.set_last_image(view.last_image);
  rank.set_created_ms(IntegerField(facts.task, "created") * 1000);
  DescribePlace(facts, &rank);
  if (IsLive(view.condition)) DescribeProcess(paths, facts, &rank);
  DescribeState(facts, view, &rank);
  return rank;
}

std::string TextOf(const TaskView& view) {
  std::string name = TaskConditionName(view.condition);
  if (view.condition == TaskCondition::kExited) return name + " (" + std::to_string(view.exit_code) + ")";
  if (view.condition == TaskCondition::kKilled) return name + " (" + std::to_string(view.signal) + ")";
  return name;
}

// An end that was asked for; "" where there is none.
std::string EndedBy(const TaskFacts& facts, const TaskView& view) {
  bool ended = !IsLive(view.condition) && TextField(facts.status, "state") == "ended";
  return ended ? TextField(facts.status, "ended_by") : "";
}

std::string EndedBy(const JobFacts& facts) {
  for (const RankFacts& rank : facts.ranks) {
    std::string reason = rank.on_record ? EndedBy(rank.facts, rank.view) : "";
    if (!reason.empty()) return reason;
  }
  return "";
}

int64_t LatestEndMs(const v1::Job& job) {
  int64_t latest = 0;
  for (const v1::Rank& rank : job.ranks()) latest = std::max(latest, rank.ended_us() / 1000);
  return latest;
}

}  // namespace

const char* ConditionName(v1::Condition condition) {
  for (const auto& each : kNames) {
    if (each.condition == condition) return each.name;
  }
  return "unknown";
}

v1::Condition ConditionOf(TaskCondition condition) {
  for (const auto& each : kNames) {
    if (std::string_view(each.name) == TaskConditionName(condition)) return each.condition;
  }
  return v1::CONDITION_UNSPECIFIED;
}

v1::Job JobOfRank(const v1::Job& job, const v1::Rank& rank) {
  v1::Job alone;
  alone.set_name(rank.task());
  *alone.add_ranks() = rank;
  alone.set_condition(rank.condition());
  alone.set_text(ConditionName(rank.condition()));
  *alone.mutable_argv() = job.argv();
  alone.set_created_ms(rank.created_ms());
  alone.set_live(rank.init_pid() > 0);
  alone.set_ended_ms(rank.ended_us() / 1000);
  alone.set_exit_code(rank.exit_code());
  alone.set_signal(rank.signal());
  alone.set_last_image(rank.last_image());
  alone.set_device(rank.device());
  alone.set_uid(job.uid());
  return alone;
}

v1::Job PictureOfTask(const TaskPaths& paths, const TaskFacts& facts, const TaskView& view) {
  v1::Job job;
  job.set_name(paths.name);
  *job.add_ranks() = DescribeRank(paths, facts, view);
  job.set_condition(job.ranks(0).condition());
  job.set_text(GhostDecides(facts, view) ? ConditionName(job.condition()) : TextOf(view));
  for (const std::string& argument : TextsField(facts.task, "argv")) job.add_argv(argument);
  job.set_created_ms(job.ranks(0).created_ms());
  job.set_live(IsLive(view.condition) || GhostDecides(facts, view));
  job.set_ended_ms(LatestEndMs(job));
  job.set_exit_code(job.ranks(0).exit_code());
  job.set_signal(job.ranks(0).signal());
  job.set_ended_by(EndedBy(facts, view));
  job.set_last_image(view.last_image);
  job.set_device(job.ranks(0).device());
  job.set_uid(static_cast<uint32_t>(IntegerField(facts.task, "uid")));
  return job;
}

v1::Job PictureOfJob(const Folders& folders, const JobFacts& facts, const JobView& view) {
  v1::Job job;
  const JobRecord& record = facts.record;
  job.set_name(record.name);
  job.set_ranked(true);
  for (int number = 0; number < record.ranks(); number++) {
    const RankFacts& each = facts.ranks[static_cast<size_t>(number)];
    v1::Rank* rank = job.add_ranks();
    if (each.on_record) *rank = DescribeRank({folders, record.TaskOf(number)}, each.facts, each.view);
    rank->set_missing(!each.on_record);
    rank->set_task(record.TaskOf(number));
    rank->set_rank(static_cast<uint32_t>(number));
    rank->set_node(record.NodeOf(number).name);
    if (!each.on_record || !job.device().empty()) continue;
    job.set_device(rank->device());
    job.set_uid(static_cast<uint32_t>(IntegerField(each.facts.task, "uid")));
  }
  job.set_condition(ConditionOf(view));
  job.set_text(view.text);
  for (const std::string& argument : record.argv) job.add_argv(argument);
  job.set_created_ms(static_cast<int64_t>(record.created) * 1000);
  job.set_live(view.live);
  if (!view.live) {
    job.set_ended_ms(LatestEndMs(job));
    job.set_ended_by(EndedBy(facts));
  }
  if (job.condition() == v1::CONDITION_EXITED) job.set_exit_code(view.exit_code);
  if (job.condition() == v1::CONDITION_KILLED) job.set_signal(view.signal);
  job.set_last_image(facts.last_image);
  job.set_master_port(static_cast<uint32_t>(record.master_port));
  if (view.failed_rank >= 0) job.set_failed_rank(static_cast<uint32_t>(view.failed_rank));
  return job;
}

}  // namespace stasis

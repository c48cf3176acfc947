#include "coordinator/node/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>

namespace stasis {
namespace {

RankFacts ReadRank(const Folders& folders, const std::string& name, Status* failure) {
  RankFacts rank;
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(folders, name));
  if (facts.ok()) {
    rank.on_record = true;
    rank.view = DeriveCondition(*facts);
    rank.facts = *std::move(facts);
  } else if (facts.status().code() != StatusCode::kNotFound) {
    *failure = facts.status();
  }
  return rank;
}

bool HasEndedWell(const RankFacts& rank) {
  return rank.on_record && rank.view.condition == TaskCondition::kExited && rank.view.exit_code == 0;
}

bool IsLiveRank(const RankFacts& rank) { return rank.on_record && IsLive(rank.view.condition); }

// The first in time; where that is not known, the lowest.
int FirstFailed(const std::vector<RankFacts>& ranks) {
  int first = -1;
  for (size_t i = 0; i < ranks.size(); i++) {
    if (!ranks[i].on_record || !HasFailed(ranks[i].view)) continue;
    bool earlier =
        first < 0 || EndTimeOf(ranks[i].facts) < EndTimeOf(ranks[static_cast<size_t>(first)].facts);
    if (earlier) first = static_cast<int>(i);
  }
  return first;
}

std::string EndText(const TaskView& view) {
  if (view.condition == TaskCondition::kExited) return fmt::format("exited ({})", view.exit_code);
  if (view.condition == TaskCondition::kKilled) return fmt::format("killed ({})", view.signal);
  return TaskConditionName(view.condition);
}

// "2 paused, 1 running".
std::string CountsText(const std::vector<RankFacts>& ranks) {
  std::map<std::string, int> counts;
  for (const RankFacts& rank : ranks) {
    counts[rank.on_record ? TaskConditionName(rank.view.condition) : "missing"]++;
  }
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  return text;
}

// The condition that all of `ranks` are in for which `counts` is true.
template <typename Counts>
std::optional<TaskCondition> CommonCondition(const std::vector<RankFacts>& ranks, Counts counts) {
  std::optional<TaskCondition> common;
  for (const RankFacts& rank : ranks) {
    if (!counts(rank)) continue;
    if (!rank.on_record || (common && *common != rank.view.condition)) return std::nullopt;
    common = rank.view.condition;
  }
  return common;
}

void DescribeLive(const std::vector<RankFacts>& ranks, JobView* view) {
  size_t gone = 0, live = 0;
  for (const RankFacts& rank : ranks) {
    gone += !rank.on_record;
    live += IsLiveRank(rank);
  }
  if (view->failed_rank >= 0 || gone > 0) {
    view->kind = JobCondition::kBroken;
    view->text = view->failed_rank >= 0 ? fmt::format("broken (rank {})", view->failed_rank)
                                        : "broken: " + CountsText(ranks);
    return;
  }
  std::optional<TaskCondition> common =
      CommonCondition(ranks, [](const RankFacts& rank) { return !HasEndedWell(rank); });
  if (!common) {
    view->kind = JobCondition::kMixed;
    view->text = CountsText(ranks);
    return;
  }
  view->condition = *common;
  view->text = TaskConditionName(*common);
  if (live < ranks.size()) view->text += fmt::format(" ({} of {})", live, ranks.size());
}

void DescribeEnded(const std::vector<RankFacts>& ranks, JobView* view) {
  if (view->failed_rank >= 0) {
    const TaskView& first = ranks[static_cast<size_t>(view->failed_rank)].view;
    view->condition = first.condition;
    view->exit_code = first.exit_code;
    view->signal = first.signal;
    view->text = EndText(first);
    return;
  }
  std::optional<TaskCondition> common = CommonCondition(ranks, [](const RankFacts&) { return true; });
  if (!common) {
    view->kind = JobCondition::kMixed;
    view->text = CountsText(ranks);
    return;
  }
  view->condition = *common;
  view->text = *common == TaskCondition::kExited ? "exited (0)" : TaskConditionName(*common);
}

}  // namespace

std::string JobFolder(const Folders& folders, std::string_view job) {
  return folders.state + "/jobs/" + std::string(job);
}

std::string RankName(std::string_view job, int rank) { return fmt::format("{}.{}", job, rank); }

bool IsJob(const Folders& folders, const std::string& name) {
  return CheckTaskName(name).ok() && access((JobFolder(folders, name) + "/job.json").c_str(), F_OK) == 0;
}

std::optional<RankPlace> PlaceOf(const Json& task) {
  RankPlace place{TextField(task, "job"), static_cast<int>(IntegerField(task, "rank", -1)),
                  static_cast<int>(IntegerField(task, "ranks"))};
  if (place.job.empty() || place.rank < 0) return std::nullopt;
  return place;
}

Status RefuseRank(const TaskPaths& paths, const Json& task, std::string_view verb) {
  std::optional<RankPlace> place = PlaceOf(task);
  if (!place) return Status();
  return Status(StatusCode::kFailedPrecondition,
                fmt::format("{} is rank {} of the job {}: `{}` is for all of its ranks or for none",
                            paths.name, place->rank, place->job, verb));
}

std::string RankRemedy(const Json& task, std::string_view verb) {
  std::optional<RankPlace> place = PlaceOf(task);
  return place ? fmt::format("`stasis {} {}` does it", verb, place->job) : "";
}

Result<JobFacts> ReadJobFacts(const Folders& folders, const std::string& job) {
  RETURN_IF_ERROR(CheckTaskName(job));
  JobFacts facts;
  ASSIGN_OR_RETURN(facts.record, ReadJobRecord(folders.state, job));
  Status failure;
  for (int rank = 0; rank < facts.record.ranks(); rank++) {
    facts.ranks.push_back(ReadRank(folders, facts.record.TaskOf(rank), &failure));
  }
  RETURN_IF_ERROR(failure);
  ASSIGN_OR_RETURN(std::vector<std::string> images, ListJobImageIds(folders.state, job));
  if (!images.empty()) facts.last_image = images.back();
  return facts;
}

bool HasFailed(const TaskView& view) {
  return view.condition == TaskCondition::kKilled ||
         (view.condition == TaskCondition::kExited && view.exit_code != 0);
}

double EndTimeOf(const TaskFacts& facts) { return NumberField(facts.exit, "time"); }

JobView DeriveJobView(const std::vector<RankFacts>& ranks) {
  JobView view;
  view.failed_rank = FirstFailed(ranks);
  for (const RankFacts& rank : ranks) view.live = view.live || IsLiveRank(rank);
  if (view.live)
    DescribeLive(ranks, &view);
  else
    DescribeEnded(ranks, &view);
  if (view.kind == JobCondition::kMixed) view.name = "mixed";
  if (view.kind == JobCondition::kBroken) view.name = "broken";
  if (view.kind == JobCondition::kSame) view.name = TaskConditionName(view.condition);
  return view;
}

}  // namespace stasis

#include "cli/stay.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "coordinator/node/job.h"

namespace stasis {
namespace {

std::string HowItEnded(const RankEnd& end) {
  if (end.view.condition == TaskCondition::kExited) return fmt::format("exited with {}", end.view.exit_code);
  return fmt::format("was ended by signal {} ({})", end.view.signal, strsignal(end.view.signal));
}

int ExitCodeOfRank(const TaskView& view) {
  return view.condition == TaskCondition::kExited ? view.exit_code : 128 + view.signal;
}

std::string UnmanagedText(const std::string& name) {
  return name + " was unmanaged: it made no CUDA call that Stasis saw, so it could not have been paused";
}

std::string CheckpointedText(const std::string& name, const std::string& image) {
  return fmt::format("{0} was stopped by checkpoint {1}; `stasis restore {0}` brings it back", name, image);
}

}  // namespace

int ReportTaskEnd(const TaskEnd& end, Reporter& reporter) {
  const TaskView& view = end.view;
  Json fields = end.fields;
  fields["state"] = TaskConditionName(view.condition);
  fields["managed"] = end.managed;
  fields["log"] = end.log;
  int exit_code = view.exit_code;
  switch (view.condition) {
    case TaskCondition::kExited:
      fields["exit_code"] = view.exit_code;
      break;
    case TaskCondition::kCheckpointed:
      exit_code = kExitCheckpointed;
      fields["image"] = view.last_image;
      reporter.Note(CheckpointedText(end.task, view.last_image));
      break;
    default:
      exit_code = 128 + view.signal;
      fields["signal"] = view.signal;
      reporter.Note(
          fmt::format("{} was ended by signal {} ({})", end.task, view.signal, strsignal(view.signal)));
  }
  bool ended_itself = view.condition != TaskCondition::kCheckpointed;
  if (ended_itself && end.expect_managed && !end.managed) reporter.Note(UnmanagedText(end.task));
  return reporter.DoneWith(exit_code, fields, "");
}

Stay::Stay(StayOfJob job, Reporter& reporter)
    : job_(std::move(job)), reporter_(reporter), ends_(job_.ranks.size()) {}

size_t Stay::Left() const {
  return static_cast<size_t>(std::count(ends_.begin(), ends_.end(), std::nullopt));
}

void Stay::OnSignal(int signal) {
  asked_ = true;
  job_.send(signal);
}

void Stay::OnEnd(const RankEnd& end) {
  ends_[static_cast<size_t>(end.rank)] = end;
  if (!HasFailed(end.view) || first_) return;
  first_ = end;
  size_t left = Left();
  TellFirst(end, left);
  if (left == 0) return;
  // They have been told by the user, and may be doing as told.
  if (!asked_) job_.send(SIGTERM);
  job_.set_alarm(job_.grace);
}

void Stay::OnAlarm() {
  reporter_.Note(fmt::format("{} of {} still there: killing", Left(), job_.name));
  job_.send(SIGKILL);
}

void Stay::TellFirst(const RankEnd& end, size_t left) {
  if (end.cancelled) {
    reporter_.Note(job_.name + " was cancelled");
    return;
  }
  std::string others = left == 0   ? ""
                       : left == 1 ? ": ending the other one"
                                   : fmt::format(": ending the other {}", left);
  reporter_.Note(fmt::format("rank {} of {} {}{}", end.rank, job_.name, HowItEnded(end), others));
}

bool Stay::AllAre(TaskCondition condition) const {
  return std::all_of(ends_.begin(), ends_.end(), [&](const std::optional<RankEnd>& end) {
    return end && end->view.condition == condition;
  });
}

Json Stay::RankJson(const RankEnd& end) const {
  const StayOfJob::Rank& of = job_.ranks[static_cast<size_t>(end.rank)];
  Json rank = {{"rank", end.rank},
               {"task", of.task},
               {"state", TaskConditionName(end.view.condition)},
               {"managed", end.managed},
               {"log", of.log}};
  if (end.view.condition == TaskCondition::kExited) rank["exit_code"] = end.view.exit_code;
  if (end.view.condition == TaskCondition::kKilled) rank["signal"] = end.view.signal;
  return rank;
}

void Stay::TellUnmanaged() {
  bool managed = std::any_of(ends_.begin(), ends_.end(), [](const auto& end) { return end && end->managed; });
  if (!managed && job_.expect_managed) reporter_.Note(UnmanagedText(job_.name));
}

int Stay::ReportCheckpointed(Json fields) {
  std::string image = job_.last_image();
  fields["state"] = TaskConditionName(TaskCondition::kCheckpointed);
  fields["image"] = image;
  reporter_.Note(CheckpointedText(job_.name, image));
  return reporter_.DoneWith(kExitCheckpointed, fields, "");
}

int Stay::Report() {
  Json fields = job_.fields;
  fields["job"] = job_.name;
  fields["ranks"] = Json::array();
  for (const std::optional<RankEnd>& end : ends_) fields["ranks"].push_back(RankJson(*end));
  TellUnmanaged();
  if (AllAre(TaskCondition::kCheckpointed)) return ReportCheckpointed(fields);
  TaskView view = first_ ? first_->view : TaskView{TaskCondition::kExited, 0, 0, ""};
  fields["state"] = TaskConditionName(view.condition);
  if (view.condition == TaskCondition::kExited) fields["exit_code"] = view.exit_code;
  if (view.condition == TaskCondition::kKilled) fields["signal"] = view.signal;
  if (first_) fields["failed_rank"] = first_->rank;
  return reporter_.DoneWith(ExitCodeOfRank(view), fields, "");
}

}  // namespace stasis

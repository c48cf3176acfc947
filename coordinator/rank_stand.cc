#include "coordinator/rank_stand.h"

#include <algorithm>

#include "base/files.h"
#include "base/process.h"
#include "coordinator/meeting.h"

namespace stasis {
namespace {

std::string Text(const Json& object, const char* key) {
  auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string HasOrHave(const std::vector<int>& ranks) { return ranks.size() == 1 ? " has" : " have"; }
std::string IsOrAre(const std::vector<int>& ranks) { return ranks.size() == 1 ? " is" : " are"; }

Status CheckNoneEnded(const std::string& job, const std::vector<RankStand>& stands, std::string* remedy) {
  if (AllAt(stands, RankStand::kEnded))
    return Status(StatusCode::kFailedPrecondition, "job " + job + " has ended");
  std::vector<int> ended = RanksAt(stands, RankStand::kEnded);
  if (ended.empty()) return Status();
  *remedy = "`stasis cancel " + job + "` ends the others; `stasis restore " + job +
            "` then brings all back from its last image";
  return Status(StatusCode::kFailedPrecondition,
                RanksText(ended) + " of job " + job + HasOrHave(ended) + " ended");
}

}  // namespace

const char* RankStandName(RankStand stand) {
  switch (stand) {
    case RankStand::kRunning:
      return "running";
    case RankStand::kPaused:
      return "paused";
    case RankStand::kInDoubt:
      return "in-doubt";
    case RankStand::kEnded:
      return "ended";
    case RankStand::kBusy:
      return "busy";
  }
  return "unknown";
}

RankStand StandOf(const Json& status) {
  if (!Text(status, "operation").empty()) return RankStand::kBusy;
  std::string phase = Text(status, "phase"), state = Text(status, "state");
  if (phase == "absent" || state == "ended") return RankStand::kEnded;
  if (state == "in-doubt") return RankStand::kInDoubt;
  return phase == "running" || state == "running" ? RankStand::kRunning : RankStand::kPaused;
}

bool HasEnded(const std::string& task_folder) {
  Result<std::string> text = ReadFile(task_folder + "/process.json");
  Result<Json> process = text.ok() ? ParseJsonObject(*text) : Result<Json>(text.status());
  if (!process.ok()) return false;
  JsonFields fields(*process, "process.json");
  ProcessIdentity identity;
  identity.pid = static_cast<pid_t>(fields.Number("init_pid", INT32_MAX));
  identity.start_time = fields.Number("init_start_time");
  identity.boot_id = fields.String("boot_id");
  return fields.ok() && !IsAlive(identity);
}

std::vector<int> RanksAt(const std::vector<RankStand>& stands, RankStand stand) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < stands.size(); ++rank) {
    if (stands[rank] == stand) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

bool AllAt(const std::vector<RankStand>& stands, RankStand stand) {
  return std::all_of(stands.begin(), stands.end(), [&](RankStand each) { return each == stand; });
}

Status CheckTogether(const std::string& job, const std::vector<RankStand>& stands, bool paused_too,
                     std::string* remedy) {
  RETURN_IF_ERROR(CheckNoneEnded(job, stands, remedy));
  if (AllAt(stands, RankStand::kRunning)) return Status();
  if (AllAt(stands, RankStand::kPaused)) {
    if (paused_too) return Status();
    return Status(StatusCode::kFailedPrecondition, "job " + job + " is already paused");
  }
  std::vector<int> paused = RanksAt(stands, RankStand::kPaused), doubt = RanksAt(stands, RankStand::kInDoubt);
  const std::vector<int>& some = doubt.empty() ? paused : doubt;
  *remedy = "`stasis resume " + job + "` lets all of them run on";
  return Status(StatusCode::kFailedPrecondition, RanksText(some) + " of job " + job + IsOrAre(some) +
                                                     (doubt.empty() ? " paused" : " in doubt") +
                                                     ", the others are not");
}

Status CheckResumable(const std::string& job, const std::vector<RankStand>& stands, std::string* remedy) {
  RETURN_IF_ERROR(CheckNoneEnded(job, stands, remedy));
  if (!AllAt(stands, RankStand::kRunning)) return Status();
  return Status(StatusCode::kFailedPrecondition, "job " + job + " is running");
}

Status CheckEnded(const std::string& job, const std::vector<RankStand>& stands, std::string* remedy) {
  if (AllAt(stands, RankStand::kEnded)) return Status();
  std::vector<int> alive;
  for (size_t rank = 0; rank < stands.size(); ++rank) {
    if (stands[rank] != RankStand::kEnded) alive.push_back(static_cast<int>(rank));
  }
  *remedy = "end it first: stasis cancel " + job;
  std::string who = alive.size() == stands.size() ? "" : " (" + RanksText(alive) + ")";
  return Status(StatusCode::kAlreadyExists, "job " + job + " is alive" + who);
}

}  // namespace stasis

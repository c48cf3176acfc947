#include "cli/ps_table.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "coordinator/agent/picture.h"
#include "coordinator/node/text.h"
#include "coordinator/node/values.h"

namespace stasis {
namespace {

constexpr size_t kMaxCommandText = 48;

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }
std::string OrUnknown(const std::string& text) { return text.empty() ? "?" : text; }
std::vector<int> GpusOf(const v1::Rank& rank) { return {rank.gpus().begin(), rank.gpus().end()}; }

std::string GpusText(const v1::Rank& rank) { return rank.gpus().empty() ? "all" : GpuListText(GpusOf(rank)); }

bool LivesNow(const v1::Rank& rank) { return rank.init_pid() > 0; }

std::string RankStateText(const v1::Rank& rank) {
  std::string name = ConditionName(rank.condition());
  switch (rank.condition()) {
    case v1::CONDITION_EXITED:
      return fmt::format("{} ({})", name, rank.exit_code());
    case v1::CONDITION_KILLED:
      return fmt::format("{} ({})", name, rank.signal());
    case v1::CONDITION_PAUSED:
      return fmt::format("{} ({})", name, OrUnknown(rank.residency()));
    default:
      return name;
  }
}

void DescribeEnd(v1::Condition condition, int exit_code, int signal, Json* entry) {
  if (condition == v1::CONDITION_EXITED) (*entry)["exit_code"] = exit_code;
  if (condition == v1::CONDITION_KILLED) (*entry)["signal"] = signal;
}

// The task of a rank; of a ranked job without its last image, which is of use together with the others only.
Json DescribeTask(const v1::Job& job, const v1::Rank& rank) {
  if (rank.missing()) return {{"name", rank.task()}, {"state", "missing"}};
  Json entry = {{"name", rank.task()},
                {"state", ConditionName(rank.condition())},
                {"argv", std::vector<std::string>(job.argv().begin(), job.argv().end())},
                {"created", rank.created_ms() / 1000},
                {"device", rank.device()},
                {"driver", rank.driver()},
                {"gpus", GpusOf(rank)},
                {"log", rank.log()}};
  if (!job.ranked()) entry["last_image"] = job.last_image();
  if (!job.ranked() && !job.moved_to().empty()) entry["moved_to"] = job.moved_to();
  if (LivesNow(rank)) {
    entry["pid"] = rank.pid();
    entry["init_pid"] = rank.init_pid();
    entry["managed"] = rank.managed();
  }
  if (rank.condition() == v1::CONDITION_PAUSED) {
    entry["residency"] = rank.residency();
    entry["device_bytes"] = rank.device_bytes();
  }
  DescribeEnd(rank.condition(), rank.exit_code(), rank.signal(), &entry);
  if (!rank.error().empty()) entry["error"] = rank.error();
  return entry;
}

Json DescribeJob(const v1::Job& job) {
  Json ranks = Json::array();
  for (const v1::Rank& rank : job.ranks()) {
    Json entry = DescribeTask(job, rank);
    entry["rank"] = rank.rank();
    entry["node"] = rank.node();
    ranks.push_back(std::move(entry));
  }
  Json entry = {{"name", job.name()},
                {"state", ConditionName(job.condition())},
                {"argv", std::vector<std::string>(job.argv().begin(), job.argv().end())},
                {"created", job.created_ms() / 1000},
                {"master_port", job.master_port()},
                {"last_image", job.last_image()},
                {"live", job.live()},
                {"ranks", ranks}};
  if (!job.moved_to().empty()) entry["moved_to"] = job.moved_to();
  DescribeEnd(job.condition(), job.exit_code(), job.signal(), &entry);
  if (job.has_failed_rank()) entry["failed_rank"] = job.failed_rank();
  return entry;
}

std::string Line(const std::string& name, const std::string& state, const std::string& pid,
                 const std::string& device, const std::string& gpus, const std::string& age,
                 const std::string& image, const std::string& command) {
  return fmt::format("{:<20} {:<16} {:>8} {:<7} {:<6} {:>7} {:<8} {}\n", name, state, pid, device, gpus, age,
                     image, command);
}

std::string PidText(const v1::Rank& rank) { return LivesNow(rank) ? std::to_string(rank.pid()) : "-"; }

// What the ranks have in common of something, else "-".
template <typename Of>
std::string Common(const v1::Job& job, Of of) {
  std::optional<std::string> common;
  for (const v1::Rank& rank : job.ranks()) {
    if (rank.missing()) continue;
    std::string here = of(rank);
    if (common && *common != here) return "-";
    common = here;
  }
  return common.value_or("-");
}

std::string JobRow(const v1::Job& job, int64_t now) {
  std::string pid = job.ranked()
                        ? fmt::format("{} rank{}", job.ranks_size(), job.ranks_size() == 1 ? "" : "s")
                    : job.ranks().empty() ? "-"
                                          : PidText(job.ranks(0));
  std::string device = Common(job, [](const v1::Rank& rank) { return OrUnknown(rank.device()); });
  return Line(job.name(), JobStateText(job), pid, device, JobGpusText(job),
              AgeText(now - job.created_ms() / 1000), OrDash(job.last_image()),
              CommandText(job, kMaxCommandText));
}

std::string RankRow(const v1::Rank& rank) {
  std::string name = "  " + rank.task();
  if (rank.missing()) return Line(name, "missing", "-", "-", "-", "-", "-", "");
  return Line(name, RankStateText(rank), PidText(rank), OrUnknown(rank.device()), GpusText(rank), "", "-",
              "on " + rank.node());
}

bool IsListed(const v1::Job& job, bool all) {
  return all || job.live() || job.condition() == v1::CONDITION_CHECKPOINTED;
}

}  // namespace

std::string JobStateText(const v1::Job& job) {
  if (job.condition() == v1::CONDITION_MIGRATED) return "migrated";
  if (!job.ranked()) return job.ranks().empty() ? job.text() : RankStateText(job.ranks(0));
  if (job.condition() != v1::CONDITION_PAUSED) return job.text();
  std::string residency = Common(job, [](const v1::Rank& rank) { return OrUnknown(rank.residency()); });
  return residency == "-" ? job.text() : fmt::format("{} ({})", ConditionName(job.condition()), residency);
}

std::string JobGpusText(const v1::Job& job) { return Common(job, GpusText); }

std::string CommandText(const v1::Job& job, size_t width) {
  std::string text;
  for (const std::string& argument : job.argv()) text += (text.empty() ? "" : " ") + argument;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

PsTable MakePsTable(const std::vector<v1::Job>& jobs, bool all, bool show_ranks, int64_t now) {
  PsTable table;
  std::map<std::string, std::string> rows;  // by name
  for (const v1::Job& job : jobs) {
    if (!IsListed(job, all)) continue;
    rows[job.name()] = JobRow(job, now);
    if (job.ranked())
      table.jobs.push_back(DescribeJob(job));
    else if (!job.ranks().empty())
      table.tasks.push_back(DescribeTask(job, job.ranks(0)));
    for (const v1::Rank& rank : job.ranks()) {
      if (job.ranked() && show_ranks) rows[job.name()] += RankRow(rank);
    }
  }
  table.text = Line("NAME", "STATE", "PID", "DEVICE", "GPUS", "AGE", "IMAGE", "COMMAND");
  for (const auto& [name, row] : rows) table.text += row;
  return table;
}

}  // namespace stasis

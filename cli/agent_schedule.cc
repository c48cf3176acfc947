// `stasis schedule`: checkpoints that an agent makes by itself.
#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "cli/agent_verbs.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

uint64_t Milliseconds(const std::optional<Duration>& time) {
  if (!time) return 0;
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(*time).count());
}

Json Describe(const v1::Schedule& schedule) {
  return {{"job", schedule.job()},
          {"interval_ms", schedule.interval_ms()},
          {"cron", schedule.cron()},
          {"mtbf_ms", schedule.mtbf_ms()},
          {"keep_last", schedule.keep_last()},
          {"keep_every_ms", schedule.keep_every_ms()},
          {"overhead_budget", schedule.overhead_budget()},
          {"max_restarts", schedule.max_restarts()},
          {"restart_backoff_ms", schedule.restart_backoff_ms()},
          {"suspended", schedule.paused()},
          {"next_ms", schedule.next_ms()},
          {"measured_cost_ms", schedule.measured_cost_ms()},
          {"suggested_interval_ms", schedule.suggested_interval_ms()},
          {"state", schedule.state()},
          {"restarts", schedule.restarts()},
          {"restarts_in_a_row", schedule.restarts_in_a_row()},
          {"restart_ms", schedule.restart_ms()},
          {"last_error", schedule.last_error()},
          {"last_image", schedule.last_image()}};
}

// "90s", "10m", "2h": in the largest unit that it is a whole number of.
std::string TimeText(uint64_t milliseconds) {
  constexpr struct {
    uint64_t size;
    const char* name;
  } kUnits[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
  for (const auto& unit : kUnits) {
    if (milliseconds >= unit.size && milliseconds % unit.size == 0)
      return fmt::format("{}{}", milliseconds / unit.size, unit.name);
  }
  return "0";
}

std::string RuleText(const v1::Schedule& schedule) {
  if (!schedule.cron().empty()) return schedule.cron();
  if (schedule.interval_ms() > 0) return "every " + TimeText(schedule.interval_ms());
  return schedule.mtbf_ms() > 0 ? "mtbf " + TimeText(schedule.mtbf_ms()) : "-";
}

std::string NextText(const v1::Schedule& schedule, int64_t now_ms) {
  if (schedule.paused()) return "suspended";
  // restarting, given-up, ended: no checkpoint is made then.
  if (!schedule.state().empty() && schedule.state() != "watching") return schedule.state();
  if (schedule.next_ms() == 0) return "-";
  return schedule.next_ms() <= now_ms ? "now" : "in " + AgeText((schedule.next_ms() - now_ms + 999) / 1000);
}

std::string KeepText(const v1::Schedule& schedule) {
  std::string text = std::to_string(schedule.keep_last());
  return schedule.keep_every_ms() == 0 ? text : text + " + " + TimeText(schedule.keep_every_ms());
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string Row(const v1::Schedule& schedule, int64_t now_ms) {
  std::string cost =
      schedule.measured_cost_ms() > 0 ? MillisecondsText(schedule.measured_cost_ms()) : std::string("-");
  std::string suggested = schedule.suggested_interval_ms() > 0
                              ? MillisecondsText(static_cast<double>(schedule.suggested_interval_ms()))
                              : std::string("-");
  return fmt::format("{:<20} {:<16} {:<12} {:<8} {:>9} {:>10} {:>8} {:<8} {}\n", schedule.job(),
                     RuleText(schedule), NextText(schedule, now_ms), KeepText(schedule), cost, suggested,
                     fmt::format("{}/{}", schedule.restarts(), schedule.max_restarts()),
                     OrDash(schedule.last_image()), Printable(schedule.last_error()));
}

int Ls(const Options& options, AgentClient& client, Context& context) {
  v1::ListSchedulesRequest request;
  request.set_job(options.name);
  Result<v1::ListSchedulesResponse> answer = client.Call(&v1::Agent::Stub::ListSchedules, request);
  if (!answer.ok()) return context.reporter.Fail(answer.status(), client.remedy());
  Json schedules = Json::array();
  std::string table = fmt::format("{:<20} {:<16} {:<12} {:<8} {:>9} {:>10} {:>8} {:<8} {}\n", "JOB", "RULE",
                                  "NEXT", "KEEP", "COST", "SUGGESTED", "RESTARTS", "IMAGE", "ERROR");
  for (const v1::Schedule& schedule : answer->schedules()) {
    schedules.push_back(Describe(schedule));
    table += Row(schedule, std::time(nullptr) * 1000);
  }
  return context.reporter.Done({{"schedules", schedules}}, table);
}

v1::Schedule ScheduleOf(const Options& options) {
  v1::Schedule schedule;
  schedule.set_job(options.name);
  if (options.below == "rm") return schedule;  // one without any rule removes it
  schedule.set_interval_ms(Milliseconds(options.every));
  schedule.set_cron(options.cron);
  schedule.set_mtbf_ms(Milliseconds(options.mtbf));
  schedule.set_keep_last(static_cast<uint32_t>(options.keep));
  schedule.set_keep_every_ms(Milliseconds(options.keep_every));
  schedule.set_overhead_budget(options.budget / 100);
  schedule.set_max_restarts(static_cast<uint32_t>(options.max_restarts));
  schedule.set_restart_backoff_ms(static_cast<uint32_t>(Milliseconds(options.backoff)));
  schedule.set_paused(options.suspended);
  return schedule;
}

int Set(const Options& options, AgentClient& client, Context& context) {
  v1::SetScheduleRequest request;
  *request.mutable_schedule() = ScheduleOf(options);
  Result<v1::Schedule> answer = client.Call(&v1::Agent::Stub::SetSchedule, request);
  if (!answer.ok()) return context.reporter.Fail(answer.status(), client.remedy());
  if (options.below == "rm") {
    return context.reporter.Done({{"schedule", nullptr}}, options.name + " has no schedule any more");
  }
  std::string text = fmt::format("{}: {}, next {}", options.name, RuleText(*answer),
                                 NextText(*answer, std::time(nullptr) * 1000));
  return context.reporter.Done({{"schedule", Describe(*answer)}}, text);
}

}  // namespace

int ScheduleVerb(const Options& options, Context& context) {
  if (!options.name.empty()) context.reporter.set_task(options.name);
  Result<AgentClient> client = AgentClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  return options.below == "ls" ? Ls(options, *client, context) : Set(options, *client, context);
}

}  // namespace stasis

// `stasis queue`, and `stasis cancel` of a job of the scheduler.
#include <fmt/format.h>

#include <ctime>

#include "cli/agent_verbs.h"
#include "cli/scheduler_verbs.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

int64_t NowSeconds() { return std::time(nullptr); }

std::string DevicesText(const v1::QueuedJob& job) {
  std::string text;
  for (uint32_t device : job.devices()) text += (text.empty() ? "" : ",") + std::to_string(device);
  return text.empty() ? "-" : text;
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

// How long it has waited, or run since its first start, or took from there to its end.
std::string TimeText(const v1::QueuedJob& job) {
  int64_t from = job.started_ms() == 0 ? job.submitted_ms() : job.started_ms();
  int64_t until = job.ended_ms() == 0 ? NowSeconds() * 1000 : job.ended_ms();
  return AgeText((until - from) / 1000);
}

std::string StateText(const v1::QueuedJob& job) {
  std::string name = QueueStateName(job.state());
  return job.state() == v1::QUEUE_STATE_FAILED && job.exit_code() != 0
             ? fmt::format("{} ({})", name, job.exit_code())
             : name;
}

constexpr char kRow[] =
    "{:<20} {:<10} {:<12} {:>4} {:>4} {:<14} {:<10} {:>8} {:>6} {:>5} {:>8} {:>5} {:>9}  {}\n";

// "2.5 it/s", "130/s" of launches.
std::string RateText(const v1::QueuedJob& job) {
  if (job.rate_unit().empty()) return "-";
  const char* unit = job.rate_unit() == "iterations" ? " it/s" : "/s";
  return job.rate() < 100 ? fmt::format("{:.1f}{}", job.rate(), unit)
                          : fmt::format("{:.0f}{}", job.rate(), unit);
}

std::string RemarkOf(const v1::QueuedJob& job) {
  std::string remark = Printable(job.reason());
  if (job.beside().empty()) return remark;
  return "beside " + job.beside() + (remark.empty() ? "" : "; " + remark);
}

std::string Row(const v1::QueuedJob& job) {
  std::string fairness = job.started_ms() == 0 ? "-" : fmt::format("{:.2f}", job.fairness());
  return fmt::format(kRow, job.name(), job.tenant(), StateText(job), job.gpus(), job.priority(),
                     OrDash(Printable(job.node())), DevicesText(job), TimeText(job), job.pauses(),
                     job.migrations(), job.restarts(), fairness, RateText(job), RemarkOf(job));
}

constexpr char kNotScheduled[] =
    "with --node NODE or --embedded it is a task of a node, and not of the scheduler";

// Of the agent of the node where the job is, or was. `name`: of the job, or of one of its ranks.
Result<std::string> AddressOf(SchedulerClient& client, const std::string& name) {
  Result<v1::QueuedJob> job = FindQueuedJob(client, name);
  size_t dot = name.rfind('.');
  if (job.status().code() == StatusCode::kNotFound && dot != std::string::npos && dot > 0) {
    job = FindQueuedJob(client, name.substr(0, dot));
  }
  if (!job.ok()) return job.status();
  if (job->node().empty()) return Status(StatusCode::kFailedPrecondition, name + " is on no node");
  ASSIGN_OR_RETURN(v1::NodesReply nodes, client.Call(&v1::Scheduler::Stub::Nodes, v1::NodesRequest()));
  for (const v1::ClusterNode& node : nodes.nodes()) {
    if (node.name() == job->node()) return node.address();
  }
  return Status(StatusCode::kUnavailable, "the node " + job->node() + " of " + name + " is not known");
}

}  // namespace

const char* QueueStateName(v1::QueueState state) {
  constexpr const char* kNames[] = {"unknown",  "pending", "starting", "running", "pausing", "paused",
                                    "resuming", "moving",  "lost",     "done",    "failed",  "cancelled"};
  auto index = static_cast<size_t>(state);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

bool HasEnded(const v1::QueuedJob& job) {
  return job.state() == v1::QUEUE_STATE_DONE || job.state() == v1::QUEUE_STATE_FAILED ||
         job.state() == v1::QUEUE_STATE_CANCELLED;
}

Json DescribeQueuedJob(const v1::QueuedJob& job) {
  return {{"name", job.name()},
          {"tenant", job.tenant()},
          {"state", QueueStateName(job.state())},
          {"gpus", job.gpus()},
          {"priority", job.priority()},
          {"node", job.node()},
          {"devices", std::vector<uint32_t>(job.devices().begin(), job.devices().end())},
          {"submitted_ms", job.submitted_ms()},
          {"started_ms", job.started_ms()},
          {"ended_ms", job.ended_ms()},
          {"exit_code", job.exit_code()},
          {"pauses", job.pauses()},
          {"migrations", job.migrations()},
          {"restarts", job.restarts()},
          {"fairness", job.fairness()},
          {"lease_end_ms", job.lease_end_ms()},
          {"reason", job.reason()},
          {"rate", job.rate()},
          {"rate_unit", job.rate_unit()},
          {"beside", job.beside()}};
}

Result<v1::QueuedJob> FindQueuedJob(SchedulerClient& client, const std::string& name, bool wait) {
  v1::QueueRequest request;
  request.set_name(name);
  ASSIGN_OR_RETURN(v1::QueueReply answer, client.Call(&v1::Scheduler::Stub::Queue, request, wait));
  if (answer.jobs().empty()) return Status(StatusCode::kNotFound, "no job " + name);
  return answer.jobs(0);
}

std::vector<std::string> QueuedJobNames(const std::string& scheduler) {
  std::vector<std::string> names;
  Result<SchedulerClient> client = SchedulerClient::Open(scheduler);
  if (!client.ok()) return names;
  Result<v1::QueueReply> answer = client->Call(&v1::Scheduler::Stub::Queue, v1::QueueRequest());
  for (int i = 0; answer.ok() && i < answer->jobs_size(); i++) names.push_back(answer->jobs(i).name());
  return names;
}

int QueueVerb(const Options& options, Context& context) {
  v1::QueueRequest request;
  request.set_name(options.name);
  request.set_tenant(options.tenant);
  request.set_ended(options.all);
  if (!options.name.empty()) context.reporter.set_task(options.name);
  return AskScheduler(context, &v1::Scheduler::Stub::Queue, request, [&](const v1::QueueReply& answer) {
    Json jobs = Json::array();
    std::string table = fmt::format(kRow, "NAME", "TENANT", "STATE", "GPUS", "PRIO", "NODE", "DEVICES",
                                    "TIME", "PAUSES", "MOVES", "RESTARTS", "F", "RATE", "REASON");
    for (const v1::QueuedJob& job : answer.jobs()) {
      jobs.push_back(DescribeQueuedJob(job));
      table += Row(job);
    }
    return context.reporter.Done({{"jobs", jobs}}, table);
  });
}

int SchedulerLogsVerb(const Options& options, Context& context) {
  Result<SchedulerClient> client = SchedulerClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  context.reporter.set_task(options.name);
  Result<std::string> address = AddressOf(*client, options.name);
  if (!address.ok()) {
    bool none = address.status().code() == StatusCode::kNotFound;
    return context.reporter.Fail(address.status(), none ? kNotScheduled : client->remedy());
  }
  context.node = *address;
  return AgentLogsVerb(options, context);
}

int SchedulerCancelVerb(const Options& options, Context& context) {
  if (options.operation || options.grace) {
    return context.reporter.Fail(Errorf(StatusCode::kUnsupported, "a scheduler does not take %s",
                                        options.operation ? "--operation" : "--grace"),
                                 "with --node the node's agent does it");
  }
  v1::CancelJobRequest request;
  request.set_name(options.name);
  context.reporter.set_task(options.name);
  auto report = [&](const v1::QueuedJob& job) {
    std::string text = job.state() == v1::QUEUE_STATE_CANCELLED ? job.name() + " is cancelled"
                                                                : job.name() + " is about to end";
    return context.reporter.Done({{"job", DescribeQueuedJob(job)}}, text);
  };
  return AskScheduler(context, &v1::Scheduler::Stub::CancelJob, request, report, kNotScheduled);
}

}  // namespace stasis

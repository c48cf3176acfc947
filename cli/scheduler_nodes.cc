// The verbs about the scheduler's nodes: `nodes`, `drain`, `undrain`, `maintenance`, `defrag`.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "cli/agent_stream.h"
#include "cli/scheduler_verbs.h"
#include "cli/when.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

// With the widths of addresses and jobs.
constexpr char kRow[] = "{:<20} {:<12} {:>7} {:>5}  {:<{}}  {:<{}}  {}\n";

const char* SaveName(v1::SaveState state) {
  switch (state) {
    case v1::SAVE_STATE_WAITING:
      return "waiting";
    case v1::SAVE_STATE_SAVING:
      return "saving";
    case v1::SAVE_STATE_SAVED:
      return "saved";
    case v1::SAVE_STATE_UNSAVED:
      return "unsaved";
    default:
      return "unknown";
  }
}

Json DescribeSaves(const v1::ClusterNode& node) {
  Json saves = Json::array();
  for (const v1::NodeSave& save : node.saves()) {
    saves.push_back({{"job", save.job()},
                     {"state", SaveName(save.state())},
                     {"text", save.text()},
                     {"image_ms", save.image_ms()}});
  }
  return saves;
}

Json Describe(const v1::ClusterNode& node) {
  return {{"name", node.name()},
          {"address", node.address()},
          {"devices", node.devices()},
          {"free", node.free()},
          {"reachable", node.reachable()},
          {"draining", node.draining()},
          {"reason", node.reason()},
          {"jobs", std::vector<std::string>(node.jobs().begin(), node.jobs().end())},
          {"maintenance_start_ms", node.maintenance_start_ms()},
          {"maintenance_end_ms", node.maintenance_end_ms()},
          {"deadline_ms", node.deadline_ms()},
          {"saves", DescribeSaves(node)}};
}

std::string StateText(const v1::ClusterNode& node) {
  if (!node.reachable()) return "unreachable";
  if (!node.draining()) return "ready";
  return node.free() == node.devices() ? "drained" : "draining";
}

// Each job once, and the devices between them.
std::string JobsText(const v1::ClusterNode& node) {
  std::vector<std::string> seen;
  std::string text;
  for (const std::string& job : node.jobs()) {
    if (job.empty() || std::find(seen.begin(), seen.end(), job) != seen.end()) continue;
    seen.push_back(job);
    text += (text.empty() ? "" : ",") + Printable(job);
  }
  return text.empty() ? "-" : text;
}

std::string WindowText(const v1::ClusterNode& node) {
  if (node.maintenance_end_ms() == 0) return "";
  return "maintenance from " + WhenText(node.maintenance_start_ms()) + " to " +
         WhenText(node.maintenance_end_ms());
}

// "gone at 2026-12-24 18:00:00 (2 of 3 jobs saved)".
std::string DeadlineText(const v1::ClusterNode& node) {
  if (node.deadline_ms() == 0) return "";
  const auto saved = std::count_if(node.saves().begin(), node.saves().end(),
                                   [](const auto& save) { return save.state() == v1::SAVE_STATE_SAVED; });
  return fmt::format("gone at {} ({} of {} job{} saved)", WhenText(node.deadline_ms()), saved,
                     node.saves_size(), node.saves_size() == 1 ? "" : "s");
}

std::string RemarkText(const v1::ClusterNode& node) {
  std::string remarks;
  for (const std::string& remark : {Printable(node.reason()), DeadlineText(node), WindowText(node)})
    remarks += (remarks.empty() || remark.empty() ? "" : "; ") + remark;
  return remarks;
}

int ReportNode(const v1::ClusterNode& node, Context& context, const std::string& text) {
  return context.reporter.Done({{"node", Describe(node)}}, text);
}

std::string PlanText(const v1::DefragmentReply& plan, const Options& options) {
  if (!plan.possible()) return fmt::format("no moves make room for a gang of {}", options.gpu_count);
  if (plan.moves().empty())
    return fmt::format("a gang of {} fits on {} as it is", options.gpu_count, plan.node());
  std::string text = fmt::format("room {} made on {} by {} move{} of {} in all:\n",
                                 options.dry_run ? "would be" : "is being", plan.node(), plan.moves_size(),
                                 plan.moves_size() == 1 ? "" : "s", SizeText(plan.bytes()));
  for (const v1::DefragmentReply::Move& move : plan.moves()) {
    text +=
        fmt::format("  {:<20} {} -> {}  {}\n", move.job(), move.from(), move.to(), SizeText(move.bytes()));
  }
  return text + fmt::format("they cost {} of device time\n", MillisecondsText(plan.cost_ms()));
}

Json DescribePlan(const v1::DefragmentReply& plan) {
  Json moves = Json::array();
  for (const v1::DefragmentReply::Move& move : plan.moves()) {
    moves.push_back({{"job", move.job()}, {"from", move.from()}, {"to", move.to()}, {"bytes", move.bytes()}});
  }
  return {{"possible", plan.possible()},
          {"node", plan.node()},
          {"moves", moves},
          {"bytes", plan.bytes()},
          {"cost_ms", plan.cost_ms()}};
}

}  // namespace

std::vector<std::string> ClusterNodeNames(const std::string& scheduler) {
  std::vector<std::string> names;
  Result<SchedulerClient> client = SchedulerClient::Open(scheduler);
  if (!client.ok()) return names;
  Result<v1::NodesReply> answer = client->Call(&v1::Scheduler::Stub::Nodes, v1::NodesRequest());
  for (int i = 0; answer.ok() && i < answer->nodes_size(); i++) names.push_back(answer->nodes(i).name());
  return names;
}

namespace {

Status LookAt(SchedulerClient& client, v1::ClusterNode* node) {
  ASSIGN_OR_RETURN(v1::NodesReply answer, client.Call(&v1::Scheduler::Stub::Nodes, v1::NodesRequest()));
  for (const v1::ClusterNode& each : answer.nodes()) {
    if (each.name() == node->name()) *node = each;
  }
  return Status();
}

// Whether there is nothing more to wait for: nobody holds its devices, or where it will be gone it is known
// of each job whether it is saved.
bool IsLeft(const v1::ClusterNode& node) {
  if (node.deadline_ms() == 0) return node.free() == node.devices();
  return std::none_of(node.saves().begin(), node.saves().end(), [](const v1::NodeSave& save) {
    return save.state() == v1::SAVE_STATE_WAITING || save.state() == v1::SAVE_STATE_SAVING;
  });
}

std::string StillThere(const v1::ClusterNode& node) {
  if (node.deadline_ms() != 0) return DeadlineText(node);
  return fmt::format("{} of {} devices are held", node.devices() - node.free(), node.devices());
}

// Whatever frees a device or saves a job is an event.
Status AwaitLeft(Context& context, Duration patience, v1::ClusterNode* node) {
  const Deadline deadline = Deadline::After(patience);
  ASSIGN_OR_RETURN(SchedulerClient client, SchedulerClient::Open(context.node));
  v1::EventsRequest request;
  request.set_last(1);  // that it was drained; what happens after this one is told
  AgentStream<v1::ClusterEvent> stream(
      [&](grpc::ClientContext* call) { return client.stub().Events(call, request); });
  for (bool ended = false; !ended;) {
    pollfd wait = {stream.fd(), POLLIN, 0};
    if (poll(&wait, 1, deadline.PollTimeout()) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (!stream.Take(&ended).empty()) RETURN_IF_ERROR(LookAt(client, node));
    if (IsLeft(*node)) return Status();
    if (deadline.Expired())
      return Errorf(StatusCode::kTimeout, "%s: %s", node->name().c_str(), StillThere(*node).c_str());
  }
  if (!stream.status().ok()) return client.Explained(stream.status());
  return Status(StatusCode::kUnavailable, "the scheduler has ended the stream");
}

}  // namespace

int NodesVerb(const Options&, Context& context) {
  return AskScheduler(
      context, &v1::Scheduler::Stub::Nodes, v1::NodesRequest(), [&](const v1::NodesReply& answer) {
        Json nodes = Json::array();
        size_t address = 7, jobs = 4;
        for (const v1::ClusterNode& node : answer.nodes()) {
          address = std::max(address, node.address().size());
          jobs = std::max(jobs, JobsText(node).size());
        }
        std::string table = fmt::format(kRow, "NODE", "STATE", "DEVICES", "FREE", "ADDRESS", address, "JOBS",
                                        jobs, "REMARKS");
        for (const v1::ClusterNode& node : answer.nodes()) {
          nodes.push_back(Describe(node));
          table += fmt::format(kRow, Printable(node.name()), StateText(node), node.devices(), node.free(),
                               Printable(node.address()), address, JobsText(node), jobs, RemarkText(node));
        }
        return context.reporter.Done({{"nodes", nodes}}, table);
      });
}

namespace {

// Of one that will be gone, with what has become of its jobs.
std::string DrainedText(const v1::ClusterNode& node) {
  std::string text = fmt::format("{} is {}; {} of {} devices are free", node.name(), StateText(node),
                                 node.free(), node.devices());
  if (node.deadline_ms() != 0) text += "; " + DeadlineText(node);
  for (const v1::NodeSave& save : node.saves()) {
    text += fmt::format("\n  {:<20} {}", Printable(save.job()), SaveName(save.state()));
    if (!save.text().empty()) text += ": " + Printable(save.text());
  }
  return text;
}

bool AnyUnsaved(const v1::ClusterNode& node) {
  return std::any_of(node.saves().begin(), node.saves().end(),
                     [](const auto& save) { return save.state() == v1::SAVE_STATE_UNSAVED; });
}

}  // namespace

int DrainVerb(const Options& options, Context& context) {
  v1::DrainRequest request;
  request.set_node(options.node_name);
  request.set_reason(options.reason);
  if (options.notice)
    request.set_notice_ms(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(*options.notice).count()));
  return AskScheduler(context, &v1::Scheduler::Stub::Drain, request, [&](const v1::ClusterNode& drained) {
    v1::ClusterNode node = drained;
    const Status left = options.drain_wait ? AwaitLeft(context, *options.drain_wait, &node) : Status();
    if (!left.ok())
      return context.reporter.Fail(left, "it stays drained; `stasis nodes` shows what is there");
    return context.reporter.DoneWith(AnyUnsaved(node) ? kExitState : kExitOk, {{"node", Describe(node)}},
                                     DrainedText(node));
  });
}

int UndrainVerb(const Options& options, Context& context) {
  v1::UndrainRequest request;
  request.set_node(options.node_name);
  return AskScheduler(context, &v1::Scheduler::Stub::Undrain, request, [&](const v1::ClusterNode& node) {
    return ReportNode(node, context, node.name() + " is " + StateText(node));
  });
}

int MaintenanceVerb(const Options& options, Context& context) {
  v1::SetMaintenanceRequest request;
  request.set_node(options.node_name);
  request.set_start_ms(options.start_ms);
  request.set_end_ms(options.end_ms);
  return AskScheduler(
      context, &v1::Scheduler::Stub::SetMaintenance, request, [&](const v1::ClusterNode& node) {
        std::string window = WindowText(node);
        return ReportNode(node, context, node.name() + ": " + (window.empty() ? "no maintenance" : window));
      });
}

int DefragVerb(const Options& options, Context& context) {
  v1::DefragmentRequest request;
  request.set_gpus(static_cast<uint32_t>(options.gpu_count));
  request.set_dry_run(options.dry_run);
  return AskScheduler(context, &v1::Scheduler::Stub::Defragment, request,
                      [&](const v1::DefragmentReply& plan) {
                        return context.reporter.DoneWith(plan.possible() ? kExitOk : kExitState,
                                                         DescribePlan(plan), PlanText(plan, options));
                      });
}

}  // namespace stasis

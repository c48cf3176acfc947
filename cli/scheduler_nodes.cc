// The verbs about the scheduler's nodes: `nodes`, `drain`, `undrain`, `maintenance`, `defrag`.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "cli/agent_stream.h"
#include "cli/scheduler_verbs.h"
#include "cli/when.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

// With the widths of addresses and jobs.
constexpr char kRow[] = "{:<20} {:<12} {:>7} {:>5}  {:<{}}  {:<{}}  {}\n";

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
          {"maintenance_end_ms", node.maintenance_end_ms()}};
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

std::string RemarkText(const v1::ClusterNode& node) {
  std::string window = WindowText(node), reason = Printable(node.reason());
  return reason.empty() || window.empty() ? reason + window : reason + "; " + window;
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

// Until nobody holds its devices. Whatever frees one is an event.
Status AwaitEmpty(Context& context, Duration patience, v1::ClusterNode* node) {
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
    if (node->free() == node->devices()) return Status();
    if (deadline.Expired())
      return Errorf(StatusCode::kTimeout, "%u of %u devices of %s are held", node->devices() - node->free(),
                    node->devices(), node->name().c_str());
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

int DrainVerb(const Options& options, Context& context) {
  v1::DrainRequest request;
  request.set_node(options.node_name);
  request.set_reason(options.reason);
  return AskScheduler(context, &v1::Scheduler::Stub::Drain, request, [&](const v1::ClusterNode& drained) {
    v1::ClusterNode node = drained;
    const Status empty = options.drain_wait ? AwaitEmpty(context, *options.drain_wait, &node) : Status();
    if (!empty.ok())
      return context.reporter.Fail(empty, "it stays drained; `stasis nodes` shows what is there");
    return ReportNode(node, context,
                      fmt::format("{} is {}; {} of {} devices are free", node.name(), StateText(node),
                                  node.free(), node.devices()));
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

#include "scheduler/daemon/steps.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace stasis::scheduler {
namespace {

// Images of the schedule, on the job's node.
constexpr uint32_t kKeepImages = 2;

template <typename Request>
Request For(const Order& order) {
  Request request;
  request.set_job(order.job);
  return request;
}

template <typename Request>
void SetGpus(const Order& order, Request* request) {
  for (const int gpu : order.gpus) request->add_gpus(static_cast<uint32_t>(gpu));
}

v1::RunRequest RunOf(const Cluster& cluster, const Order& order) {
  const JobRequest& job = cluster.Find(order.job)->request;
  v1::RunRequest request;
  request.set_name(job.name);
  for (const std::string& argument : job.argv) request.add_argv(argument);
  for (const std::string& variable : job.environment) request.add_environment(variable);
  request.set_folder(job.folder);
  const std::string& kind = cluster.FindNode(order.target)->kind;
  request.set_device(job.device == "auto" ? kind : job.device);
  SetGpus(order, &request);
  request.set_ranks(static_cast<uint32_t>(job.ranks));
  return request;
}

// What lives of it where it is to come back was given up.
Step EndStep(const Order& order) {
  return {order.target, For<v1::CancelRequest>(order), "end", true, false, true};
}

std::vector<Step> RunSteps(const Cluster& cluster, const Order& order) {
  std::vector<Step> steps;
  if (cluster.Find(order.job)->restarts > 0) {
    steps.push_back(EndStep(order));
    // Its record would keep it out as another job of its name. No image that can be read is left by now.
    steps.push_back({order.target, For<v1::RemoveRequest>(order), "remove", true, false, true});
  }
  steps.push_back({order.target, RunOf(cluster, order), "", false});
  return steps;
}

Step PauseStep(const Cluster& cluster, const Order& order) {
  if (PausesAsImage(cluster, order)) {
    auto request = For<v1::CheckpointRequest>(order);
    request.set_stop(true);
    return {order.node, request, "stop", false};
  }
  auto request = For<v1::PauseRequest>(order);
  // Its devices are for somebody else: their memory must be free.
  request.set_residency("host");
  return {order.node, request, "", false};
}

Step MoveStep(const Order& order, const StepSettings& settings) {
  auto request = For<v1::MigrateRequest>(order);
  SetGpus(order, &request);
  const bool elsewhere = order.node != order.target;
  if (elsewhere) request.set_node(settings.peer_address(order.target));
  return {order.node, request, "", false, elsewhere};
}

std::vector<Step> RestoreSteps(const Order& order, const StepSettings& settings) {
  std::vector<Step> steps = {EndStep(order)};
  const bool elsewhere = order.node != order.target;
  if (elsewhere) {
    auto copy = For<v1::CopyImageRequest>(order);
    copy.set_node(settings.peer_address(order.target));
    steps.push_back({order.node, copy, "copy", false, true});
  }
  auto restore = For<v1::RestoreRequest>(order);
  // It may have been on its way to a node that is lost. What there is of it there is ended when that one is
  // back.
  restore.set_take_back(true);
  SetGpus(order, &restore);
  steps.push_back({order.target, restore, "", false, !elsewhere});
  return steps;
}

StatusCode CodeByName(const std::string& name) {
  for (int code = 1; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    if (name == StatusCodeName(static_cast<StatusCode>(code))) return static_cast<StatusCode>(code);
  }
  return StatusCode::kInternal;
}

std::string TextOf(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

bool PausesAsImage(const Cluster& cluster, const Order& order) {
  const Cluster::Node* node = cluster.FindNode(order.node);
  return order.kind == OrderKind::kPause && node != nullptr && node->draining;
}

v1::Schedule ScheduleOf(const JobRequest& request, const StepSettings& settings) {
  v1::Schedule schedule;
  schedule.set_job(request.name);
  const Time interval =
      request.checkpoint_interval > 0 ? request.checkpoint_interval : settings.checkpoint_interval;
  if (interval <= 0) return schedule;
  schedule.set_interval_ms(static_cast<uint64_t>(interval));
  schedule.set_keep_last(kKeepImages);
  return schedule;
}

std::vector<Step> StepsOf(const Cluster& cluster, const Order& order, const StepSettings& settings) {
  if (!cluster.FindOrder(order.number)) return {};
  switch (order.kind) {
    case OrderKind::kRun:
      return RunSteps(cluster, order);
    case OrderKind::kPause:
      return {PauseStep(cluster, order)};
    case OrderKind::kResume: {
      auto request = For<v1::ResumeRequest>(order);
      SetGpus(order, &request);
      return {{order.node, request, "", false}};
    }
    case OrderKind::kMigrate:
      return {MoveStep(order, settings)};
    case OrderKind::kRestore:
      return RestoreSteps(order, settings);
    case OrderKind::kCancel:
      return {{order.node, For<v1::CancelRequest>(order), "", false}};
  }
  return {};
}

const std::string& JobOf(const AgentRequest& request) {
  return std::visit(
      [](const auto& each) -> const std::string& {
        if constexpr (std::is_same_v<std::decay_t<decltype(each)>, v1::RunRequest>) {
          return each.name();
        } else {
          return each.job();
        }
      },
      request);
}

const char* VerbOf(const AgentRequest& request) {
  static constexpr const char* kVerbs[] = {"run",     "pause",  "resume", "checkpoint", "restore",
                                           "migrate", "cancel", "remove", "copy-image"};
  static_assert(std::size(kVerbs) == std::variant_size_v<AgentRequest>);
  return kVerbs[request.index()];
}

void SetChange(const v1::Change& change, AgentRequest* request) {
  std::visit([&](auto& each) { *each.mutable_change() = change; }, *request);
}

Status OutcomeOf(const v1::Operation& operation) {
  if (operation.state() == v1::OPERATION_STATE_SUCCEEDED) return Status();
  if (operation.state() == v1::OPERATION_STATE_CANCELLED)
    return Errorf(StatusCode::kCancelled, "%s was given up", operation.verb().c_str());
  const nlohmann::json result =
      nlohmann::json::parse(operation.result_json(), nullptr, /*allow_exceptions=*/false);
  if (!result.is_object()) return Errorf(StatusCode::kInternal, "%s has failed", operation.verb().c_str());
  return Status(CodeByName(TextOf(result, "code")), operation.verb() + ": " + TextOf(result, "message"));
}

}  // namespace stasis::scheduler

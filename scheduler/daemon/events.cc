#include "scheduler/daemon/events.h"

#include <string>
#include <utility>

namespace stasis::scheduler {
namespace {

v1::ClusterEvent Event(const char* kind, const std::string& job, const std::string& node, std::string text) {
  v1::ClusterEvent event;
  event.set_kind(kind);
  event.set_job(job);
  event.set_node(node);
  event.set_text(std::move(text));
  return event;
}

std::string DevicesText(const Order& order) {
  std::string text = order.gpus.size() == 1 ? "device " : "devices ";
  for (size_t i = 0; i < order.gpus.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(order.gpus[i]);
  return text;
}

std::string NodeText(const Cluster::Node& before, const NodeChanged& fact) {
  std::string text;
  if (before.reachable != fact.reachable) text = fact.reachable ? "reached again" : "not reached";
  if (before.draining != fact.draining)
    text += (text.empty() ? "" : ", ") + std::string(fact.draining ? "drained" : "undrained");
  if (before.deadline != fact.deadline)
    text += (text.empty() ? "" : ", ") + std::string(fact.deadline == 0 ? "stays" : "will be gone");
  if (text.empty()) text = "as before";
  return fact.reason.empty() ? text : text + ": " + fact.reason;
}

struct Teller {
  const Cluster& before;

  v1::ClusterEvent operator()(const TenantSet& fact) const {
    std::string weight = std::to_string(fact.weight);
    weight.erase(weight.find_last_not_of('0') + 1);
    if (weight.back() == '.') weight.pop_back();
    return Event("tenant", "", "", fact.name + ": weight " + weight);
  }
  v1::ClusterEvent operator()(const NodeJoined& fact) const {
    return Event("node", "", fact.name,
                 "joined with " + std::to_string(fact.devices) + " devices, at " + fact.address);
  }
  v1::ClusterEvent operator()(const NodeChanged& fact) const {
    return Event("node", "", fact.name, NodeText(*before.FindNode(fact.name), fact));
  }
  v1::ClusterEvent operator()(const MaintenanceSet& fact) const {
    return Event("node", "", fact.name, fact.end == 0 ? "no maintenance" : "maintenance is planned");
  }
  v1::ClusterEvent operator()(const JobSubmitted& fact) const {
    return Event("submitted", fact.request.name, "",
                 "of " + fact.request.tenant + ", for " + std::to_string(fact.request.gpus) + " devices");
  }
  std::optional<v1::ClusterEvent> operator()(const Decided&) const { return std::nullopt; }
  std::optional<v1::ClusterEvent> operator()(const ImageKept&) const { return std::nullopt; }
  std::optional<v1::ClusterEvent> operator()(const RateMeasured&) const { return std::nullopt; }
  std::optional<v1::ClusterEvent> operator()(const JobsForgotten&) const { return std::nullopt; }
  std::optional<v1::ClusterEvent> operator()(const SaveBegun&) const { return std::nullopt; }
  v1::ClusterEvent operator()(const SaveEnded& fact) const {
    return Event(fact.saved ? "saved" : "unsaved", fact.job, fact.node,
                 fact.saved ? "before the node goes" : fact.message);
  }
  std::optional<v1::ClusterEvent> operator()(const OrderEnded& fact) const {
    const Order order = *before.FindOrder(fact.order);
    if (!fact.ok)
      return Event("refused", order.job, order.node,
                   std::string(OrderKindName(order.kind)) + ": " + fact.message);
    switch (order.kind) {
      case OrderKind::kRun:
        return Event("started", order.job, order.target, DevicesText(order));
      case OrderKind::kPause:
        return Event("paused", order.job, order.node, fact.image ? "as an image" : "");
      case OrderKind::kResume:
        return Event("resumed", order.job, order.target, DevicesText(order));
      case OrderKind::kRestore:
        return Event("resumed", order.job, order.target, DevicesText(order) + ", from an image");
      case OrderKind::kMigrate:
        return Event("moved", order.job, order.target, "from " + order.node + ", to " + DevicesText(order));
      case OrderKind::kCancel:
        return Event("cancelled", order.job, order.node, "");
    }
    return std::nullopt;
  }
  v1::ClusterEvent operator()(const JobEnded& fact) const {
    const std::string text =
        fact.message.empty() ? "exit code " + std::to_string(fact.exit_code) : fact.message;
    return Event(fact.ok ? "done" : "failed", fact.job, before.Find(fact.job)->node, text);
  }
  v1::ClusterEvent operator()(const JobLost& fact) const {
    const std::string from = fact.image_node.empty() ? "starts again from the beginning"
                                                     : "comes back from the image on " + fact.image_node;
    return Event(fact.planned ? "paused" : "lost", fact.job, before.Find(fact.job)->node,
                 fact.message + "; " + from);
  }
  // Where something runs, the order's end is told.
  std::optional<v1::ClusterEvent> operator()(const JobCancelled& fact) const {
    const Cluster::Entry& entry = *before.Find(fact.job);
    const bool runs = entry.where == Cluster::Where::kRunning || entry.where == Cluster::Where::kPaused;
    if (runs || !entry.orders.empty()) return std::nullopt;
    return Event("cancelled", fact.job, "", "");
  }
};

}  // namespace

std::optional<v1::ClusterEvent> EventOf(const Cluster& before, const Fact& fact) {
  return std::visit([&](const auto& each) -> std::optional<v1::ClusterEvent> { return Teller{before}(each); },
                    fact);
}

}  // namespace stasis::scheduler

#include "scheduler/daemon/metrics.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "scheduler/daemon/views.h"

namespace stasis::scheduler {
namespace {

using prometheus::Histogram;
using prometheus::MetricFamily;

const Histogram::BucketBoundaries kDecisionSeconds = {0.0001, 0.0005, 0.001, 0.005, 0.01,
                                                      0.05,   0.1,    0.5,   1,     5};
const Histogram::BucketBoundaries kOrderSeconds = {0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800};

const char* ActionName(ActionKind kind) {
  constexpr const char* kNames[] = {"start", "pause", "resume", "migrate", "pack", "resize"};
  return kNames[static_cast<size_t>(kind)];
}

double Seconds(Time time) { return static_cast<double>(time) / kSecond; }

// "running" of QUEUE_STATE_RUNNING.
std::string StateName(v1::QueueState state) {
  std::string name = v1::QueueState_Name(state).substr(sizeof "QUEUE_STATE_" - 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

MetricFamily By(const char* name, const char* help, const char* label,
                const std::map<std::string, double>& values) {
  MetricFamily family = MakeGauge(name, help);
  for (const auto& [value, count] : values) AddValue(family, count, {{label, value}});
  return family;
}

MetricFamily JobsByState(const Views& views, const Cluster& cluster) {
  std::map<std::string, double> jobs;
  for (int state = v1::QUEUE_STATE_PENDING; v1::QueueState_IsValid(state); ++state)
    jobs[StateName(static_cast<v1::QueueState>(state))] = 0;
  for (const auto& [name, entry] : cluster.jobs()) ++jobs[StateName(views.StateOf(entry))];
  return By("stasis_sched_jobs", "Jobs on record, by state.", "state", jobs);
}

void AddNodes(const v1::NodesReply& reply, std::vector<MetricFamily>* families) {
  std::map<std::string, double> nodes = {{"ready", 0}, {"draining", 0}, {"unreachable", 0}};
  std::map<std::string, double> devices = {{"held", 0}, {"free", 0}, {"unusable", 0}};
  for (const v1::ClusterNode& node : reply.nodes()) {
    ++nodes[!node.reachable() ? "unreachable" : node.draining() ? "draining" : "ready"];
    devices["held"] += node.devices() - node.free();
    devices[node.reachable() && !node.draining() ? "free" : "unusable"] += node.free();
  }
  families->push_back(By("stasis_sched_nodes", "Nodes, by state.", "state", nodes));
  families->push_back(By("stasis_sched_devices",
                         "Devices: held by a job; free; or free on a node that gets no jobs.", "state",
                         devices));
}

void AddTenants(const v1::TenantsReply& reply, std::vector<MetricFamily>* families) {
  std::map<std::string, double> window, all, held, quota, demand;
  for (const v1::Tenant& tenant : reply.tenants()) {
    window[tenant.name()] = tenant.fairness();
    all[tenant.name()] = tenant.fairness_all();
    held[tenant.name()] = tenant.held();
    quota[tenant.name()] = tenant.quota();
    demand[tenant.name()] = tenant.demand();
  }
  const auto add = [families](const char* name, const char* help, const auto& values) {
    families->push_back(By(name, help, "tenant", values));
  };
  add("stasis_sched_tenant_fairness", "F_t over the last leases.", window);
  add("stasis_sched_tenant_fairness_all", "F_t of all time.", all);
  add("stasis_sched_tenant_held", "Devices that its jobs hold; of a shared one its part.", held);
  add("stasis_sched_tenant_quota", "Devices that are its share.", quota);
  add("stasis_sched_tenant_demand", "Devices that its live jobs ask for.", demand);
}

// A victim that does not pause is seen here while it does not.
void AddOrders(const Cluster& cluster, Time now, std::vector<MetricFamily>* families) {
  std::map<std::string, double> count, oldest;
  for (const OrderKind kind : {OrderKind::kRun, OrderKind::kPause, OrderKind::kResume, OrderKind::kMigrate,
                               OrderKind::kRestore, OrderKind::kCancel})
    count[OrderKindName(kind)] = oldest[OrderKindName(kind)] = 0;
  for (const Order& order : cluster.Ready()) {
    const char* kind = OrderKindName(order.kind);
    ++count[kind];
    oldest[kind] = std::max(oldest[kind], Seconds(now - order.since));
  }
  families->push_back(
      By("stasis_sched_orders_outstanding", "Orders that agents are carrying out.", "order", count));
  families->push_back(By("stasis_sched_oldest_order_seconds",
                         "How long the oldest of the orders that agents are carrying out has been so.",
                         "order", oldest));
}

}  // namespace

SchedulerMetrics::SchedulerMetrics()
    : decided_(prometheus::BuildCounter()
                   .Name("stasis_sched_decisions_total")
                   .Help("Steps of decisions, by what they do.")
                   .Register(registry())),
      decision_seconds_(prometheus::BuildHistogram()
                            .Name("stasis_sched_decision_seconds")
                            .Help("How long the policy took to decide.")
                            .Register(registry())
                            .Add({}, kDecisionSeconds)),
      orders_(prometheus::BuildCounter()
                  .Name("stasis_sched_orders_total")
                  .Help("Orders that have ended, by what was to be done and how they ended.")
                  .Register(registry())),
      order_seconds_(prometheus::BuildHistogram()
                         .Name("stasis_sched_order_seconds")
                         .Help("How long agents took to carry orders out.")
                         .Register(registry())),
      lost_(prometheus::BuildCounter()
                .Name("stasis_sched_jobs_lost_total")
                .Help("Jobs that had to come back: their node was lost, or their program failed.")
                .Register(registry())
                .Add({})),
      pause_timeouts_(prometheus::BuildCounter()
                          .Name("stasis_sched_pause_timeouts_total")
                          .Help("Pauses that were given up, since they took longer than --pause-timeout.")
                          .Register(registry())
                          .Add({})),
      facts_(prometheus::BuildCounter()
                 .Name("stasis_sched_facts_total")
                 .Help("Facts that were stored.")
                 .Register(registry())
                 .Add({})) {}

void SchedulerMetrics::Happens(const Cluster& before, const StoredFact& fact) {
  facts_.Increment();
  if (const auto* decided = std::get_if<scheduler::Decided>(&fact.fact))
    decided_.Add({{"action", ActionName(decided->kind)}}).Increment();
  if (const auto* ended = std::get_if<OrderEnded>(&fact.fact))
    OrderEnds(*before.FindOrder(ended->order), *ended, fact.at);
  const auto* lost = std::get_if<JobLost>(&fact.fact);
  if (lost != nullptr && !lost->planned) lost_.Increment();
}

void SchedulerMetrics::OrderEnds(const Order& order, const OrderEnded& fact, Time at) {
  const char* kind = OrderKindName(order.kind);
  orders_.Add({{"order", kind}, {"outcome", fact.ok ? "done" : "failed"}}).Increment();
  if (fact.late) pause_timeouts_.Increment();
  if (order.since != kNever)
    order_seconds_.Add({{"order", kind}}, kOrderSeconds)
        .Observe(Seconds(std::max<Time>(0, at - order.since)));
}

void SchedulerMetrics::Decided(Duration took) {
  decision_seconds_.Observe(std::chrono::duration<double>(took).count());
}

void SchedulerMetrics::CollectMore(std::vector<MetricFamily>* families) const {
  const SchedulerCore* core = core_;
  if (core == nullptr) return;
  core->LookNow([families](const Cluster& cluster, Time now) {
    const Views views(cluster, now);
    families->push_back(JobsByState(views, cluster));
    AddNodes(views.Nodes(), families);
    AddTenants(views.Tenants(), families);
    AddOrders(cluster, now, families);
  });
}

}  // namespace stasis::scheduler

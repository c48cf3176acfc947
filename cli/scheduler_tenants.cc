// `stasis tenants`: who has what share of the cluster, and what became of it.
#include <fmt/format.h>

#include "cli/scheduler_verbs.h"

namespace stasis {
namespace {

Json Describe(const v1::Tenant& tenant) {
  return {{"name", tenant.name()},
          {"weight", tenant.weight()},
          {"quota", tenant.quota()},
          {"held", tenant.held()},
          {"demand", tenant.demand()},
          {"fairness", tenant.fairness()},
          {"fairness_all", tenant.fairness_all()},
          {"utilized_hours", tenant.utilized_hours()},
          {"deserved_hours", tenant.deserved_hours()},
          {"running", tenant.running()},
          {"waiting", tenant.waiting()}};
}

std::string Row(const v1::Tenant& tenant) {
  return fmt::format(
      "{:<20} {:>8g} {:>8.2f} {:>8.2f} {:>7} {:>8} {:>8} {:>7.3f} {:>7.3f} {:>10.1f} {:>10.1f}\n",
      tenant.name(), tenant.weight(), tenant.quota(), tenant.held(), tenant.demand(), tenant.running(),
      tenant.waiting(), tenant.fairness(), tenant.fairness_all(), tenant.utilized_hours(),
      tenant.deserved_hours());
}

int Set(const Options& options, Context& context) {
  v1::SetTenantRequest request;
  request.set_name(options.tenant);
  request.set_weight(options.weight);
  return AskScheduler(context, &v1::Scheduler::Stub::SetTenant, request, [&](const v1::Tenant& tenant) {
    return context.reporter.Done({{"tenant", Describe(tenant)}},
                                 fmt::format("{} has weight {:g} and a quota of {:.2f} devices",
                                             tenant.name(), tenant.weight(), tenant.quota()));
  });
}

}  // namespace

int TenantsVerb(const Options& options, Context& context) {
  if (options.below == "set") return Set(options, context);
  return AskScheduler(
      context, &v1::Scheduler::Stub::Tenants, v1::TenantsRequest(), [&](const v1::TenantsReply& answer) {
        Json tenants = Json::array();
        std::string table = fmt::format(
            "{:<20} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8} {:>7} {:>7} {:>10} {:>10}\n", "TENANT", "WEIGHT",
            "QUOTA", "HELD", "DEMAND", "RUNNING", "WAITING", "F", "F ALL", "USED H", "DESERVED H");
        for (const v1::Tenant& tenant : answer.tenants()) {
          tenants.push_back(Describe(tenant));
          table += Row(tenant);
        }
        return context.reporter.Done({{"tenants", tenants}}, table);
      });
}

}  // namespace stasis

// The verbs carried out by a scheduler (context.node).
#ifndef CLI_SCHEDULER_VERBS_H_
#define CLI_SCHEDULER_VERBS_H_

#include <string>
#include <vector>

#include "cli/service_client.h"
#include "cli/verbs.h"
#include "stasis/v1/scheduler.grpc.pb.h"

namespace stasis {

template <>
inline constexpr const char* kServerName<v1::Scheduler> = "scheduler";
using SchedulerClient = ServiceClient<v1::Scheduler>;

int SubmitVerb(const Options& options, Context& context);
int QueueVerb(const Options& options, Context& context);
int SchedulerCancelVerb(const Options& options, Context& context);
// Finds the job's node, whose agent then does it.
int SchedulerLogsVerb(const Options& options, Context& context);
int TenantsVerb(const Options& options, Context& context);
int NodesVerb(const Options& options, Context& context);
int DrainVerb(const Options& options, Context& context);
int UndrainVerb(const Options& options, Context& context);
int MaintenanceVerb(const Options& options, Context& context);
int DefragVerb(const Options& options, Context& context);
int EventsVerb(const Options& options, Context& context);

// Names for completion; none where they cannot be had.
std::vector<std::string> QueuedJobNames(const std::string& scheduler);
std::vector<std::string> ClusterNodeNames(const std::string& scheduler);

// Of a job, for documents and tables.
Json DescribeQueuedJob(const v1::QueuedJob& job);
// "pending", "running", ...
const char* QueueStateName(v1::QueueState state);
bool HasEnded(const v1::QueuedJob& job);
Result<v1::QueuedJob> FindQueuedJob(SchedulerClient& client, const std::string& name, bool wait = false);

// Calls `method` and returns what `report` makes of its response; or reports the failure, with `if_unknown`
// as the remedy where there is nothing of that name.
template <typename Request, typename Response, typename Report>
int AskScheduler(Context& context,
                 grpc::Status (v1::Scheduler::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                 const Request& request, Report report, const char* if_unknown = "") {
  Result<SchedulerClient> client = SchedulerClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  Result<Response> answer = client->Call(method, request);
  if (answer.ok()) return report(*answer);
  bool unknown = answer.status().code() == StatusCode::kNotFound && client->remedy().empty();
  return context.reporter.Fail(answer.status(), unknown ? if_unknown : client->remedy());
}

}  // namespace stasis

#endif  // CLI_SCHEDULER_VERBS_H_

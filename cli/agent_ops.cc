// `stasis ops`: what an agent does and has done.
#include <fmt/format.h>

#include <ctime>

#include "cli/agent_operation.h"
#include "cli/agent_verbs.h"
#include "cli/waterfall.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

std::string TookText(const v1::Operation& operation) {
  if (operation.started_ms() == 0 || operation.ended_ms() == 0) return "-";
  return MillisecondsText(static_cast<double>(operation.ended_ms() - operation.started_ms()));
}

std::string Row(const v1::Operation& operation, int64_t now) {
  return fmt::format("{:<12} {:<11} {:<20} {:<10} {:>7} {:>10} {:<16} {}\n", operation.id(), operation.verb(),
                     operation.job().empty() ? "-" : operation.job(), OperationStateName(operation.state()),
                     AgeText(now - operation.created_ms() / 1000), TookText(operation), operation.actor(),
                     OutcomeText(operation));
}

Result<v1::ListOperationsResponse> List(AgentClient& client, const std::string& job, bool running,
                                        int limit) {
  v1::ListOperationsRequest request;
  request.set_job(job);
  request.set_running(running);
  request.set_limit(static_cast<uint32_t>(limit));
  return client.Call(&v1::Agent::Stub::ListOperations, request);
}

int Ls(const Options& options, AgentClient& client, Context& context) {
  Result<v1::ListOperationsResponse> answer = List(client, options.name, options.running, options.limit);
  if (!answer.ok()) return context.reporter.Fail(answer.status(), client.remedy());
  Json operations = Json::array();
  std::string table = fmt::format("{:<12} {:<11} {:<20} {:<10} {:>7} {:>10} {:<16} {}\n", "OPERATION", "VERB",
                                  "JOB", "STATE", "AGE", "TOOK", "BY", "OUTCOME");
  for (const v1::Operation& operation : answer->operations()) {
    operations.push_back(DescribeOperation(operation));
    table += Row(operation, std::time(nullptr));
  }
  return context.reporter.Done({{"operations", operations}}, table);
}

int Show(const Options& options, AgentClient& client, Context& context) {
  v1::GetOperationRequest request;
  request.set_id(options.target);
  request.set_spans(true);
  Result<v1::Operation> operation = client.Call(&v1::Agent::Stub::GetOperation, request);
  if (!operation.ok()) return context.reporter.Fail(operation.status(), client.remedy());
  Json document = DescribeOperation(*operation);
  document["spans"] = DescribeSpans(*operation);
  return context.reporter.Done({{"operation", document}}, OperationText(*operation));
}

int Cancel(const Options& options, AgentClient& client, Context& context) {
  v1::CancelOperationRequest request;
  request.set_id(options.target);
  Result<v1::Operation> operation = client.Call(&v1::Agent::Stub::CancelOperation, request);
  if (!operation.ok()) return context.reporter.Fail(operation.status(), client.remedy());
  std::string text = HasEnded(*operation)
                         ? fmt::format("{} had ended: it {}", operation->id(), OutcomeText(*operation))
                         : operation->id() + " has been asked to give up";
  return context.reporter.Done({{"operation", DescribeOperation(*operation)}}, text);
}

}  // namespace

std::vector<std::string> OperationIds(const std::string& node) {
  std::vector<std::string> ids;
  Result<AgentClient> client = AgentClient::Open(node);
  if (!client.ok()) return ids;
  Result<v1::ListOperationsResponse> answer = List(*client, "", false, 100);
  for (int i = 0; answer.ok() && i < answer->operations_size(); i++)
    ids.push_back(answer->operations(i).id());
  return ids;
}

int OpsVerb(const Options& options, Context& context) {
  Result<AgentClient> client = AgentClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  if (!options.name.empty()) context.reporter.set_task(options.name);
  if (options.below == "ls") return Ls(options, *client, context);
  return options.below == "show" ? Show(options, *client, context) : Cancel(options, *client, context);
}

}  // namespace stasis

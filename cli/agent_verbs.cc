// The verbs that are one operation of the agent, and its result.
#include "cli/agent_verbs.h"

#include "cli/agent_operation.h"
#include "cli/describe.h"
#include "cli/follow.h"
#include "cli/images.h"
#include "cli/node_choice.h"
#include "coordinator/agent/picture.h"
#include "coordinator/job_result.h"
#include "coordinator/node/layout.h"

namespace stasis {
namespace {

uint32_t Milliseconds(const std::optional<Duration>& time) {
  if (!time) return 0;
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(*time).count());
}

template <typename Request>
void SetGpus(const Options& options, Request* request) {
  for (int gpu : options.gpus) request->add_gpus(static_cast<uint32_t>(gpu));
}

template <typename Request>
Request RequestFor(const Options& options) {
  Request request;
  request.set_job(options.name);
  if constexpr (requires { request.mutable_options(); }) *request.mutable_options() = PauseOptionsOf(options);
  return request;
}

int ReportResult(const Result<v1::Operation>& operation, const Options& options, const AgentClient& client,
                 Context& context) {
  if (!operation.ok()) return context.reporter.Fail(operation.status(), client.remedy());
  Json result = ResultOf(*operation);
  if (!BoolField(result, "ok")) return context.reporter.FailWith(result);
  return context.reporter.Done(result, DescribeResult(operation->verb(), options.name, result));
}

template <typename Request>
using Method = grpc::Status (v1::Agent::Stub::*)(grpc::ClientContext*, const Request&, v1::Operation*);

template <typename Request>
int AskAndReport(const Options& options, Method<Request> method, const Request& request, Context& context) {
  Status good = CheckTaskName(options.name);
  if (!good.ok()) return context.reporter.FailWith(FailureJson(options.verb, good, ""));
  context.reporter.set_task(options.name);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return context.reporter.Fail(signals.status());
  Result<AgentClient> client = AgentClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  Result<v1::Operation> operation = CarryOut(*client, method, request, *signals, context.reporter);
  return ReportResult(operation, options, *client, context);
}

// The newest that has not ended.
Result<v1::Operation> RunningOperation(AgentClient& client, const std::string& job) {
  v1::ListOperationsRequest request;
  request.set_job(job);
  request.set_running(true);
  ASSIGN_OR_RETURN(v1::ListOperationsResponse answer, client.Call(&v1::Agent::Stub::ListOperations, request));
  for (const v1::Operation& operation : answer.operations()) {
    // A copy of an image is none on the job: `stasis ops cancel` gives it up.
    if (operation.state() == v1::OPERATION_STATE_RUNNING && operation.verb() != "copy") return operation;
  }
  return Errorf(StatusCode::kFailedPrecondition, "no operation runs on %s", job.c_str());
}

// Does not stand in the queue of the job's operations, where it would come too late.
int GiveUpOperation(const Options& options, Context& context) {
  Status good = CheckTaskName(options.name);
  if (!good.ok()) return context.reporter.Fail(good);
  context.reporter.set_task(options.name);
  Result<AgentClient> client = AgentClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  Result<v1::Operation> running = RunningOperation(*client, options.name);
  if (!running.ok()) return context.reporter.Fail(running.status(), client->remedy());
  v1::CancelOperationRequest request;
  request.set_id(running->id());
  Result<v1::Operation> asked = client->Call(&v1::Agent::Stub::CancelOperation, request);
  if (!asked.ok()) return context.reporter.Fail(asked.status(), client->remedy());
  Json result = {{"what", "operation"}, {"signal", 0}};
  return context.reporter.Done(result, DescribeResult("cancel", options.name, result));
}

}  // namespace

Status NoSuchTask(const std::string& name) { return Status(StatusCode::kNotFound, "no task " + name); }

v1::PauseOptions PauseOptionsOf(const Options& options) {
  v1::PauseOptions fields;
  fields.set_deadline_ms(Milliseconds(options.deadline));
  fields.set_wait_low_ms(Milliseconds(options.wait_low));
  fields.set_attempts(static_cast<uint32_t>(options.attempts));
  fields.set_pause_protocol(options.pause_protocol);
  return fields;
}

Result<v1::Job> FindJob(AgentClient& client, const std::string& name) {
  v1::ListRequest request;
  request.set_ended(true);
  // Of a rank's task the job is asked for.
  size_t dot = name.rfind('.');
  for (const std::string& asked : {name, name.substr(0, dot)}) {
    request.set_name(asked);
    ASSIGN_OR_RETURN(v1::ListResponse answer, client.Call(&v1::Agent::Stub::List, request));
    for (v1::Job& job : *answer.mutable_jobs()) {
      if (job.name() == name) return job;
      for (const v1::Rank& rank : job.ranks()) {
        if (rank.task() == name && !rank.missing()) return JobOfRank(job, rank);
      }
    }
    // What cannot be read is no job, but a note that names its file.
    for (const std::string& note : answer.notes()) {
      bool of_it = note.find("/tasks/" + name + "/") != std::string::npos ||
                   note.find("/jobs/" + name + "/") != std::string::npos;
      if (of_it) return Status(StatusCode::kCorrupt, note);
    }
    if (dot == std::string::npos) break;
  }
  return NoSuchTask(name);
}

int AgentPauseVerb(const Options& options, Context& context) {
  auto request = RequestFor<v1::PauseRequest>(options);
  request.set_residency(options.residency);
  request.set_no_freeze(options.no_freeze);
  return AskAndReport(options, &v1::Agent::Stub::Pause, request, context);
}

int AgentResumeVerb(const Options& options, Context& context) {
  auto request = RequestFor<v1::ResumeRequest>(options);
  SetGpus(options, &request);
  return AskAndReport(options, &v1::Agent::Stub::Resume, request, context);
}

int AgentCheckpointVerb(const Options& options, Context& context) {
  auto request = RequestFor<v1::CheckpointRequest>(options);
  request.set_stop(options.stop);
  request.set_snapshot(options.snapshot);
  request.set_device_hash(options.device_hash);
  request.set_snapshot_host_percent(static_cast<uint32_t>(options.snapshot_host_share));
  return AskAndReport(options, &v1::Agent::Stub::Checkpoint, request, context);
}

int AgentMigrateVerb(const Options& options, Context& context) {
  auto request = RequestFor<v1::MigrateRequest>(options);
  SetGpus(options, &request);
  request.set_node(options.to);
  if (!options.to.empty()) request.set_precopy(options.precopy);
  return AskAndReport(options, &v1::Agent::Stub::Migrate, request, context);
}

int ImagesCopyVerb(const Options& options, Context& context) {
  Result<std::string> node = ChooseNode(options, context.folders);
  if (!node.ok()) return context.reporter.Fail(node.status());
  if (node->empty()) {
    return context.reporter.Fail(Status(StatusCode::kUnavailable, "no agent runs here"),
                                 "start stasisd, or name one with --node");
  }
  context.node = *node;
  auto request = RequestFor<v1::CopyImageRequest>(options);
  request.set_image(options.target);
  request.set_node(options.to);
  request.set_keep(static_cast<uint32_t>(options.keep));
  return AskAndReport(options, &v1::Agent::Stub::CopyImage, request, context);
}

int AgentCancelVerb(const Options& options, Context& context) {
  if (options.operation) return GiveUpOperation(options, context);
  auto request = RequestFor<v1::CancelRequest>(options);
  request.set_grace_ms(Milliseconds(options.grace));
  return AskAndReport(options, &v1::Agent::Stub::Cancel, request, context);
}

int AgentRmVerb(const Options& options, Context& context) {
  auto request = RequestFor<v1::RemoveRequest>(options);
  request.set_images(true);
  return AskAndReport(options, &v1::Agent::Stub::Remove, request, context);
}

}  // namespace stasis

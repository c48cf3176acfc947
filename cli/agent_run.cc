// `stasis run` and `stasis restore` through an agent: one operation, and staying with what it has started.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/agent_follow.h"
#include "cli/agent_operation.h"
#include "cli/agent_verbs.h"
#include "cli/describe.h"
#include "cli/job_foreground.h"
#include "cli/run_verb.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/subprocess.h"

namespace stasis {
namespace {

v1::RunRequest RequestOf(const Options& options) {
  v1::RunRequest request;
  request.set_name(options.name);
  for (const std::string& argument : options.program) request.add_argv(argument);
  for (std::string& entry : ChangeEnvironment(OwnEnvironment(), options.environment)) {
    request.add_environment(std::move(entry));
  }
  std::error_code error;
  request.set_folder(std::filesystem::current_path(error).string());
  request.set_device(options.device);
  request.set_strategy(options.strategy);
  request.set_managed(options.managed);
  for (int gpu : options.gpus) request.add_gpus(static_cast<uint32_t>(gpu));
  request.set_ranks(static_cast<uint32_t>(options.ranks));
  request.set_master_port(static_cast<uint32_t>(options.master_port));
  return request;
}

// What the command stays with.
struct Started {
  v1::Job job;
  std::vector<uint64_t> offsets;  // of the ranks' output
  Duration grace = kRankGrace;
  bool expect_managed = false;
  Json fields = Json::object();
};

void PassOn(AgentClient& client, const std::string& job, int signal, Reporter& reporter) {
  v1::SignalRequest request;
  request.set_job(job);
  request.set_signal(signal);
  Result<v1::SignalResponse> answer = client.Call(&v1::Agent::Stub::Signal, request);
  if (!answer.ok()) {
    // It may have ended at this moment, which is about to be told.
    if (answer.status().code() != StatusCode::kFailedPrecondition)
      reporter.Note("cannot pass the signal on: " + answer.status().ToString());
  } else if (answer->paused()) {
    reporter.Note(job + " is paused: ending it");
  }
}

int FailFollow(Status status, const Started& started, Context& context) {
  const std::string& name = started.job.name();
  return context.reporter.Fail(std::move(status).WithContext("follow " + name),
                               std::string("the ") + (started.job.ranked() ? "job" : "task") +
                                   " goes on; `stasis logs -f " + name + "` follows it");
}

// Its end is somewhere else.
int ReportMoved(const v1::Job& job, const Started& started, Context& context) {
  Json fields = started.fields;
  fields["state"] = "migrated";
  fields["moved_to"] = job.moved_to();
  context.reporter.Note("it is on " + job.moved_to() + " now; `stasis logs -f " + job.name() + " --node " +
                        job.moved_to() + "` follows it there");
  return context.reporter.DoneWith(kExitCheckpointed, fields, "");
}

int StayWithTask(const Started& started, AgentFollower& follower, AgentClient& client, SignalSource& signals,
                 Context& context) {
  std::optional<RankEnd> end;
  AgentFollower::Options options;
  options.copy_output = !context.reporter.json();
  options.on_signal = [&](int signal) { PassOn(client, started.job.name(), signal, context.reporter); };
  options.on_end = [&](const RankEnd& rank) { end = rank; };
  options.on_alarm = [] {};
  Status followed = follower.Follow(&signals, options);
  if (!followed.ok()) return FailFollow(std::move(followed), started, context);
  if (follower.job().condition() == v1::CONDITION_MIGRATED)
    return ReportMoved(follower.job(), started, context);
  return ReportTaskEnd({started.job.name(), started.job.ranks(0).log(), end->view, end->managed,
                        started.expect_managed, started.fields},
                       context.reporter);
}

StayOfJob StayOf(const Started& started, AgentFollower& follower, AgentClient& client, Context& context) {
  StayOfJob stay;
  stay.name = started.job.name();
  for (const v1::Rank& rank : started.job.ranks()) stay.ranks.push_back({rank.task(), rank.log()});
  stay.grace = started.grace;
  stay.expect_managed = started.expect_managed;
  stay.fields = started.fields;
  stay.send = [&](int signal) { PassOn(client, started.job.name(), signal, context.reporter); };
  stay.set_alarm = [&](Duration time) { follower.SetAlarm(time); };
  stay.last_image = [&] { return follower.job().last_image(); };
  return stay;
}

int StayWithRanks(const Started& started, AgentFollower& follower, AgentClient& client, SignalSource& signals,
                  Context& context) {
  Stay stay(StayOf(started, follower, client, context), context.reporter);
  AgentFollower::Options options;
  options.copy_output = !context.reporter.json();
  options.on_signal = [&](int signal) { stay.OnSignal(signal); };
  options.on_end = [&](const RankEnd& end) { stay.OnEnd(end); };
  options.on_alarm = [&] { stay.OnAlarm(); };
  Status followed = follower.Follow(&signals, options);
  if (!followed.ok()) return FailFollow(std::move(followed), started, context);
  if (follower.job().condition() == v1::CONDITION_MIGRATED)
    return ReportMoved(follower.job(), started, context);
  return stay.Report();
}

int StayWith(Started started, AgentClient& client, SignalSource& signals, Context& context) {
  Result<v1::Job> job = FindJob(client, started.job.name());
  if (!job.ok()) return context.reporter.Fail(job.status(), client.remedy());
  started.job = *std::move(job);
  AgentFollower follower(client, started.job, started.offsets);
  return started.job.ranked() ? StayWithRanks(started, follower, client, signals, context)
                              : StayWithTask(started, follower, client, signals, context);
}

// Then nobody need wonder at the end that it never reported.
bool SaysUnmanaged(const v1::Operation& operation) {
  return std::any_of(operation.notes().begin(), operation.notes().end(), [](const std::string& note) {
    return note.find(" is unmanaged: ") != std::string::npos;
  });
}

std::vector<uint64_t> LogLengths(const Json& result) {
  std::vector<uint64_t> lengths;
  if (!result.contains("ranks")) return {static_cast<uint64_t>(IntegerField(result, "log_length"))};
  for (const Json& rank : result["ranks"]) {
    lengths.push_back(static_cast<uint64_t>(IntegerField(rank, "log_length")));
  }
  return lengths;
}

}  // namespace

int AgentRunVerb(const Options& options, Context& context) {
  Reporter& reporter = context.reporter;
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<AgentClient> client = AgentClient::Open(context.node);
  if (!client.ok()) return reporter.Fail(client.status());
  Result<v1::Operation> operation =
      CarryOut(*client, &v1::Agent::Stub::Run, RequestOf(options), *signals, reporter);
  if (!operation.ok()) return reporter.Fail(operation.status(), client->remedy());
  Json result = ResultOf(*operation);
  if (!BoolField(result, "ok")) return reporter.FailWith(result, ExitCodeOfRun(result));
  reporter.set_task(operation->job());
  Started started;
  started.expect_managed = !SaysUnmanaged(*operation);
  if (options.detach) return reporter.Done(result, operation->job());
  if (options.grace) started.grace = *options.grace;
  started.job.set_name(operation->job());
  for (const char* key : {"state", "log"}) result.erase(key);
  started.fields = std::move(result);
  return StayWith(std::move(started), *client, *signals, context);
}

int AgentRestoreVerb(const Options& options, Context& context) {
  Reporter& reporter = context.reporter;
  Result<ImageName> image = ParseImageName(options.target, Folders());
  if (!image.ok()) return reporter.Fail(image.status());
  reporter.set_task(image->task);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<AgentClient> client = AgentClient::Open(context.node);
  if (!client.ok()) return reporter.Fail(client.status());
  v1::RestoreRequest request;
  request.set_job(image->task);
  request.set_image(image->id);
  request.set_take_back(options.take_back);
  *request.mutable_options() = PauseOptionsOf(options);
  for (int gpu : options.gpus) request.add_gpus(static_cast<uint32_t>(gpu));
  Result<v1::Operation> operation = CarryOut(*client, &v1::Agent::Stub::Restore, request, *signals, reporter);
  if (!operation.ok()) return reporter.Fail(operation.status(), client->remedy());
  Json result = ResultOf(*operation);
  if (!BoolField(result, "ok")) return reporter.FailWith(result);
  std::string text = DescribeResult("restore", image->task, result);
  if (options.detach) return reporter.Done(result, text);
  reporter.Note(text);
  Started started;
  started.job.set_name(image->task);
  started.offsets = LogLengths(result);
  started.fields = std::move(result);
  return StayWith(std::move(started), *client, *signals, context);
}

}  // namespace stasis

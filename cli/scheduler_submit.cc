// `stasis submit`: a job for the scheduler, and with --wait the way to its end.
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/environment.h"
#include "cli/agent_stream.h"
#include "cli/follow.h"
#include "cli/run_verb.h"
#include "cli/scheduler_verbs.h"
#include "coordinator/node/program.h"
#include "coordinator/node/subprocess.h"

namespace stasis {
namespace {

uint64_t Milliseconds(const std::optional<Duration>& time) {
  if (!time) return 0;
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(*time).count());
}

std::string DefaultTenant() {
  const char* tenant = std::getenv("STASIS_TENANT");
  if (tenant != nullptr && *tenant != '\0') return tenant;
  const passwd* user = getpwuid(geteuid());
  return user == nullptr ? "" : user->pw_name;
}

Result<v1::SubmitRequest> RequestOf(const Options& options) {
  v1::SubmitRequest request;
  request.set_idempotency_key(NewIdempotencyKey());
  request.set_name(options.name);
  request.set_tenant(options.tenant.empty() ? DefaultTenant() : options.tenant);
  for (std::string& entry : ChangeEnvironment(OwnEnvironment(), options.environment)) {
    request.add_environment(std::move(entry));
  }
  std::error_code error;
  request.set_folder(std::filesystem::current_path(error).string());
  for (const std::string& argument : options.program) request.add_argv(argument);
  // An absolute one may be there on the nodes alone.
  if (!options.program[0].starts_with('/')) {
    ASSIGN_OR_RETURN(
        *request.mutable_argv(0),
        FindProgram(options.program[0], EnvironmentValue(OwnEnvironment(), "PATH"), request.folder()));
  }
  request.set_gpus(static_cast<uint32_t>(options.gpu_count));
  request.set_ranks(options.ranked ? request.gpus() : 0);
  request.set_priority(options.priority);
  request.set_weight(options.weight);
  request.set_estimate_ms(Milliseconds(options.estimate));
  request.set_min_gpus(static_cast<uint32_t>(options.min_gpus));
  request.set_max_gpus(static_cast<uint32_t>(options.max_gpus));
  request.set_memory_bytes(options.device_memory);
  request.set_utilization(options.utilization);
  request.set_checkpoint_interval_ms(Milliseconds(options.every));
  request.set_max_restarts(static_cast<uint32_t>(options.max_restarts));
  request.set_device(options.device);
  return request;
}

// Watches a job until it has ended. A scheduler that is started anew meanwhile is asked again.
class JobWait {
 public:
  JobWait(SchedulerClient& client, std::string name, SignalSource& signals, Reporter& reporter)
      : client_(client), name_(std::move(name)), signals_(signals), reporter_(reporter) {}

  Result<v1::QueuedJob> Run() {
    for (;;) {
      Status watched = Watch();
      if (watched.ok()) return job_;
      if (watched.code() != StatusCode::kUnavailable) return watched;
      reporter_.Note("the scheduler is gone; waiting for the next one");
      RETURN_IF_ERROR(Look(true).WithContext("lost sight of " + name_));
      if (HasEnded(job_)) return job_;
    }
  }

 private:
  Status Look(bool wait) {
    ASSIGN_OR_RETURN(job_, FindQueuedJob(client_, name_, wait));
    return Status();
  }
  // True when it is about the job.
  bool Tell(const v1::ClusterEvent& event) {
    if (event.number() <= told_) return false;
    told_ = event.number();
    if (event.job() != name_) return false;
    reporter_.Note(event.kind() + (event.node().empty() ? "" : " on " + event.node()) +
                   (event.text().empty() ? "" : ": " + event.text()));
    return true;
  }
  // OK: it has ended.
  Status Watch() {
    // With the event that is told at once it is known that no later one is missed: then it is looked at
    // first.
    bool looked = false;
    v1::EventsRequest request;
    request.set_after(told_);
    request.set_last(told_ == 0 ? 1 : 0);
    AgentStream<v1::ClusterEvent> stream(
        [&](grpc::ClientContext* context) { return client_.stub().Events(context, request); });
    for (;;) {
      pollfd waits[] = {{stream.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
      if (poll(waits, 2, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
      if (waits[1].revents != 0 && signals_.Take()) {
        return Status(StatusCode::kCancelled, "no longer waiting; " + name_ + " goes on by itself");
      }
      bool ended = false;
      std::vector<v1::ClusterEvent> events = stream.Take(&ended);
      bool news = !events.empty() && !looked;
      for (const v1::ClusterEvent& event : events) news |= Tell(event);
      if (news) RETURN_IF_ERROR(Look(false));
      looked |= news;
      if (HasEnded(job_)) return Status();
      if (ended && !stream.status().ok()) return client_.Explained(stream.status());
      if (ended) return Status(StatusCode::kUnavailable, "the scheduler has ended the stream");
    }
  }

  SchedulerClient& client_;
  const std::string name_;
  SignalSource& signals_;
  Reporter& reporter_;
  v1::QueuedJob job_;
  uint64_t told_ = 0;
};

int ReportEnd(const v1::QueuedJob& job, Reporter& reporter) {
  Json fields = {{"job", DescribeQueuedJob(job)}};
  if (job.state() == v1::QUEUE_STATE_DONE) return reporter.DoneWith(job.exit_code(), fields, "");
  std::string why = job.reason().empty() ? "" : ": " + job.reason();
  if (job.state() == v1::QUEUE_STATE_CANCELLED) {
    return reporter.Fail(Status(StatusCode::kCancelled, job.name() + " was cancelled" + why));
  }
  // Its program's own failure is told by its exit code, as by `run`.
  if (job.exit_code() == 0)
    return reporter.Fail(Status(StatusCode::kInternal, job.name() + " has failed" + why));
  reporter.Note(job.name() + " has failed" + why);
  return reporter.DoneWith(job.exit_code(), fields, "");
}

int StayWith(const v1::QueuedJob& job, SchedulerClient& client, SignalSource& signals, Reporter& reporter) {
  Result<v1::QueuedJob> end = JobWait(client, job.name(), signals, reporter).Run();
  if (end.ok()) return ReportEnd(*end, reporter);
  return reporter.Fail(end.status(), "the job goes on; `stasis queue " + job.name() +
                                         "` shows it, `stasis cancel --scheduler " + client.endpoint() + " " +
                                         job.name() + "` ends it");
}

// Of a job that was not taken. The tenant is the one thing that a request names which has to be there before.
std::string RemedyOf(const Status& refused, const std::string& tenant, SchedulerClient& client) {
  if (refused.code() != StatusCode::kNotFound || !client.remedy().empty()) return client.remedy();
  return "`stasis tenants` lists who there is; an operator adds one: `stasis tenants set " + tenant + " 1`";
}

}  // namespace

int SubmitVerb(const Options& options, Context& context) {
  Reporter& reporter = context.reporter;
  Result<v1::SubmitRequest> request = RequestOf(options);
  if (!request.ok()) return FailRun(request.status(), "", reporter);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<SchedulerClient> client = SchedulerClient::Open(context.node);
  if (!client.ok()) return reporter.Fail(client.status());
  Result<v1::QueuedJob> job = client->Call(&v1::Scheduler::Stub::Submit, *request);
  if (!job.ok()) return reporter.Fail(job.status(), RemedyOf(job.status(), request->tenant(), *client));
  reporter.set_task(job->name());
  if (!options.wait) return reporter.Done({{"job", DescribeQueuedJob(*job)}}, job->name());
  if (options.name.empty()) reporter.Note("submitted as " + job->name());
  return StayWith(*job, *client, *signals, reporter);
}

}  // namespace stasis

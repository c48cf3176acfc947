// `stasis logs` through an agent.
#include <unistd.h>

#include <csignal>

#include "cli/agent_follow.h"
#include "cli/agent_verbs.h"
#include "coordinator/node/log_follower.h"

namespace stasis {
namespace {

using Sink = std::function<Status(const std::string&)>;

// The task of a rank, asked for by its own name.
bool IsRankAlone(const v1::Job& job) { return !job.ranked() && !job.ranks(0).node().empty(); }

// What there is now of a rank's output, or all to its end.
Status ReadLog(AgentClient& client, const v1::Job& job, const v1::Rank& rank, bool follow, const Sink& sink) {
  v1::LogsRequest request;
  request.set_name(IsRankAlone(job) ? job.name().substr(0, job.name().rfind('.')) : job.name());
  request.set_rank(static_cast<int>(rank.rank()));
  request.set_follow(follow);
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::LogChunk>> reader = client.stub().Logs(&context, request);
  v1::LogChunk chunk;
  Status status;
  while (status.ok() && reader->Read(&chunk)) status = sink(chunk.data());
  if (!status.ok()) context.TryCancel();
  grpc::Status end = reader->Finish();
  return status.ok() ? client.Explained(FromRpcStatus(end, context, nullptr)) : status;
}

Status Print(const std::string& text) {
  ASSIGN_OR_RETURN(bool read, WriteOutput(STDOUT_FILENO, text));
  return read ? Status() : Status(StatusCode::kPeerDied, "nobody reads the output");
}

// One rank after the other, as nothing tells when a line was printed.
Status PrintAll(AgentClient& client, const v1::Job& job) {
  for (const v1::Rank& rank : job.ranks()) {
    if (rank.missing()) continue;
    RankLines lines(static_cast<int>(rank.rank()));
    RETURN_IF_ERROR(ReadLog(client, job, rank, false, [&](const std::string& text) {
      return Print(job.ranked() ? lines.Take(text) : text);
    }));
    if (job.ranked()) RETURN_IF_ERROR(Print(lines.Finish()));
  }
  return Status();
}

// Who only looks leaves by a signal, and ends nothing.
Status Follow(AgentClient& client, const v1::Job& job) {
  for (int signal : {SIGINT, SIGTERM, SIGQUIT}) std::signal(signal, [](int taken) { _exit(128 + taken); });
  if (IsRankAlone(job)) return ReadLog(client, job, job.ranks(0), true, Print);
  AgentFollower follower(client, job, {});
  AgentFollower::Options options;
  options.stop_when_unread = true;
  options.on_signal = [](int) {};
  options.on_end = [](const RankEnd&) {};
  options.on_alarm = [] {};
  return follower.Follow(nullptr, options);
}

int ReportDocument(AgentClient& client, const v1::Job& job, Context& context) {
  Json ranks = Json::array();
  for (const v1::Rank& rank : job.ranks()) {
    if (rank.missing()) continue;
    std::string output;
    Status read = ReadLog(client, job, rank, false, [&](const std::string& text) {
      output += text;
      return Status();
    });
    if (!read.ok()) return context.reporter.Fail(read);
    ranks.push_back({{"rank", rank.rank()}, {"task", rank.task()}, {"log", rank.log()}, {"output", output}});
  }
  if (job.ranked()) return context.reporter.Done({{"ranks", ranks}}, "");
  return context.reporter.Done({{"log", ranks[0]["log"]}, {"output", ranks[0]["output"]}}, "");
}

// Followed to the end where a process may still print; a job that misses ranks has no end to wait for.
bool CanFollow(const v1::Job& job) {
  for (const v1::Rank& rank : job.ranks()) {
    if (rank.missing()) return false;
  }
  return job.live();
}

}  // namespace

int AgentLogsVerb(const Options& options, Context& context) {
  Status good = CheckTaskName(options.name);
  if (!good.ok()) return context.reporter.Fail(good);
  context.reporter.set_task(options.name);
  Result<AgentClient> client = AgentClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  Result<v1::Job> job = FindJob(*client, options.name);
  if (!job.ok()) return context.reporter.Fail(job.status(), client->remedy());
  if (context.reporter.json()) return ReportDocument(*client, *job, context);
  Status told = options.follow && CanFollow(*job) ? Follow(*client, *job) : PrintAll(*client, *job);
  bool unread = told.code() == StatusCode::kPeerDied;
  return told.ok() || unread ? kExitOk : context.reporter.Fail(told);
}

}  // namespace stasis

#include "coordinator/agent/kinds.h"

#include "coordinator/agent/kind_ghost.h"
#include "coordinator/agent/kind_run.h"
#include "coordinator/job_result.h"
#include "coordinator/node/removal.h"

namespace stasis {
namespace {

using Verb = JobRequest::Verb;

template <typename Message>
Result<Message> Parse(const std::string& request) {
  Message message;
  if (message.ParseFromString(request)) return message;
  return Status(StatusCode::kCorrupt, "the request cannot be read");
}

std::vector<int> OrdinalsOf(const google::protobuf::RepeatedField<uint32_t>& gpus) {
  return {gpus.begin(), gpus.end()};
}

// The same for the ghost of a task and for those of ranks.
void SetField(const char* name, const Json& value, GhostAsk* ask) {
  ask->task[name] = value;
  ask->job.fields[name] = value;
}

GhostAsk AskFor(Verb verb, const v1::PauseOptions& options) {
  GhostAsk ask;
  ask.task["verb"] = JobVerbName(verb);
  ask.job.verb = verb;
  if (options.deadline_ms() > 0) {
    ask.task["deadline_ms"] = options.deadline_ms();
    ask.job.deadline = std::chrono::milliseconds(options.deadline_ms());
  }
  if (options.wait_low_ms() > 0) {
    ask.task["wait_low_ms"] = options.wait_low_ms();
    ask.job.wait_low = std::chrono::milliseconds(options.wait_low_ms());
  }
  if (!options.pause_protocol().empty()) ask.task["pause_protocol"] = options.pause_protocol();
  ask.job.cut = options.pause_protocol() != "timeout";
  if (options.attempts() > 0) ask.job.attempts = static_cast<int>(options.attempts());
  ask.only_jobs = options.attempts() > 0;
  return ask;
}

void SetGpus(const google::protobuf::RepeatedField<uint32_t>& gpus, GhostAsk* ask) {
  if (gpus.empty()) return;
  ask->job.gpus = OrdinalsOf(gpus);
  ask->task["gpus"] = ask->job.gpus;
}

Result<GhostAsk> ReadPause(const std::string& request) {
  ASSIGN_OR_RETURN(v1::PauseRequest message, Parse<v1::PauseRequest>(request));
  GhostAsk ask = AskFor(Verb::kPause, message.options());
  if (!message.residency().empty()) SetField("residency", message.residency(), &ask);
  if (message.no_freeze()) SetField("freeze", false, &ask);
  return ask;
}

Result<GhostAsk> ReadResume(const std::string& request) {
  ASSIGN_OR_RETURN(v1::ResumeRequest message, Parse<v1::ResumeRequest>(request));
  GhostAsk ask = AskFor(Verb::kResume, message.options());
  SetGpus(message.gpus(), &ask);
  return ask;
}

Result<GhostAsk> ReadCheckpoint(const std::string& request) {
  ASSIGN_OR_RETURN(v1::CheckpointRequest message, Parse<v1::CheckpointRequest>(request));
  GhostAsk ask = AskFor(Verb::kCheckpoint, message.options());
  if (message.stop()) ask.task["stop"] = true;
  ask.job.stop = message.stop();
  if (!message.snapshot().empty()) SetField("snapshot", message.snapshot(), &ask);
  if (!message.device_hash().empty()) SetField("device_hash", message.device_hash(), &ask);
  if (message.has_snapshot_host_percent())
    SetField("snapshot_host_percent", message.snapshot_host_percent(), &ask);
  return ask;
}

Result<GhostAsk> ReadRestore(const std::string& request) {
  ASSIGN_OR_RETURN(v1::RestoreRequest message, Parse<v1::RestoreRequest>(request));
  GhostAsk ask = AskFor(Verb::kRestore, message.options());
  SetGpus(message.gpus(), &ask);
  if (!message.image().empty()) ask.task["image"] = message.image();
  ask.job.image = message.image();
  ask.take_back = message.take_back();
  return ask;
}

Result<GhostAsk> ReadMigrate(const std::string& request) {
  ASSIGN_OR_RETURN(v1::MigrateRequest message, Parse<v1::MigrateRequest>(request));
  GhostAsk ask = AskFor(Verb::kMigrate, message.options());
  SetGpus(message.gpus(), &ask);
  return ask;
}

Result<GhostAsk> ReadCancel(const std::string& request) {
  ASSIGN_OR_RETURN(v1::CancelRequest message, Parse<v1::CancelRequest>(request));
  GhostAsk ask = AskFor(Verb::kCancel, v1::PauseOptions());
  ask.task["what"] = "task";
  if (message.grace_ms() > 0) SetField("grace_ms", message.grace_ms(), &ask);
  return ask;
}

// To other devices here, or to another node.
class MigrateKind final : public OperationKind {
 public:
  MigrateKind(const Site& site, std::unique_ptr<OperationKind> to_node)
      : here_(Verb::kMigrate, site, ReadMigrate), to_node_(std::move(to_node)) {}

  Json Carry(OperationContext& context) override {
    OperationKind* kind = Choose(context);
    return kind != nullptr ? kind->Carry(context) : Refuse();
  }
  Json Recover(OperationContext& context) override {
    OperationKind* kind = Choose(context);
    return kind != nullptr ? kind->Recover(context) : Refuse();
  }

 private:
  OperationKind* Choose(OperationContext& context) {
    Result<v1::MigrateRequest> message = Parse<v1::MigrateRequest>(context.request());
    // What cannot be read is refused there.
    return message.ok() && !message->node().empty() ? to_node_.get() : &here_;
  }
  static Json Refuse() {
    return FailureJson("migrate", Status(StatusCode::kUnsupported, "this agent does not reach other nodes"),
                       "start it with --peer-address");
  }

  GhostKind here_;
  const std::unique_ptr<OperationKind> to_node_;
};

class RemoveKind final : public OperationKind {
 public:
  explicit RemoveKind(Site site) : site_(std::move(site)) {}

  Json Carry(OperationContext& context) override {
    Result<v1::RemoveRequest> message = Parse<v1::RemoveRequest>(context.request());
    std::string remedy;
    Result<Removed> removed = message.ok()
                                  ? RemoveByName(context.job(), message->images(), site_.folders, &remedy)
                                  : Result<Removed>(message.status());
    if (!removed.ok()) return FailureJson("remove", removed.status(), remedy);
    return {{"ok", true},
            {"verb", "remove"},
            {"bytes", removed->bytes},
            {"images", removed->images},
            {"had_old", removed->had_old},
            {"notes", removed->notes}};
  }

  // What is gone already may be all that there was.
  Json Recover(OperationContext& context) override {
    Json result = Carry(context);
    if (TextField(result, "code") != StatusCodeName(StatusCode::kNotFound)) return result;
    return {{"ok", true}, {"verb", "remove"}, {"bytes", 0}, {"images", 0}, {"notes", Json::array()}};
  }

 private:
  const Site site_;
};

}  // namespace

Operations::Kinds MakeKinds(KindOptions options) {
  const Site& site = options.site;
  Operations::Kinds kinds;
  kinds["pause"] = std::make_unique<GhostKind>(Verb::kPause, site, ReadPause);
  kinds["resume"] = std::make_unique<GhostKind>(Verb::kResume, site, ReadResume);
  kinds["checkpoint"] = std::make_unique<GhostKind>(Verb::kCheckpoint, site, ReadCheckpoint);
  kinds["restore"] =
      std::make_unique<GhostKind>(Verb::kRestore, site, ReadRestore, std::move(options.set_moved_to));
  kinds["cancel"] = std::make_unique<GhostKind>(Verb::kCancel, site, ReadCancel);
  kinds["migrate"] = std::make_unique<MigrateKind>(site, std::move(options.node_migration));
  if (options.image_copy) kinds["copy"] = std::move(options.image_copy);
  kinds["remove"] = std::make_unique<RemoveKind>(site);
  kinds["run"] = std::make_unique<RunKind>(site, std::move(options.set_schedule));
  return kinds;
}

}  // namespace stasis

// The verbs through an agent, against a server in this process that does as each test says.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <mutex>

#include "cli/agent_verbs.h"
#include "cli/node_choice.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

v1::Operation MakeOperation(const std::string& verb, const std::string& job, v1::OperationState state) {
  v1::Operation operation;
  operation.set_id("op-000001");
  operation.set_verb(verb);
  operation.set_job(job);
  operation.set_state(state);
  return operation;
}

v1::Operation Ended(const std::string& verb, const std::string& job, const Json& result) {
  bool ok = BoolField(result, "ok");
  v1::Operation operation =
      MakeOperation(verb, job, ok ? v1::OPERATION_STATE_SUCCEEDED : v1::OPERATION_STATE_FAILED);
  operation.set_result_json(result.dump());
  return operation;
}

v1::Job MakeTask(const std::string& name, v1::Condition condition) {
  v1::Job job;
  job.set_name(name);
  job.set_condition(condition);
  job.set_live(condition == v1::CONDITION_RUNNING || condition == v1::CONDITION_PAUSED);
  job.add_argv("./train");
  v1::Rank* rank = job.add_ranks();
  rank->set_task(name);
  rank->set_condition(condition);
  rank->set_device("soft");
  rank->set_log("/state/" + name + ".log");
  if (job.live()) rank->set_pid(4711), rank->set_init_pid(4710);
  return job;
}

v1::Job MakeRanked(const std::string& name, int ranks, v1::Condition condition) {
  v1::Job job = MakeTask(name, condition);
  job.set_ranked(true);
  job.set_text("as told");
  job.clear_ranks();
  for (int i = 0; i < ranks; i++) {
    v1::Rank* rank = job.add_ranks();
    *rank = MakeTask(name + "." + std::to_string(i), condition).ranks(0);
    rank->set_rank(static_cast<uint32_t>(i));
    rank->set_node("here");
  }
  return job;
}

class FakeAgent final : public v1::Agent::Service {
 public:
  using Context = grpc::ServerContext;
  template <typename Message>
  using Writer = grpc::ServerWriter<Message>;

  std::map<std::string, v1::Job> jobs;  // before the server is used, or by Change()
  std::vector<v1::Operation> story;  // what WatchOperation tells; the first is what a verb is answered with
  std::map<std::string, std::string> logs;  // by "NAME:RANK"
  std::string last_verb, last_key;
  google::protobuf::Any last;
  int signal = 0;
  int cancelled = 0;
  int watches = 0;
  bool break_first_watch = false;
  std::function<void()> on_watch;  // after the first event

  void Change(const v1::Job& job) {
    std::lock_guard lock(mutex_);
    jobs[job.name()] = job;
    revision_++;
    changed_.notify_all();
  }
  // Returns once the job was sent one.
  void AwaitSignal() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return signal != 0; });
  }
  // Lets the operation go on to its end.
  void Finish(const v1::Operation& end) {
    std::lock_guard lock(mutex_);
    story.push_back(end);
    changed_.notify_all();
  }

  grpc::Status List(Context*, const v1::ListRequest* request, v1::ListResponse* response) override {
    std::lock_guard lock(mutex_);
    for (const auto& [name, job] : jobs) {
      if (request->name().empty() || request->name() == name) *response->add_jobs() = job;
    }
    return grpc::Status::OK;
  }
  grpc::Status Watch(Context* context, const v1::WatchRequest* request,
                     Writer<v1::WatchEvent>* writer) override {
    std::unique_lock lock(mutex_);
    for (uint64_t told = 0; !context->IsCancelled();) {
      for (const auto& [name, job] : jobs) {
        if (request->name() != name || told > revision_) continue;
        v1::WatchEvent event;
        *event.mutable_job() = job;
        if (!writer->Write(event)) return grpc::Status::OK;
      }
      told = revision_ + 1;
      changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return revision_ >= told; });
    }
    return grpc::Status::OK;
  }
  grpc::Status Logs(Context*, const v1::LogsRequest* request, Writer<v1::LogChunk>* writer) override {
    std::unique_lock lock(mutex_);
    std::string text = logs[request->name() + ":" + std::to_string(request->rank())];
    v1::LogChunk chunk;
    chunk.set_offset(request->offset());
    chunk.set_data(text.substr(std::min<size_t>(request->offset(), text.size())));
    writer->Write(chunk);
    return grpc::Status::OK;
  }

  template <typename Request>
  grpc::Status Submit(Context* context, const char* verb, const Request& request, v1::Operation* response) {
    last_verb = verb;
    last_key = request.change().idempotency_key();
    last.PackFrom(request);
    if (story.empty()) {
      return ToRpcStatus(Status(StatusCode::kResourceExhausted, "too many are queued"), "wait", context);
    }
    *response = story.front();
    return grpc::Status::OK;
  }
  grpc::Status Run(Context* context, const v1::RunRequest* request, v1::Operation* response) override {
    return Submit(context, "run", *request, response);
  }
  grpc::Status Pause(Context* context, const v1::PauseRequest* request, v1::Operation* response) override {
    return Submit(context, "pause", *request, response);
  }
  grpc::Status Checkpoint(Context* context, const v1::CheckpointRequest* request,
                          v1::Operation* response) override {
    return Submit(context, "checkpoint", *request, response);
  }
  grpc::Status Migrate(Context* context, const v1::MigrateRequest* request,
                       v1::Operation* response) override {
    return Submit(context, "migrate", *request, response);
  }
  grpc::Status Restore(Context* context, const v1::RestoreRequest* request,
                       v1::Operation* response) override {
    return Submit(context, "restore", *request, response);
  }
  grpc::Status GetOperation(Context*, const v1::GetOperationRequest*, v1::Operation* response) override {
    std::lock_guard lock(mutex_);
    *response = story.back();
    return grpc::Status::OK;
  }
  grpc::Status ListOperations(Context*, const v1::ListOperationsRequest*,
                              v1::ListOperationsResponse* response) override {
    std::lock_guard lock(mutex_);
    for (const v1::Operation& operation : story) *response->add_operations() = operation;
    return grpc::Status::OK;
  }
  grpc::Status WatchOperation(Context* context, const v1::WatchOperationRequest*,
                              Writer<v1::Operation>* writer) override {
    std::unique_lock lock(mutex_);
    bool first = watches++ == 0;
    for (size_t told = 0; !context->IsCancelled();) {
      for (; told < story.size(); told++) writer->Write(story[told]);
      if (first && break_first_watch) return grpc::Status(grpc::UNAVAILABLE, "going down");
      if (story.back().state() > v1::OPERATION_STATE_RUNNING) break;
      if (on_watch) std::exchange(on_watch, nullptr)();
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    return grpc::Status::OK;
  }
  grpc::Status CancelOperation(Context*, const v1::CancelOperationRequest*,
                               v1::Operation* response) override {
    std::lock_guard lock(mutex_);
    cancelled++;
    *response = story.back();
    story.push_back(MakeOperation("pause", "t", v1::OPERATION_STATE_CANCELLED));
    story.back().set_result_json(
        R"({"ok": false, "code": "CANCELLED", "message": "given up", "left": "rolled-back"})");
    changed_.notify_all();
    return grpc::Status::OK;
  }
  grpc::Status Signal(Context*, const v1::SignalRequest* request, v1::SignalResponse*) override {
    std::lock_guard lock(mutex_);
    signal = request->signal();
    changed_.notify_all();
    return grpc::Status::OK;
  }
  grpc::Status SetSchedule(Context*, const v1::SetScheduleRequest* request, v1::Schedule* response) override {
    last.PackFrom(*request);
    *response = request->schedule();
    response->set_next_ms(1);
    return grpc::Status::OK;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t revision_ = 0;
};

class AgentVerbs : public testing::Test {
 protected:
  AgentVerbs() {
    // As the command has it: threads of gRPC must not take what is meant for it.
    sigset_t set;
    sigemptyset(&set);
    for (int signal : {SIGINT, SIGTERM, SIGQUIT}) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    node_ = "unix:" + folder_.File("agent.sock");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(node_, grpc::InsecureServerCredentials());
    builder.RegisterService(&agent_);
    server_ = builder.BuildAndStart();
  }
  ~AgentVerbs() override { server_->Shutdown(std::chrono::system_clock::now()); }

  struct Outcome {
    int code = 0;
    std::string out, err;
    Json document() const { return Json::parse(out, nullptr, false); }
  };
  Outcome Do(int (*verb)(const Options&, Context&), Options options) {
    Reporter reporter({options.json, options.quiet, false}, options.verb);
    Context context{{{folder_.File("state"), folder_.File("run")}, {}}, reporter, node_};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Outcome outcome;
    outcome.code = verb(options, context);
    std::fflush(nullptr);
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }
  static Options Of(const std::string& verb, const std::string& name, bool json = false) {
    Options options;
    options.verb = verb;
    options.name = name;
    options.json = json;
    return options;
  }

  TempFolder folder_;
  FakeAgent agent_;
  std::string node_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(AgentVerbs, PsShowsWhatIsTold) {
  agent_.jobs["a"] = MakeTask("a", v1::CONDITION_RUNNING);
  agent_.jobs["b"] = MakeTask("b", v1::CONDITION_EXITED);
  agent_.jobs["c"] = MakeRanked("c", 2, v1::CONDITION_RUNNING);
  Outcome live = Do(AgentPsVerb, Of("ps", ""));
  EXPECT_EQ(live.code, 0);
  EXPECT_NE(live.out.find("4711"), std::string::npos);
  EXPECT_EQ(live.out.find("exited"), std::string::npos);
  EXPECT_NE(live.out.find("as told"), std::string::npos);
  Outcome one = Do(AgentPsVerb, Of("ps", "b", true));
  EXPECT_EQ(one.document()["tasks"][0]["state"], "exited");
  EXPECT_EQ(one.document()["task"], "b");
  Outcome rank = Do(AgentPsVerb, Of("ps", "c.1", true));
  EXPECT_EQ(rank.document()["tasks"][0]["name"], "c.1");
  Outcome none = Do(AgentPsVerb, Of("ps", "x", true));
  EXPECT_EQ(none.code, kExitNotFound);
  EXPECT_EQ(none.document()["message"], "no task x");
}

TEST_F(AgentVerbs, AnOperationIsToldToItsEnd) {
  v1::Operation running = MakeOperation("pause", "t", v1::OPERATION_STATE_RUNNING);
  running.set_phase("drain");
  running.add_notes("look at this");
  Json result = {{"ok", true}, {"pause_ms", 12}, {"device_bytes", 2048}, {"residency", "host"}};
  agent_.story = {running, Ended("pause", "t", result)};
  Options options = Of("pause", "t");
  options.residency = "host";
  Outcome outcome = Do(AgentPauseVerb, options);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "t is paused after 12 ms: 2.0 KiB of device memory held in host\n");
  EXPECT_EQ(outcome.err, "stasis: look at this\nstasis: drain\n");
  v1::PauseRequest request;
  ASSERT_TRUE(agent_.last.UnpackTo(&request));
  EXPECT_EQ(request.residency(), "host");
  std::string key = agent_.last_key;
  EXPECT_FALSE(key.empty());
  Do(AgentPauseVerb, options);
  EXPECT_NE(agent_.last_key, key);
}

TEST_F(AgentVerbs, FailuresAreThoseOfTheAgent) {
  Json failure = {{"ok", false}, {"code", "TIMEOUT"}, {"message", "late"}, {"left", "rolled-back"}};
  agent_.story = {Ended("checkpoint", "t", failure)};
  Outcome late = Do(AgentCheckpointVerb, Of("checkpoint", "t", true));
  EXPECT_EQ(late.code, kExitTimeout);
  EXPECT_EQ(late.document()["left"], "rolled-back");
  EXPECT_EQ(late.document()["exit_code"], kExitTimeout);
  agent_.story.clear();
  Outcome full = Do(AgentCheckpointVerb, Of("checkpoint", "t", true));
  EXPECT_EQ(full.code, kExitNoRoom);
  EXPECT_EQ(full.document()["remedy"], "wait");
  EXPECT_EQ(Do(AgentCheckpointVerb, Of("checkpoint", "../t")).code, kExitUsage);
}

TEST_F(AgentVerbs, WithoutAnAgentItSaysWhom) {
  server_->Shutdown(std::chrono::system_clock::now());
  Outcome outcome = Do(AgentPauseVerb, Of("pause", "t", true));
  EXPECT_EQ(outcome.code, kExitPeerGone);
  EXPECT_NE(outcome.out.find(node_), std::string::npos);
}

TEST_F(AgentVerbs, AnInterruptAsksToGiveUp) {
  agent_.story = {MakeOperation("pause", "t", v1::OPERATION_STATE_RUNNING)};
  pthread_t self = pthread_self();
  agent_.on_watch = [self] { pthread_kill(self, SIGINT); };
  Outcome outcome = Do(AgentPauseVerb, Of("pause", "t", true));
  EXPECT_EQ(outcome.code, kExitCancelled);
  EXPECT_EQ(outcome.document()["left"], "rolled-back");
  EXPECT_EQ(agent_.cancelled, 1);
}

TEST_F(AgentVerbs, AnAgentThatIsStartedAnewIsAskedAgain) {
  agent_.story = {MakeOperation("pause", "t", v1::OPERATION_STATE_RUNNING)};
  agent_.break_first_watch = true;
  agent_.on_watch = [this] {
    agent_.story.push_back(Ended("pause", "t", {{"ok", true}, {"residency", "device"}}));
  };
  Outcome outcome = Do(AgentPauseVerb, Of("pause", "t", true));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(agent_.watches, 2);
  EXPECT_NE(outcome.document()["notes"][0].get<std::string>().find("waiting for the next"),
            std::string::npos);
}

TEST_F(AgentVerbs, RunTellsTheOutputAndExitsAsTheProgram) {
  agent_.jobs["train"] = MakeTask("train", v1::CONDITION_RUNNING);
  agent_.logs["train:0"] = "step 1\nstep 2\n";
  v1::Job ended = MakeTask("train", v1::CONDITION_EXITED);
  ended.mutable_ranks(0)->set_exit_code(3);
  ended.mutable_ranks(0)->set_managed(true);
  agent_.story = {Ended("run", "train", {{"ok", true}, {"pid", 4711}, {"state", "running"}, {"log", "l"}})};
  agent_.jobs["train"] = ended;
  Options options = Of("run", "");
  options.program = {"./train", "-x"};
  Outcome outcome = Do(AgentRunVerb, options);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.out, "step 1\nstep 2\n");
  v1::RunRequest request;
  ASSERT_TRUE(agent_.last.UnpackTo(&request));
  EXPECT_EQ(request.argv(1), "-x");
  EXPECT_EQ(request.folder()[0], '/');
  options.json = true;
  Json document = Do(AgentRunVerb, options).document();
  EXPECT_EQ(document["exit_code"], 3);
  EXPECT_EQ(document["state"], "exited");
  EXPECT_EQ(document["log"], "/state/train.log");
  EXPECT_EQ(document["task"], "train");
  options.detach = true;
  document = Do(AgentRunVerb, options).document();
  EXPECT_EQ(document["state"], "running");
}

TEST_F(AgentVerbs, AFailedRankEndsTheOthers) {
  v1::Job job = MakeRanked("ddp", 2, v1::CONDITION_RUNNING);
  job.mutable_ranks(1)->set_condition(v1::CONDITION_EXITED);
  job.mutable_ranks(1)->set_exit_code(7);
  agent_.jobs["ddp"] = job;
  agent_.logs["ddp:0"] = "a\nb";
  agent_.story = {Ended("run", "ddp", {{"ok", true}, {"job", "ddp"}, {"ranks", Json::array()}})};
  std::thread ends([&] {
    agent_.AwaitSignal();
    job.mutable_ranks(0)->set_condition(v1::CONDITION_KILLED);
    job.mutable_ranks(0)->set_signal(SIGTERM);
    agent_.Change(job);
  });
  Options options = Of("run", "");
  options.program = {"./ddp"};
  options.ranks = 2;
  Outcome outcome = Do(AgentRunVerb, options);
  ends.join();
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(agent_.signal, SIGTERM);
  EXPECT_EQ(outcome.out, "[0] a\n[0] b\n");
  EXPECT_NE(outcome.err.find("rank 1 of ddp exited with 7: ending the other one"), std::string::npos);
}

TEST_F(AgentVerbs, RestoreGoesOnWhereTheOutputWas) {
  v1::Job ended = MakeTask("t", v1::CONDITION_EXITED);
  agent_.jobs["t"] = ended;
  agent_.logs["t:0"] = "before\nafter\n";
  agent_.story = {Ended("restore", "t", {{"ok", true}, {"image", "000001"}, {"log_length", 7}})};
  Options options = Of("restore", "");
  options.target = "t/000001";
  Outcome outcome = Do(AgentRestoreVerb, options);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "after\n");
  v1::RestoreRequest request;
  ASSERT_TRUE(agent_.last.UnpackTo(&request));
  EXPECT_EQ(request.job() + "/" + request.image(), "t/000001");
  EXPECT_FALSE(request.take_back());
  options.take_back = true;
  EXPECT_EQ(Do(AgentRestoreVerb, options).code, 0);
  ASSERT_TRUE(agent_.last.UnpackTo(&request));
  EXPECT_TRUE(request.take_back());
}

TEST_F(AgentVerbs, LogsOfRanksHaveThemBeforeEachLine) {
  agent_.jobs["ddp"] = MakeRanked("ddp", 2, v1::CONDITION_EXITED);
  agent_.logs["ddp:0"] = "a\n";
  agent_.logs["ddp:1"] = "b\nc";
  EXPECT_EQ(Do(AgentLogsVerb, Of("logs", "ddp")).out, "[0] a\n[1] b\n[1] c\n");
  EXPECT_EQ(Do(AgentLogsVerb, Of("logs", "ddp.1")).out, "b\nc");
  EXPECT_EQ(Do(AgentLogsVerb, Of("logs", "ddp", true)).document()["ranks"][1]["output"], "b\nc");
}

TEST_F(AgentVerbs, GivingUpDoesNotStandInTheQueue) {
  agent_.story = {MakeOperation("pause", "t", v1::OPERATION_STATE_RUNNING)};
  Options options = Of("cancel", "t", true);
  options.operation = true;
  Outcome outcome = Do(AgentCancelVerb, options);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(agent_.cancelled, 1);
  EXPECT_EQ(outcome.document()["what"], "operation");
  EXPECT_EQ(Do(AgentCancelVerb, options).code, 0);
  agent_.story = {Ended("pause", "t", {{"ok", true}})};
  EXPECT_EQ(Do(AgentCancelVerb, options).code, kExitState);
}

TEST_F(AgentVerbs, AScheduleIsAsGiven) {
  Options options = Of("schedule", "t", true);
  options.below = "set";
  options.every = std::chrono::minutes(10);
  options.keep = 4;
  options.budget = 2.5;
  options.max_restarts = 5;
  Outcome outcome = Do(ScheduleVerb, options);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.document()["schedule"]["interval_ms"], 600000);
  EXPECT_EQ(outcome.document()["schedule"]["overhead_budget"], 0.025);
  options.below = "rm";
  Do(ScheduleVerb, options);
  v1::SetScheduleRequest request;
  ASSERT_TRUE(agent_.last.UnpackTo(&request));
  EXPECT_EQ(request.schedule().interval_ms(), 0u);
  EXPECT_EQ(request.schedule().max_restarts(), 0u);
}

TEST_F(AgentVerbs, OperationsAreListedAndShown) {
  v1::Operation operation = Ended("pause", "t", {{"ok", false}, {"code", "TIMEOUT"}, {"message", "late"}});
  v1::Span* span = operation.add_spans();
  span->set_id(1);
  span->set_name("drain");
  span->set_end_us(1500);
  agent_.story = {operation};
  Options options = Of("ops", "");
  options.below = "ls";
  EXPECT_NE(Do(OpsVerb, options).out.find("TIMEOUT: late"), std::string::npos);
  options.below = "show";
  options.target = "op-000001";
  Outcome shown = Do(OpsVerb, options);
  EXPECT_NE(shown.out.find("drain"), std::string::npos);
  options.json = true;
  EXPECT_EQ(Do(OpsVerb, options).document()["operation"]["spans"][0]["end_us"], 1500);
}

}  // namespace
}  // namespace stasis

// The verbs through a scheduler, against a server in this process that does as each test says.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "cli/node_choice.h"
#include "cli/scheduler_verbs.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

v1::QueuedJob MakeJob(const std::string& name, v1::QueueState state) {
  v1::QueuedJob job;
  job.set_name(name);
  job.set_tenant("red");
  job.set_state(state);
  job.set_gpus(2);
  job.set_submitted_ms(1000);
  return job;
}

class FakeScheduler final : public v1::Scheduler::Service {
 public:
  using Context = grpc::ServerContext;

  google::protobuf::Any last;
  Status refusal;  // of changes
  std::string remedy = "ask an operator";
  v1::DefragmentReply plan;
  v1::ClusterNode node;
  int streams = 0;
  bool break_first_stream = false;
  std::function<void()> on_stream;  // once it has told what there was
  std::function<void()> on_look;    // once somebody has been told of the jobs

  void Set(const v1::QueuedJob& job) {
    std::lock_guard lock(mutex_);
    jobs_[job.name()] = job;
  }
  void Happen(const std::string& kind, const std::string& job, const std::string& text = "") {
    std::lock_guard lock(mutex_);
    v1::ClusterEvent event;
    event.set_number(events_.size() + 1);
    event.set_at_ms(1000);
    event.set_kind(kind);
    event.set_job(job);
    event.set_node("node-1");
    event.set_text(text);
    events_.push_back(event);
    changed_.notify_all();
  }
  void Change(const v1::QueuedJob& job, const std::string& kind) {
    Set(job);
    Happen(kind, job.name());
  }

  static v1::NodeSave* Save(v1::ClusterNode* of, const char* job, v1::SaveState state) {
    v1::NodeSave* save = of->add_saves();
    save->set_job(job);
    save->set_state(state);
    return save;
  }

  grpc::Status Submit(Context* context, const v1::SubmitRequest* request, v1::QueuedJob* response) override {
    last.PackFrom(*request);
    if (!refusal.ok()) return ToRpcStatus(refusal, remedy, context);
    *response = MakeJob(request->name().empty() ? "train-1" : request->name(), v1::QUEUE_STATE_PENDING);
    Change(*response, "submitted");
    return grpc::Status::OK;
  }
  grpc::Status Queue(Context* context, const v1::QueueRequest* request, v1::QueueReply* response) override {
    last.PackFrom(*request);
    {
      std::lock_guard lock(mutex_);
      for (const auto& [name, job] : jobs_) {
        if (request->name().empty() || request->name() == name) *response->add_jobs() = job;
      }
    }
    if (on_look) std::exchange(on_look, nullptr)();
    if (request->name().empty() || !response->jobs().empty()) return grpc::Status::OK;
    return ToRpcStatus(Status(StatusCode::kNotFound, "there is no job " + request->name()), "", context);
  }
  grpc::Status CancelJob(Context* context, const v1::CancelJobRequest* request,
                         v1::QueuedJob* response) override {
    last.PackFrom(*request);
    if (!refusal.ok()) return ToRpcStatus(refusal, "", context);
    *response = MakeJob(request->name(), v1::QUEUE_STATE_CANCELLED);
    return grpc::Status::OK;
  }
  grpc::Status Tenants(Context*, const v1::TenantsRequest*, v1::TenantsReply* response) override {
    v1::Tenant* tenant = response->add_tenants();
    tenant->set_name("red");
    tenant->set_weight(2);
    tenant->set_quota(8);
    tenant->set_fairness(0.98);
    return grpc::Status::OK;
  }
  grpc::Status SetTenant(Context*, const v1::SetTenantRequest* request, v1::Tenant* response) override {
    last.PackFrom(*request);
    response->set_name(request->name());
    response->set_weight(request->weight());
    return grpc::Status::OK;
  }
  grpc::Status Nodes(Context*, const v1::NodesRequest*, v1::NodesReply* response) override {
    *response->add_nodes() = node;
    return grpc::Status::OK;
  }
  grpc::Status Drain(Context*, const v1::DrainRequest* request, v1::ClusterNode* response) override {
    last.PackFrom(*request);
    *response = node;
    response->set_draining(true);
    if (request->notice_ms() == 0) return grpc::Status::OK;
    response->set_deadline_ms(1'800'000'000'000);
    Save(response, "train", v1::SAVE_STATE_SAVING);
    return grpc::Status::OK;
  }
  grpc::Status Undrain(Context*, const v1::UndrainRequest* request, v1::ClusterNode* response) override {
    last.PackFrom(*request);
    *response = node;
    return grpc::Status::OK;
  }
  grpc::Status SetMaintenance(Context*, const v1::SetMaintenanceRequest* request,
                              v1::ClusterNode* response) override {
    last.PackFrom(*request);
    *response = node;
    response->set_maintenance_start_ms(request->start_ms());
    response->set_maintenance_end_ms(request->end_ms());
    return grpc::Status::OK;
  }
  grpc::Status Defragment(Context*, const v1::DefragmentRequest* request,
                          v1::DefragmentReply* response) override {
    last.PackFrom(*request);
    *response = plan;
    return grpc::Status::OK;
  }
  grpc::Status ClusterInfo(Context*, const v1::ClusterInfoRequest*, v1::ClusterInfoReply*) override {
    return grpc::Status::OK;
  }
  grpc::Status Events(Context* context, const v1::EventsRequest* request,
                      grpc::ServerWriter<v1::ClusterEvent>* writer) override {
    std::unique_lock lock(mutex_);
    bool first = streams++ == 0;
    size_t next = request->last() == 0 ? request->after()
                                       : events_.size() - std::min<size_t>(events_.size(), request->last());
    while (!context->IsCancelled()) {
      for (; next < events_.size(); next++) writer->Write(events_[next]);
      if (request->until_now()) return grpc::Status::OK;
      if (first && break_first_stream) return grpc::Status(grpc::UNAVAILABLE, "going down");
      if (on_stream) {
        lock.unlock();
        std::exchange(on_stream, nullptr)();
        lock.lock();
        continue;
      }
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    return grpc::Status::OK;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, v1::QueuedJob> jobs_;
  std::vector<v1::ClusterEvent> events_;
};

class SchedulerVerbs : public testing::Test {
 protected:
  SchedulerVerbs() {
    // As the command has it: threads of gRPC must not take what is meant for it.
    sigset_t set;
    sigemptyset(&set);
    for (int signal : {SIGINT, SIGTERM, SIGQUIT}) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    scheduler_.node.set_name("node-1");
    scheduler_.node.set_devices(4);
    scheduler_.node.set_free(2);
    scheduler_.node.set_reachable(true);
    for (const char* job : {"a", "a", "", ""}) scheduler_.node.add_jobs(job);
    endpoint_ = "unix:" + folder_.File("schedd.sock");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&scheduler_);
    server_ = builder.BuildAndStart();
  }
  ~SchedulerVerbs() override { server_->Shutdown(std::chrono::system_clock::now()); }

  struct Outcome {
    int code = 0;
    std::string out, err;
    Json document() const { return Json::parse(out, nullptr, false); }
  };
  Outcome Do(int (*verb)(const Options&, Context&), const Options& options) {
    Reporter reporter({options.json, options.quiet, false}, options.verb);
    Context context{{{folder_.File("state"), folder_.File("run")}, {}}, reporter, endpoint_};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Outcome outcome;
    outcome.code = verb(options, context);
    std::fflush(nullptr);
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
  }
  static Options Of(const std::string& verb, bool json = false) {
    Options options;
    options.verb = verb;
    options.json = json;
    return options;
  }
  static Options Submission(bool wait, bool json = false) {
    Options options = Of("submit", json);
    options.name = "train";
    options.tenant = "red";
    options.program = {"/nodes/alone/train", "-x"};
    options.wait = wait;
    return options;
  }
  template <typename Request>
  Request Last() {
    Request request;
    EXPECT_TRUE(scheduler_.last.UnpackTo(&request));
    return request;
  }

  TempFolder folder_;
  FakeScheduler scheduler_;
  std::string endpoint_;
  std::unique_ptr<grpc::Server> server_;
};

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(SchedulerVerbs, SubmitTellsWhatIsAskedForAndPrintsTheName) {
  Options options = Submission(false);
  options.gpu_count = 2;
  options.ranked = true;
  options.priority = -3;
  options.min_gpus = 1;
  options.max_gpus = 4;
  options.every = std::chrono::minutes(10);
  options.estimate = std::chrono::hours(2);
  options.max_restarts = 3;
  options.device_memory = 8ull << 30;
  options.utilization = 0.4;
  options.environment = {"EXTRA=1"};
  Outcome outcome = Do(SubmitVerb, options);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "train\n");
  auto request = Last<v1::SubmitRequest>();
  EXPECT_EQ(request.argv(0), "/nodes/alone/train");
  EXPECT_EQ(request.argv(1), "-x");
  EXPECT_EQ(request.folder()[0], '/');
  EXPECT_EQ(request.gpus(), 2u);
  EXPECT_EQ(request.ranks(), 2u);
  EXPECT_EQ(request.priority(), -3);
  EXPECT_EQ(request.checkpoint_interval_ms(), 600000u);
  EXPECT_EQ(request.estimate_ms(), 7200000u);
  EXPECT_EQ(request.max_restarts(), 3u);
  EXPECT_EQ(request.memory_bytes(), 8ull << 30);
  EXPECT_DOUBLE_EQ(request.utilization(), 0.4);
  EXPECT_EQ(request.environment(request.environment_size() - 1), "EXTRA=1");
  std::string key = request.idempotency_key();
  EXPECT_FALSE(key.empty());
  Do(SubmitVerb, options);
  EXPECT_NE(Last<v1::SubmitRequest>().idempotency_key(), key);
}

TEST_F(SchedulerVerbs, AProgramIsFoundHereUnlessItsPathIsAbsolute) {
  Options options = Submission(false);
  options.program = {"sh"};
  EXPECT_EQ(Do(SubmitVerb, options).code, 0);
  EXPECT_EQ(Last<v1::SubmitRequest>().argv(0)[0], '/');
  options.program = {"no-such-program-anywhere"};
  EXPECT_EQ(Do(SubmitVerb, options).code, kExitNoProgram);
}

TEST_F(SchedulerVerbs, WhatTheSchedulerRefusesIsTold) {
  scheduler_.refusal = Status(StatusCode::kNotFound, "there is no tenant red");
  Outcome outcome = Do(SubmitVerb, Submission(false, true));
  EXPECT_EQ(outcome.code, kExitNotFound);
  EXPECT_EQ(outcome.document()["message"], "there is no tenant red");
  EXPECT_EQ(outcome.document()["remedy"], "ask an operator");
  scheduler_.remedy = "";
  Options options = Submission(false, true);
  options.tenant = "red";
  EXPECT_TRUE(Has(Do(SubmitVerb, options).document()["remedy"], "stasis tenants set red 1"));
}

TEST_F(SchedulerVerbs, WaitingEndsAsTheProgramDoes) {
  scheduler_.on_look = [this] {
    scheduler_.Happen("started", "other");
    scheduler_.Change(MakeJob("train", v1::QUEUE_STATE_RUNNING), "started");
    v1::QueuedJob ended = MakeJob("train", v1::QUEUE_STATE_FAILED);
    ended.set_exit_code(3);
    ended.set_reason("its program has failed");
    scheduler_.Change(ended, "failed");
  };
  Outcome outcome = Do(SubmitVerb, Submission(true));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(Has(outcome.err, "started on node-1")) << outcome.err;
  EXPECT_TRUE(Has(outcome.err, "train has failed: its program has failed")) << outcome.err;
  scheduler_.on_stream = [this] { scheduler_.Change(MakeJob("train", v1::QUEUE_STATE_DONE), "done"); };
  Outcome done = Do(SubmitVerb, Submission(true, true));
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.document()["job"]["state"], "done");
  EXPECT_EQ(done.document()["task"], "train");
}

TEST_F(SchedulerVerbs, WaitingForACancelledJobSaysSo) {
  scheduler_.on_stream = [this] {
    scheduler_.Change(MakeJob("train", v1::QUEUE_STATE_CANCELLED), "cancelled");
  };
  EXPECT_EQ(Do(SubmitVerb, Submission(true)).code, kExitCancelled);
  scheduler_.on_stream = [this] {
    v1::QueuedJob lost = MakeJob("train", v1::QUEUE_STATE_FAILED);
    lost.set_reason("it cannot be started");
    scheduler_.Change(lost, "failed");
  };
  Outcome outcome = Do(SubmitVerb, Submission(true));
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_TRUE(Has(outcome.err, "it cannot be started"));
}

TEST_F(SchedulerVerbs, AnInterruptEndsTheWaitingAlone) {
  pthread_t self = pthread_self();
  scheduler_.on_stream = [self] { pthread_kill(self, SIGINT); };
  Outcome outcome = Do(SubmitVerb, Submission(true, true));
  EXPECT_EQ(outcome.code, kExitCancelled);
  // Without a word of the scheduler an agent would be asked, for which the job has then failed.
  EXPECT_TRUE(Has(outcome.document()["remedy"], "stasis cancel --scheduler " + endpoint_ + " train"));
}

TEST_F(SchedulerVerbs, ASchedulerThatIsStartedAnewIsAskedAgain) {
  scheduler_.break_first_stream = true;
  scheduler_.on_stream = [this] { scheduler_.Change(MakeJob("train", v1::QUEUE_STATE_DONE), "done"); };
  Outcome outcome = Do(SubmitVerb, Submission(true, true));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(scheduler_.streams, 2);
  EXPECT_TRUE(Has(outcome.document()["notes"][1], "waiting for the next one"));
}

TEST_F(SchedulerVerbs, TheQueueIsATable) {
  v1::QueuedJob job = MakeJob("train", v1::QUEUE_STATE_RUNNING);
  job.set_node("node-1");
  job.add_devices(0);
  job.add_devices(3);
  job.set_started_ms(2000);
  job.set_fairness(0.97);
  scheduler_.Set(job);
  v1::QueuedJob waits = MakeJob("wait", v1::QUEUE_STATE_PENDING);
  waits.set_reason("no room\x1b[2J");
  scheduler_.Set(waits);
  Outcome outcome = Do(QueueVerb, Of("queue"));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(Has(outcome.out, "0,3")) << outcome.out;
  EXPECT_TRUE(Has(outcome.out, "0.97")) << outcome.out;
  EXPECT_TRUE(Has(outcome.out, "no room")) << outcome.out;
  EXPECT_FALSE(Has(outcome.out, "\x1b")) << outcome.out;
  Json jobs = Do(QueueVerb, Of("queue", true)).document()["jobs"];
  EXPECT_EQ(jobs[0]["devices"], Json({0, 3}));
  EXPECT_EQ(jobs[1]["state"], "pending");
  Options none = Of("queue");
  none.name = "x";
  EXPECT_EQ(Do(QueueVerb, none).code, kExitNotFound);
  EXPECT_EQ(QueuedJobNames(endpoint_), std::vector<std::string>({"train", "wait"}));
}

TEST_F(SchedulerVerbs, LogsAreAskedOfTheNodesAgent) {
  v1::QueuedJob job = MakeJob("train", v1::QUEUE_STATE_RUNNING);
  Options options = Of("logs", true);
  options.name = "train";
  scheduler_.Set(job);
  EXPECT_EQ(Do(SchedulerLogsVerb, options).code, kExitState);
  job.set_node("node-1");
  scheduler_.Set(job);
  scheduler_.node.set_address("unix:" + folder_.File("agent.sock"));
  for (const char* name : {"train", "train.1"}) {
    options.name = name;
    Outcome outcome = Do(SchedulerLogsVerb, options);
    EXPECT_EQ(outcome.code, kExitPeerGone);
    EXPECT_TRUE(Has(outcome.document()["message"], "the agent at " + scheduler_.node.address()))
        << outcome.out;
  }
  options.name = "other";
  EXPECT_EQ(Do(SchedulerLogsVerb, options).code, kExitNotFound);
}

TEST_F(SchedulerVerbs, CancelIsOfTheSchedulersJob) {
  Options options = Of("cancel");
  options.name = "train";
  Outcome outcome = Do(SchedulerCancelVerb, options);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "train is cancelled\n");
  scheduler_.refusal = Status(StatusCode::kFailedPrecondition, "train has ended");
  EXPECT_EQ(Do(SchedulerCancelVerb, options).code, kExitState);
  scheduler_.refusal = Status(StatusCode::kNotFound, "there is no job train");
  EXPECT_TRUE(Has(Do(SchedulerCancelVerb, options).err, "--embedded"));
  options.operation = true;
  EXPECT_EQ(Do(SchedulerCancelVerb, options).code, kExitUnsupported);
}

TEST_F(SchedulerVerbs, TenantsAreListedAndSet) {
  Outcome list = Do(TenantsVerb, Of("tenants"));
  EXPECT_TRUE(Has(list.out, "red")) << list.out;
  EXPECT_TRUE(Has(list.out, "0.980")) << list.out;
  Options set = Of("tenants", true);
  set.below = "set";
  set.tenant = "blue";
  set.weight = 2.5;
  EXPECT_EQ(Do(TenantsVerb, set).document()["tenant"]["weight"], 2.5);
  EXPECT_EQ(Last<v1::SetTenantRequest>().name(), "blue");
}

TEST_F(SchedulerVerbs, WhatIsNotSavedFromANodeThatGoesIsTold) {
  Options drain = Of("drain");
  drain.node_name = "node-1";
  drain.notice = std::chrono::seconds(90);
  Outcome begun = Do(DrainVerb, drain);
  EXPECT_EQ(Last<v1::DrainRequest>().notice_ms(), 90'000u);
  EXPECT_EQ(begun.code, 0) << begun.out;
  EXPECT_TRUE(Has(begun.out, "train                saving")) << begun.out;
  drain.drain_wait = std::chrono::milliseconds(50);
  drain.json = true;
  Outcome late = Do(DrainVerb, drain);
  EXPECT_EQ(late.code, ExitCodeOf(StatusCode::kTimeout));
  EXPECT_TRUE(Has(late.document()["message"], "(0 of 1 job saved)")) << late.out;
  // Nobody waits for devices that will be gone.
  drain.drain_wait = std::chrono::minutes(1);
  scheduler_.on_stream = [this] {
    scheduler_.node.set_deadline_ms(1'800'000'000'000);
    FakeScheduler::Save(&scheduler_.node, "train", v1::SAVE_STATE_SAVED);
    scheduler_.Happen("saved", "train");
  };
  Outcome saved = Do(DrainVerb, drain);
  EXPECT_EQ(saved.code, 0) << saved.out;
  EXPECT_EQ(saved.document()["node"]["saves"][0]["state"], "saved");
  EXPECT_EQ(saved.document()["node"]["deadline_ms"], 1'800'000'000'000);
  v1::NodeSave* lost = FakeScheduler::Save(&scheduler_.node, "other", v1::SAVE_STATE_UNSAVED);
  lost->set_text("others came first; its newest image elsewhere is 9 s old");
  lost->set_image_ms(5000);
  scheduler_.on_stream = [this] { scheduler_.Happen("unsaved", "other"); };
  Outcome unsaved = Do(DrainVerb, drain);
  EXPECT_EQ(unsaved.code, kExitState);
  EXPECT_EQ(unsaved.document()["node"]["saves"][1]["image_ms"], 5000);
  drain.json = false;
  scheduler_.on_stream = [this] { scheduler_.Happen("unsaved", "other"); };
  EXPECT_TRUE(Has(Do(DrainVerb, drain).out, "other                unsaved: others came first"));
  EXPECT_TRUE(Has(Do(NodesVerb, Of("nodes")).out, "(1 of 2 jobs saved)"));
}

TEST_F(SchedulerVerbs, NodesAreListedDrainedAndMaintained) {
  Outcome list = Do(NodesVerb, Of("nodes"));
  EXPECT_TRUE(Has(list.out, "ready")) << list.out;
  EXPECT_TRUE(Has(list.out, " a ")) << list.out;
  EXPECT_EQ(ClusterNodeNames(endpoint_), std::vector<std::string>({"node-1"}));
  Options drain = Of("drain");
  drain.node_name = "node-1";
  drain.reason = "a fan";
  Outcome drained = Do(DrainVerb, drain);
  EXPECT_EQ(drained.out, "node-1 is draining; 2 of 4 devices are free\n");
  EXPECT_EQ(Last<v1::DrainRequest>().reason(), "a fan");
  drain.drain_wait = std::chrono::milliseconds(50);
  drain.json = true;
  Outcome late = Do(DrainVerb, drain);
  EXPECT_EQ(late.code, ExitCodeOf(StatusCode::kTimeout));
  EXPECT_TRUE(Has(late.document()["message"], "node-1: 2 of 4 devices are held"));
  drain.drain_wait = std::chrono::minutes(1);
  scheduler_.on_stream = [this] {
    scheduler_.node.set_free(4);
    scheduler_.Happen("moved", "train");
  };
  EXPECT_EQ(Do(DrainVerb, drain).code, 0);
  scheduler_.node.set_free(2);
  drain.json = false;
  EXPECT_EQ(Do(UndrainVerb, drain).out, "node-1 is ready\n");
  Options window = Of("maintenance", true);
  window.node_name = "node-1";
  window.start_ms = 1000;
  window.end_ms = 2000;
  EXPECT_EQ(Do(MaintenanceVerb, window).document()["node"]["maintenance_end_ms"], 2000);
  EXPECT_EQ(Last<v1::SetMaintenanceRequest>().start_ms(), 1000);
}

TEST_F(SchedulerVerbs, DefragTellsTheMoves) {
  Options options = Of("defrag");
  options.gpu_count = 4;
  options.dry_run = true;
  Outcome none = Do(DefragVerb, options);
  EXPECT_EQ(none.code, kExitState);
  EXPECT_EQ(none.out, "no moves make room for a gang of 4\n");
  scheduler_.plan.set_possible(true);
  scheduler_.plan.set_node("node-1");
  EXPECT_EQ(Do(DefragVerb, options).out, "a gang of 4 fits on node-1 as it is\n");
  v1::DefragmentReply::Move* move = scheduler_.plan.add_moves();
  move->set_job("a");
  move->set_from("node-1");
  move->set_to("node-2");
  move->set_bytes(2048);
  scheduler_.plan.set_bytes(2048);
  Outcome one = Do(DefragVerb, options);
  EXPECT_TRUE(Has(one.out, "room would be made on node-1 by 1 move of 2.0 KiB")) << one.out;
  EXPECT_TRUE(Has(one.out, "node-1 -> node-2")) << one.out;
  EXPECT_TRUE(Last<v1::DefragmentRequest>().dry_run());
  options.dry_run = false;
  EXPECT_TRUE(Has(Do(DefragVerb, options).out, "room is being made on node-1"));
}

TEST_F(SchedulerVerbs, EventsAreListedAndFollowed) {
  for (int i = 0; i < 30; i++) scheduler_.Happen("started", "job-" + std::to_string(i));
  Outcome list = Do(EventsVerb, Of("events", true));
  EXPECT_EQ(list.document()["events"].size(), 20u);
  EXPECT_EQ(list.document()["events"][0]["job"], "job-10");
  Options after = Of("events");
  after.after = 29;
  Outcome rest = Do(EventsVerb, after);
  EXPECT_TRUE(Has(rest.out, "job-29")) << rest.out;
  EXPECT_FALSE(Has(rest.out, "job-28")) << rest.out;
  pthread_t self = pthread_self();
  scheduler_.break_first_stream = true;
  scheduler_.streams = 0;
  scheduler_.on_stream = [this, self] {
    scheduler_.Happen("done", "job-29", "new");
    pthread_kill(self, SIGINT);
  };
  Options follow = Of("events", true);
  follow.follow = true;
  follow.after = 29;
  Outcome followed = Do(EventsVerb, follow);
  EXPECT_EQ(followed.code, 0);
  // Each event once, also over the change of schedulers, each on a line.
  EXPECT_EQ(Json::parse(followed.out.substr(0, followed.out.find('\n')))["number"], 30);
  EXPECT_EQ(followed.out.find("\"number\":30"), followed.out.rfind("\"number\":30"));
}

TEST_F(SchedulerVerbs, WithoutASchedulerItSaysWhom) {
  server_->Shutdown(std::chrono::system_clock::now());
  Outcome outcome = Do(QueueVerb, Of("queue", true));
  EXPECT_EQ(outcome.code, kExitPeerGone);
  EXPECT_TRUE(Has(outcome.document()["message"], "the scheduler at " + endpoint_));
}

}  // namespace
}  // namespace stasis

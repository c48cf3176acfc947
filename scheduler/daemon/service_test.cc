// The Scheduler service over a real core, by a client on its unix socket.
#include "scheduler/daemon/service.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "proto/rpc/call_observer.h"
#include "proto/rpc/server.h"
#include "proto/rpc/status.h"
#include "scheduler/daemon/testing.h"

namespace stasis::scheduler {
namespace {

class FakeJoining final : public Joining {
 public:
  Status Join(const v1::JoinRequest& request) override {
    joined = request.node();
    return answer;
  }
  std::string joined;
  Status answer;
};

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() {
    Endpoint endpoint = *ParseEndpoint("unix:" + cluster_.File("schedd.sock"));
    doors_ = *Doors::Open({endpoint});
    gate_.emplace(*doors_);
    audit_ = std::make_unique<Audit>(cluster_.store().database());
    readers_.emplace(2, 16);
    writers_.emplace(2, 16);
    events_.emplace(cluster_.core());
    ServiceParts parts;
    parts.core = &cluster_.core();
    parts.joining = &joining_;
    parts.events = &*events_;
    parts.attendance = &attendance_;
    parts.gate = &*gate_;
    parts.audit = audit_.get();
    parts.readers = &*readers_;
    parts.writers = &*writers_;
    service_.emplace(parts);
    RpcServer::Options options;
    options.endpoints = {endpoint};
    options.services = {&*service_};
    options.observer = std::make_unique<CallObserver>(*gate_, *audit_);
    server_ = *RpcServer::Start(std::move(options), *doors_);
    stub_ = v1::Scheduler::NewStub(*OpenChannel(endpoint, {}));
  }
  ~ServiceTest() override { EndStreams(); }

  void EndStreams() {
    events_->Stop();
    attendance_.Stop();
  }
  template <typename Request, typename Response>
  Status Ask(grpc::Status (v1::Scheduler::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
             const Request& request, Response* response) {
    grpc::ClientContext context;
    return FromRpcStatus((stub_.get()->*method)(&context, request, response), context, nullptr);
  }
  Status Submit(const v1::SubmitRequest& request, v1::QueuedJob* job) {
    return Ask(&v1::Scheduler::Stub::Submit, request, job);
  }
  std::vector<v1::ClusterEvent> Events(const v1::EventsRequest& request) {
    grpc::ClientContext context;
    auto stream = stub_->Events(&context, request);
    std::vector<v1::ClusterEvent> events;
    for (v1::ClusterEvent event; stream->Read(&event);) events.push_back(event);
    EXPECT_TRUE(stream->Finish().ok());
    return events;
  }
  // Rows of the record, each "verb job code".
  std::vector<std::string> Record() {
    audit_.reset();  // all of it is on disk
    std::vector<std::string> rows;
    auto found = cluster_.store().database().Query("SELECT verb, job, code FROM audit ORDER BY id");
    for (const DbRow& row : *found) rows.push_back(row.Text(0) + " " + row.Text(1) + " " + row.Text(2));
    return rows;
  }

  TestCluster cluster_;
  FakeJoining joining_;
  std::unique_ptr<Doors> doors_;
  std::optional<Gate> gate_;
  std::unique_ptr<Audit> audit_;
  std::optional<WorkerPool> readers_, writers_;
  std::optional<EventHub> events_;
  Attendance attendance_;
  std::optional<SchedulerService> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::Scheduler::Stub> stub_;
};

TEST_F(ServiceTest, AJobIsSubmittedListedAndCancelled) {
  v1::QueuedJob job;
  ASSERT_OK(Submit(TestCluster::Submission("train", 2), &job));
  EXPECT_EQ(job.name(), "train");
  v1::QueueReply queue;
  ASSERT_OK(Ask(&v1::Scheduler::Stub::Queue, v1::QueueRequest(), &queue));
  ASSERT_EQ(queue.jobs_size(), 1);
  EXPECT_EQ(queue.jobs(0).gpus(), 2u);
  v1::ClusterInfoReply info;
  ASSERT_OK(Ask(&v1::Scheduler::Stub::ClusterInfo, v1::ClusterInfoRequest(), &info));
  EXPECT_EQ(info.devices(), 4u);
  v1::CancelJobRequest cancel;
  cancel.set_name("train");
  ASSERT_OK(Ask(&v1::Scheduler::Stub::CancelJob, cancel, &job));
  cancel.set_name("other");
  EXPECT_EQ(Ask(&v1::Scheduler::Stub::CancelJob, cancel, &job).code(), StatusCode::kNotFound);
  EXPECT_EQ(Record(),
            std::vector<std::string>({"submit train OK", "cancel train OK", "cancel other NOT_FOUND"}));
}

TEST_F(ServiceTest, ARepeatedRequestIsTheSameJob) {
  v1::SubmitRequest request = TestCluster::Submission("");
  request.set_idempotency_key("key");
  v1::QueuedJob first, second;
  ASSERT_OK(Submit(request, &first));
  ASSERT_OK(Submit(request, &second));
  EXPECT_FALSE(first.name().empty());
  EXPECT_EQ(first.name(), second.name());
}

TEST_F(ServiceTest, WhatIsNoRequestIsRefusedAndOnRecord) {
  v1::SubmitRequest request = TestCluster::Submission("../../etc/passwd");
  v1::QueuedJob job;
  EXPECT_EQ(Submit(request, &job).code(), StatusCode::kInvalidArgument);
  request = TestCluster::Submission("train");
  request.set_tenant("green");
  EXPECT_EQ(Submit(request, &job).code(), StatusCode::kNotFound);
  EXPECT_EQ(Record(), std::vector<std::string>({"submit  INVALID_ARGUMENT", "submit train NOT_FOUND"}));
}

TEST_F(ServiceTest, WhatCannotBeReadIsOnRecord) {
  grpc::GenericStub generic(*OpenChannel(*ParseEndpoint("unix:" + cluster_.File("schedd.sock")), {}));
  grpc::ClientContext context;
  grpc::Slice bytes("\xff\xff\xff");
  grpc::ByteBuffer request(&bytes, 1), response;
  grpc::CompletionQueue queue;
  auto call = generic.PrepareUnaryCall(&context, "/stasis.v1.Scheduler/Submit", request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Record(), std::vector<std::string>({"Submit  INVALID_ARGUMENT"}));
}

TEST_F(ServiceTest, TenantsAndNodesAreChanged) {
  v1::SetTenantRequest set;
  set.set_name("green");
  set.set_weight(2);
  v1::Tenant tenant;
  ASSERT_OK(Ask(&v1::Scheduler::Stub::SetTenant, set, &tenant));
  EXPECT_EQ(tenant.quota(), 2);
  v1::TenantsReply tenants;
  ASSERT_OK(Ask(&v1::Scheduler::Stub::Tenants, v1::TenantsRequest(), &tenants));
  EXPECT_EQ(tenants.tenants_size(), 3);
  v1::DrainRequest drain;
  drain.set_node("n1");
  drain.set_reason("a fan");
  v1::ClusterNode node;
  ASSERT_OK(Ask(&v1::Scheduler::Stub::Drain, drain, &node));
  EXPECT_TRUE(node.draining());
  EXPECT_EQ(node.reason(), "a fan");
  v1::UndrainRequest undrain;
  undrain.set_node("n1");
  ASSERT_OK(Ask(&v1::Scheduler::Stub::Undrain, undrain, &node));
  EXPECT_FALSE(node.draining());
  v1::SetMaintenanceRequest window;
  window.set_node("n1");
  window.set_start_ms(2000000000);
  window.set_end_ms(2000001000);
  ASSERT_OK(Ask(&v1::Scheduler::Stub::SetMaintenance, window, &node));
  v1::NodesReply nodes;
  ASSERT_OK(Ask(&v1::Scheduler::Stub::Nodes, v1::NodesRequest(), &nodes));
  EXPECT_EQ(nodes.nodes(0).maintenance_end_ms(), 2000001000);
  v1::DefragmentRequest gang;
  gang.set_gpus(4);
  gang.set_dry_run(true);
  v1::DefragmentReply plan;
  ASSERT_OK(Ask(&v1::Scheduler::Stub::Defragment, gang, &plan));
  EXPECT_TRUE(plan.possible());
  EXPECT_EQ(Record(), std::vector<std::string>(
                          {"set-tenant green OK", "drain n1 OK", "undrain n1 OK", "set-maintenance n1 OK"}));
}

TEST_F(ServiceTest, EventsAreToldFromWhereOneAsks) {
  v1::QueuedJob job;
  for (const char* name : {"a", "b", "c"}) ASSERT_OK(Submit(TestCluster::Submission(name), &job));
  v1::EventsRequest all;
  all.set_until_now(true);
  std::vector<v1::ClusterEvent> events = Events(all);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.back().job(), "c");
  EXPECT_EQ(events.back().kind(), "submitted");
  v1::EventsRequest last = all;
  last.set_last(2);
  std::vector<v1::ClusterEvent> newest = Events(last);
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].job(), "b");
  v1::EventsRequest after = all;
  after.set_after(newest[0].number());
  ASSERT_EQ(Events(after).size(), 1u);
}

TEST_F(ServiceTest, EventsComeAsTheyHappenUntilTheEnd) {
  grpc::ClientContext context;
  v1::EventsRequest request;
  request.set_last(1);
  auto stream = stub_->Events(&context, request);
  v1::ClusterEvent event;
  ASSERT_TRUE(stream->Read(&event));  // it is there
  // More than a stream takes at once.
  for (int i = 0; i < 200; i++) {
    ASSERT_OK(cluster_.core().Submit(TestCluster::Submission("job-" + std::to_string(i))).status());
  }
  for (int i = 0; i < 200; i++) {
    ASSERT_TRUE(stream->Read(&event));
    EXPECT_EQ(event.job(), "job-" + std::to_string(i));
  }
  EndStreams();
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  // Nobody begins one any more.
  grpc::ClientContext late;
  auto other = stub_->Events(&late, request);
  EXPECT_FALSE(other->Read(&event));
  EXPECT_EQ(other->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServiceTest, AStreamThatNobodyReadsAnyMoreEnds) {
  auto context = std::make_unique<grpc::ClientContext>();
  auto stream = stub_->Events(context.get(), v1::EventsRequest());
  stream->WaitForInitialMetadata();
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  v1::QueuedJob job;
  ASSERT_OK(Submit(TestCluster::Submission("train"), &job));
}

TEST_F(ServiceTest, AnAgentJoinsAndAttends) {
  v1::JoinRequest join;
  join.set_address("node-2:7470");
  join.set_node("node-2");
  join.set_agent_id("0123");
  v1::JoinReply reply;
  ASSERT_OK(Ask(&v1::Scheduler::Stub::Join, join, &reply));
  EXPECT_EQ(joining_.joined, "node-2");
  EXPECT_EQ(reply.cluster_id(), cluster_.core().cluster_id());
  EXPECT_EQ(reply.reign(), cluster_.core().reign());
  grpc::ClientContext context;
  v1::AttendRequest attend;
  attend.set_node("node-2");
  auto stream = stub_->Attend(&context, attend);
  stream->WaitForInitialMetadata();
  EXPECT_EQ(attendance_.streams(), 1u);
  EndStreams();
  v1::AttendReply nothing;
  EXPECT_FALSE(stream->Read(&nothing));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  joining_.answer = Status(StatusCode::kFailedPrecondition, "another agent has the name");
  EXPECT_EQ(Ask(&v1::Scheduler::Stub::Join, join, &reply).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Record(), std::vector<std::string>({"join node-2 OK", "join node-2 FAILED_PRECONDITION"}));
}

TEST(Roles, WhoMayDoWhat) {
  const Verb all[] = {kInfoVerb,      kSubmitVerb,      kQueueVerb, kCancelVerb,     kTenantsVerb,
                      kSetTenantVerb, kNodesVerb,       kJoinVerb,  kAttendVerb,     kDrainVerb,
                      kUndrainVerb,   kMaintenanceVerb, kPlanVerb,  kDefragmentVerb, kEventsVerb};
  auto may = [&](Role role) {
    std::set<std::string> verbs;
    for (const Verb& verb : all) {
      if (MayDo(role, verb.access)) verbs.insert(verb.name);
    }
    return verbs;
  };
  const std::set<std::string> look = {"cluster-info", "queue",           "tenants",
                                      "nodes",        "defragment-plan", "events"};
  EXPECT_EQ(may(Role::kReader), look);
  EXPECT_EQ(may(Role::kAgent), std::set<std::string>({"cluster-info", "join", "attend"}));
  EXPECT_EQ(may(Role::kOperator).size(), std::size(all));
  EXPECT_TRUE(may(Role::kScheduler).contains("submit"));
}

}  // namespace
}  // namespace stasis::scheduler

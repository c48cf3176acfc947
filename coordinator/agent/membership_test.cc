#include "coordinator/agent/membership.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <optional>

#include "coordinator/node/testing.h"
#include "proto/rpc/status.h"

namespace stasis {
namespace {

class FakeScheduler final : public v1::Scheduler::Service {
 public:
  Status refusal;  // of Join; before the server is used, or by Refuse()

  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    std::lock_guard lock(mutex_);
    last_ = *request;
    joins_++;
    changed_.notify_all();
    reply->set_reign(7);
    return ToRpcStatus(refusal, "", context);
  }
  grpc::Status Attend(grpc::ServerContext* context, const v1::AttendRequest*,
                      grpc::ServerWriter<v1::AttendReply>* writer) override {
    std::unique_lock lock(mutex_);
    writer->SendInitialMetadata();
    attends_++;
    changed_.notify_all();
    while (!ending_ && !context->IsCancelled()) changed_.wait_for(lock, std::chrono::milliseconds(10));
    return grpc::Status(grpc::UNAVAILABLE, "ending");
  }

  v1::JoinRequest AwaitJoins(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return joins_ >= count; });
    return last_;
  }
  void AwaitAttends(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return attends_ >= count; });
  }
  void Refuse(const Status& status) {
    std::lock_guard lock(mutex_);
    refusal = status;
  }
  void End() {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  int joins() {
    std::lock_guard lock(mutex_);
    return joins_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::JoinRequest last_;
  int joins_ = 0, attends_ = 0;
  bool ending_ = false;
};

class MembershipTest : public testing::Test {
 protected:
  MembershipTest() : path_(folder_.File("schedd.sock")) {}
  ~MembershipTest() override { StopServer(); }

  void StartServer() {
    scheduler_.emplace();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path_, grpc::InsecureServerCredentials());
    builder.RegisterService(&*scheduler_);
    server_ = builder.BuildAndStart();
  }
  void StopServer() {
    if (server_ == nullptr) return;
    scheduler_->End();
    server_->Shutdown();
    server_.reset();
  }
  std::unique_ptr<Membership> Begin() {
    Membership::Options options;
    options.scheduler = *ParseEndpoint("unix:" + path_);
    options.request.set_node("node-1");
    options.request.set_address("unix:/run/stasisd.sock");
    options.request.set_agent_id("0123");
    options.first_wait = std::chrono::milliseconds(5);
    options.longest_wait = std::chrono::milliseconds(20);
    return *Membership::Begin(std::move(options));
  }

  TempFolder folder_;
  std::string path_;
  std::optional<FakeScheduler> scheduler_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(MembershipTest, JoinsOnceAndAttends) {
  StartServer();
  std::unique_ptr<Membership> membership = Begin();
  v1::JoinRequest request = scheduler_->AwaitJoins(1);
  EXPECT_EQ(request.node(), "node-1");
  EXPECT_EQ(request.address(), "unix:/run/stasisd.sock");
  scheduler_->AwaitAttends(1);
  membership.reset();  // ends although the stream would not
  EXPECT_EQ(scheduler_->joins(), 1);
}

TEST_F(MembershipTest, ASchedulerThatComesLaterIsJoined) {
  std::unique_ptr<Membership> membership = Begin();
  StartServer();
  scheduler_->AwaitAttends(1);
}

TEST_F(MembershipTest, ASchedulerThatWasLostIsJoinedAgain) {
  StartServer();
  std::unique_ptr<Membership> membership = Begin();
  for (int i = 0; i < 3; i++) {
    scheduler_->AwaitAttends(1);
    StopServer();
    StartServer();
  }
  EXPECT_EQ(scheduler_->AwaitJoins(1).node(), "node-1");
}

TEST_F(MembershipTest, ARefusalIsNotTheEnd) {
  StartServer();
  scheduler_->Refuse(Status(StatusCode::kFailedPrecondition, "another agent has the name"));
  std::unique_ptr<Membership> membership = Begin();
  scheduler_->AwaitJoins(3);
  scheduler_->Refuse(Status());
  scheduler_->AwaitAttends(1);
}

TEST_F(MembershipTest, EndsAtOnceWithoutAScheduler) {
  std::unique_ptr<Membership> membership = Begin();
  membership.reset();
}

TEST(Membership, InTheClearItGoesNowhereElse) {
  Membership::Options options;
  options.scheduler = *ParseEndpoint("192.0.2.1:7480");
  EXPECT_EQ(Membership::Begin(std::move(options)).status().code(), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace stasis

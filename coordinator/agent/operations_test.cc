#include "coordinator/agent/operations.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "coordinator/agent/operation_table.h"
#include "coordinator/agent/schema.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

class NoRegistry : public Registry {
 public:
  std::vector<JobPicture> List() const override { return {}; }
  JobPicture Find(const std::string&) const override { return nullptr; }
  uint64_t revision() const override { return 0; }
  std::unique_ptr<Subscription> Subscribe(std::function<void(const JobPicture&)>) override { return nullptr; }
  void Refresh(const std::string& name) override {
    std::lock_guard lock(mutex_);
    refreshed_.insert(name);
  }
  void SetOperation(const std::string& name, const std::string& operation) override {
    std::lock_guard lock(mutex_);
    operations_[name] = operation;
  }
  void SetMovedTo(const std::string&, const std::string&) override {}
  std::string OperationOf(const std::string& name) {
    std::lock_guard lock(mutex_);
    return operations_[name];
  }
  bool refreshed(const std::string& name) {
    std::lock_guard lock(mutex_);
    return refreshed_.count(name) != 0;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> operations_;
  std::set<std::string> refreshed_;
};

Json Good(const std::string& verb) { return {{"ok", true}, {"verb", verb}}; }
Json GivenUp(const std::string& left) {
  return {{"ok", false}, {"verb", "hold"}, {"code", "CANCELLED"}, {"message", "given up"}, {"left", left}};
}

// Operations that wait to be told to end.
class Hold {
 public:
  // Waits until it has begun, and lets it end.
  void AwaitBegun(const std::string& id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_.count(id) != 0; });
  }
  void AwaitReleased(const std::string& id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return released_.count(id) != 0; });
  }
  void Release(const std::string& id) {
    std::lock_guard lock(mutex_);
    released_.insert(id);
    changed_.notify_all();
  }
  bool begun(const std::string& id) {
    std::lock_guard lock(mutex_);
    return begun_.count(id) != 0;
  }
  std::vector<std::string> order() {
    std::lock_guard lock(mutex_);
    return order_;
  }
  void Begin(const std::string& id) {
    std::lock_guard lock(mutex_);
    begun_.insert(id);
    order_.push_back(id);
    changed_.notify_all();
  }
  bool released(const std::string& id) {
    std::lock_guard lock(mutex_);
    return released_.count(id) != 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> begun_, released_;
  std::vector<std::string> order_;
};

class HoldKind : public OperationKind {
 public:
  explicit HoldKind(Hold& hold) : hold_(hold) {}
  Json Carry(OperationContext& context) override {
    (void)context.Remember({{"was", "here"}});
    hold_.Begin(context.id());
    int asked = 0;
    for (;;) {
      pollfd wait{context.interrupt().fd(), POLLIN, 0};
      (void)poll(&wait, 1, 1);
      if (wait.revents != 0 && context.interrupt().Take()) asked++;
      // One that does not want to be given up leaves when it has to.
      if (asked > 0 && context.request() != "stubborn") return GivenUp("rolled-back");
      if (asked > 1) return GivenUp("in-doubt");
      if (hold_.released(context.id())) return Good("hold");
    }
  }
  Json Recover(OperationContext& context) override {
    Json result = Good("hold");
    result["remembered"] = context.remembered();
    result["token"] = context.token();
    return result;
  }

 private:
  Hold& hold_;
};

class NameKind : public OperationKind {
 public:
  explicit NameKind(Hold& hold) : hold_(hold) {}
  Json Carry(OperationContext& context) override {
    context.SetJob("named");
    context.Note("it is called so");
    context.Progress("naming", 1, 4);
    ScopedSpan span(context, "name");
    span.set_bytes(3);
    hold_.Begin(context.id());
    hold_.AwaitReleased(context.id());
    return Good("name");
  }
  Json Recover(OperationContext& context) override { return Carry(context); }

 private:
  Hold& hold_;
};

class EndKind : public OperationKind {
 public:
  Json Carry(OperationContext&) override { return Good("end"); }
  Json Recover(OperationContext&) override { return Good("end"); }
  bool preempts() const override { return true; }
};

// Asks for what nobody tells, until it is overruled; once it is released, others need not wait for it.
class AskKind : public OperationKind {
 public:
  explicit AskKind(Hold& hold) : hold_(hold) {}
  Json Carry(OperationContext& context) override {
    hold_.Begin(context.id());
    hold_.AwaitReleased(context.id());
    context.RefuseOthers(Status(StatusCode::kUnavailable, "nobody knows"), "wait");
    hold_.Begin(context.id() + " refuses");
    while (context.overruled_by().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Json result = Good("ask");
    result["by"] = context.overruled_by();
    return result;
  }
  Json Recover(OperationContext& context) override { return Carry(context); }

 private:
  Hold& hold_;
};

class DecideKind : public OperationKind {
 public:
  Json Carry(OperationContext&) override { return Good("decide"); }
  Json Recover(OperationContext&) override { return Good("decide"); }
  bool decides(const std::string& request) const override { return request == "this"; }
};

class BesideKind : public HoldKind {
 public:
  using HoldKind::HoldKind;
  bool beside() const override { return true; }
};

class OperationsTest : public testing::Test {
 protected:
  void SetUp() override { Open(); }
  void Open() {
    auto database = Database::Open(folder_.File("agent.db"), SchemaSteps());
    ASSERT_TRUE(database.ok()) << database.status().ToString();
    database_ = *std::move(database);
    Operations::Kinds kinds;
    kinds["hold"] = std::make_unique<HoldKind>(hold_);
    kinds["name"] = std::make_unique<NameKind>(hold_);
    kinds["beside"] = std::make_unique<BesideKind>(hold_);
    kinds["end"] = std::make_unique<EndKind>();
    kinds["ask"] = std::make_unique<AskKind>(hold_);
    kinds["decide"] = std::make_unique<DecideKind>();
    auto operations = Operations::Start(*database_, registry_, std::move(kinds));
    ASSERT_TRUE(operations.ok()) << operations.status().ToString();
    operations_ = *std::move(operations);
  }
  void Close(Duration patience = Duration::zero()) {
    operations_->Stop(patience);
    operations_.reset();
    database_.reset();
  }
  // As after a kill: what the rows say is all there is.
  void Forge(const std::string& id, v1::OperationState state) {
    auto database = Database::Open(folder_.File("agent.db"), SchemaSteps());
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)
                    ->Execute("UPDATE operations SET state = ?, ended_ms = 0 WHERE number = ?",
                              {static_cast<int64_t>(state), OperationNumber(id)})
                    .ok());
  }
  std::string Submit(const std::string& verb, const std::string& job, const std::string& request = "",
                     const std::string& key = "") {
    auto operation = operations_->Submit({verb, job, request, key, {"test", Role::kOperator}});
    EXPECT_TRUE(operation.ok()) << operation.status().ToString();
    return operation.ok() ? operation->id() : "";
  }
  v1::Operation Await(const std::string& id) {
    auto operation = operations_->Await(id);
    EXPECT_TRUE(operation.ok()) << operation.status().ToString();
    return operation.ok() ? *operation : v1::Operation();
  }
  v1::Operation Get(const std::string& id, bool spans = false) {
    auto operation = operations_->Get(id, spans);
    EXPECT_TRUE(operation.ok()) << operation.status().ToString();
    return operation.ok() ? *operation : v1::Operation();
  }

  TempFolder folder_;
  Hold hold_;
  NoRegistry registry_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Operations> operations_;
};

TEST_F(OperationsTest, WhatDoesNotTouchTheJobRunsBesideAndWaitsForItsKindAlone) {
  std::string job = Submit("hold", "a"), first = Submit("beside", "a"), second = Submit("beside", "a");
  hold_.AwaitBegun(job);
  hold_.AwaitBegun(first);
  EXPECT_EQ(registry_.OperationOf("a"), job);
  EXPECT_EQ(Get(second).state(), v1::OPERATION_STATE_QUEUED);
  std::string last = Submit("end", "a");  // ends the job's, and nothing else
  EXPECT_EQ(Await(job).state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_EQ(Await(last).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(Get(first).state(), v1::OPERATION_STATE_RUNNING);
  hold_.Release(first);
  EXPECT_EQ(Await(first).state(), v1::OPERATION_STATE_SUCCEEDED);
  hold_.AwaitBegun(second);
  EXPECT_TRUE(operations_->Cancel(second).ok());
  EXPECT_EQ(Await(second).state(), v1::OPERATION_STATE_CANCELLED);
  std::string third = Submit("beside", "a"), waits = Submit("beside", "a");
  hold_.AwaitBegun(third);
  EXPECT_TRUE(operations_->Cancel(waits).ok());
  EXPECT_FALSE(hold_.begun(waits));
  hold_.Release(third);
  EXPECT_EQ(Await(third).state(), v1::OPERATION_STATE_SUCCEEDED);
}

TEST_F(OperationsTest, OneAfterTheOtherOnAJobAndJobsSideBySide) {
  std::string first = Submit("hold", "a"), second = Submit("hold", "a"), other = Submit("hold", "b");
  hold_.AwaitBegun(first);
  hold_.AwaitBegun(other);
  EXPECT_FALSE(hold_.begun(second));
  EXPECT_EQ(Get(second).state(), v1::OPERATION_STATE_QUEUED);
  EXPECT_EQ(registry_.OperationOf("a"), first);
  hold_.Release(first);
  hold_.AwaitBegun(second);
  v1::Operation ended = Await(first);
  EXPECT_EQ(ended.state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(ended.result_json(), R"({"ok":true,"verb":"hold"})");
  EXPECT_GE(ended.ended_ms(), ended.started_ms());
  EXPECT_GE(ended.started_ms(), ended.created_ms());
  EXPECT_EQ(ended.actor(), "test");
  EXPECT_TRUE(registry_.refreshed("a"));
  hold_.Release(second);
  Await(second);
  EXPECT_EQ(registry_.OperationOf("a"), "");
  hold_.Release(other);
  EXPECT_EQ(Await(other).state(), v1::OPERATION_STATE_SUCCEEDED);
}

TEST_F(OperationsTest, AKeyIsOneOperation) {
  std::string first = Submit("hold", "a", "request", "key");
  EXPECT_EQ(Submit("hold", "a", "request", "key"), first);
  hold_.Release(first);
  Await(first);
  v1::Operation again = Get(Submit("hold", "a", "request", "key"));
  EXPECT_EQ(again.id(), first);
  EXPECT_EQ(again.state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(operations_->Submit({"hold", "a", "other", "key", {}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(operations_->Submit({"end", "a", "request", "key", {}}).status().code(),
            StatusCode::kInvalidArgument);
  Close();
  Open();
  EXPECT_EQ(Submit("hold", "a", "request", "key"), first);
}

TEST_F(OperationsTest, AKeyAskedForManyTimesAtOnceIsOneOperation) {
  std::set<std::string> ids;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) {
    threads.emplace_back([&] {
      std::string id = Submit("end", "a", "request", "key");
      std::lock_guard lock(mutex);
      ids.insert(id);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ids.size(), 1u);
}

TEST_F(OperationsTest, TooManyOnAJobAreRefused) {
  std::string first = Submit("hold", "a");
  hold_.AwaitBegun(first);
  for (int i = 0; i < 64; i++) Submit("hold", "a");
  EXPECT_EQ(operations_->Submit({"hold", "a", "", "", {}}).status().code(), StatusCode::kResourceExhausted);
  Submit("end", "b");
}

TEST_F(OperationsTest, AnUnknownVerbOrOperationIsRefused) {
  EXPECT_EQ(operations_->Submit({"dance", "a", "", "", {}}).status().code(), StatusCode::kInvalidArgument);
  for (const char* id : {"", "op-", "op-1", "op-000000", "op-000099", "op-99999999999999999999", "x"}) {
    EXPECT_EQ(operations_->Get(id, false).status().code(), StatusCode::kNotFound) << id;
    EXPECT_EQ(operations_->Cancel(id).status().code(), StatusCode::kNotFound) << id;
  }
}

TEST_F(OperationsTest, ARunningOneIsAskedToGiveUpAndAWaitingOneEnds) {
  std::string first = Submit("hold", "a"), second = Submit("hold", "a");
  hold_.AwaitBegun(first);
  auto cancelled = operations_->Cancel(second);
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->state(), v1::OPERATION_STATE_CANCELLED);
  ASSERT_TRUE(operations_->Cancel(first).ok());
  EXPECT_EQ(Await(first).state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_FALSE(hold_.begun(second));
  EXPECT_EQ(operations_->Cancel(first)->state(), v1::OPERATION_STATE_CANCELLED);
}

TEST_F(OperationsTest, OneThatEndsTheJobGoesBeforeTheOthers) {
  // The first may wait for a thread, be about to begin, or have begun.
  for (int round = 0; round < 40; round++) {
    std::string first = Submit("hold", "a"), second = Submit("hold", "a");
    if (round % 2 == 0) hold_.AwaitBegun(first);
    std::string end = Submit("end", "a");
    EXPECT_EQ(Await(end).state(), v1::OPERATION_STATE_SUCCEEDED);
    EXPECT_EQ(Get(second).state(), v1::OPERATION_STATE_CANCELLED);
    EXPECT_NE(Get(second).result_json().find(end), std::string::npos);
    EXPECT_EQ(Await(first).state(), v1::OPERATION_STATE_CANCELLED);
  }
}

// Nobody knows when that one ends.
TEST_F(OperationsTest, WhatDecidesOverrulesAndTheOthersNeedNotWait) {
  const std::string asks = Submit("ask", "a");
  hold_.AwaitBegun(asks);
  const std::string waits = Submit("hold", "a"), plain = Submit("decide", "a", "another");
  hold_.Release(asks);
  hold_.AwaitBegun(asks + " refuses");
  const std::string later = Submit("hold", "a", "", "its key");
  for (const std::string& refused : {waits, plain, later}) {
    const v1::Operation ended = Await(refused);
    EXPECT_EQ(ended.state(), v1::OPERATION_STATE_FAILED);
    for (const char* word : {"nobody knows", "wait", "unchanged", "UNAVAILABLE"})
      EXPECT_NE(ended.result_json().find(word), std::string::npos) << ended.result_json();
  }
  EXPECT_EQ(Submit("hold", "a", "", "its key"), later);
  const std::string other = Submit("hold", "b");
  hold_.AwaitBegun(other);
  hold_.Release(other);
  const std::string decides = Submit("decide", "a", "this");
  EXPECT_NE(Await(asks).result_json().find("decide"), std::string::npos) << Get(asks).result_json();
  EXPECT_EQ(Await(decides).state(), v1::OPERATION_STATE_SUCCEEDED);
  const std::string next = Submit("hold", "a");
  hold_.AwaitBegun(next);
  hold_.Release(next);
  EXPECT_EQ(Await(next).state(), v1::OPERATION_STATE_SUCCEEDED);
}

TEST_F(OperationsTest, OneWithoutANameIsOfTheJobThatItHasMade) {
  std::string made = Submit("name", "");
  hold_.AwaitBegun(made);
  EXPECT_EQ(Get(made).job(), "named");
  EXPECT_EQ(registry_.OperationOf("named"), made);
  std::string next = Submit("hold", "named");
  EXPECT_FALSE(hold_.begun(next));
  hold_.Release(made);
  hold_.AwaitBegun(next);
  hold_.Release(next);
  Await(next);
  v1::Operation operation = Get(made, true);
  EXPECT_EQ(operation.phase(), "naming");
  ASSERT_EQ(operation.notes_size(), 1);
  ASSERT_EQ(operation.spans_size(), 1);
  EXPECT_EQ(operation.spans(0).bytes(), 3u);
  EXPECT_EQ(Get(made).spans_size(), 0);
  v1::ListOperationsRequest of;
  of.set_job("named");
  auto list = operations_->List(of);
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[0].id(), next);
  EXPECT_EQ((*list)[1].notes_size(), 1);
}

TEST_F(OperationsTest, TheNewestAreListedAndThoseThatRun) {
  std::string held = Submit("hold", "a");
  for (int i = 0; i < 5; i++) Await(Submit("end", "b"));
  v1::ListOperationsRequest request;
  request.set_limit(3);
  EXPECT_EQ(operations_->List(request)->size(), 3u);
  request.set_running(true);
  auto running = operations_->List(request);
  ASSERT_EQ(running->size(), 1u);
  EXPECT_EQ((*running)[0].id(), held);
}

TEST_F(OperationsTest, WhatWasRunningRecoversAndWhatWaitedFollows) {
  std::string first = Submit("hold", "a", "stubborn"), second = Submit("hold", "a"),
              done = Submit("end", "b");
  hold_.AwaitBegun(first);
  Await(done);
  Close();
  // Left to itself: neither has ended.
  Open();
  v1::Operation recovered = Await(first);
  EXPECT_EQ(recovered.state(), v1::OPERATION_STATE_SUCCEEDED);
  Json result = Json::parse(recovered.result_json());
  EXPECT_EQ(result["remembered"], Json({{"was", "here"}}));
  EXPECT_TRUE(result["token"].get<std::string>().starts_with(first + "-"));
  hold_.AwaitBegun(second);
  hold_.Release(second);
  EXPECT_EQ(Await(second).state(), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(hold_.order(), (std::vector<std::string>{first, second}));
}

TEST_F(OperationsTest, ATokenOutlivesTheAgentAndNotTheDatabase) {
  std::string id = Submit("hold", "a", "stubborn");
  hold_.AwaitBegun(id);
  Close();
  Open();
  std::string token = Json::parse(Await(id).result_json())["token"];
  Close();
  Forge(id, v1::OPERATION_STATE_RUNNING);
  Open();
  EXPECT_EQ(Json::parse(Await(id).result_json())["token"], token);
}

TEST_F(OperationsTest, StopGivesUpWhatRunsAndTakesNothingNew) {
  std::string first = Submit("hold", "a"), second = Submit("hold", "a");
  hold_.AwaitBegun(first);
  std::thread waits([&] { EXPECT_EQ(operations_->Await(second).status().code(), StatusCode::kCancelled); });
  operations_->Stop(std::chrono::seconds(60));
  waits.join();
  EXPECT_EQ(operations_->Submit({"end", "b", "", "", {}}).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Get(first).state(), v1::OPERATION_STATE_CANCELLED);
  EXPECT_EQ(Get(second).state(), v1::OPERATION_STATE_QUEUED);
}

TEST_F(OperationsTest, ChangesAreToldUpToTheEnd) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<v1::Operation> told;
  auto take = [&](const v1::Operation& operation) {
    std::lock_guard lock(mutex);
    told.push_back(operation);
    changed.notify_all();
  };
  std::string other = Submit("hold", "b");
  std::string id = Submit("hold", "a");
  auto subscription = operations_->Subscribe(id, take);
  hold_.AwaitBegun(id);
  hold_.Release(id);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !told.empty() && HasEnded(told.back().state()); });
  uint64_t revision = 0;
  for (const v1::Operation& each : told) {
    EXPECT_EQ(each.id(), id);
    EXPECT_GT(each.revision(), revision);
    revision = each.revision();
  }
  lock.unlock();
  subscription.reset();
  size_t before = told.size();
  Await(Submit("end", "a"));
  EXPECT_EQ(told.size(), before);
}

TEST_F(OperationsTest, WhatEndedLongAgoIsForgotten) {
  std::string old = Submit("end", "a"), fresh = Submit("end", "a");
  Await(old);
  Await(fresh);
  ASSERT_TRUE(database_
                  ->Execute("UPDATE operations SET ended_ms = ended_ms - ? WHERE number = ?",
                            {int64_t{8} * 24 * 3600 * 1000, OperationNumber(old)})
                  .ok());
  Close();
  Open();
  EXPECT_EQ(operations_->Get(old, false).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(operations_->Get(fresh, false).ok());
  // Ids are not used again.
  EXPECT_GT(Submit("end", "a"), fresh);
}

}  // namespace
}  // namespace stasis

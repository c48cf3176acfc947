// A scheduler whose facts make room for snapshots is the same scheduler, wherever it is killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/testing.h"
#include "scheduler/daemon/core.h"

namespace stasis::scheduler {
namespace {

constexpr Time kBegin = 1'000'000'000;
constexpr Time kKept = 1000 * kSecond;

std::unique_ptr<Cluster> NewCluster() {
  return std::make_unique<Cluster>(Cluster::Options(), std::move(*MakePolicy("astraea")));
}

// All that a cluster is.
std::string TextOf(const Cluster& cluster) {
  const Snapshot all = cluster.Save(0);
  std::string text = all.cluster;
  for (const Snapshot::Job& job : all.jobs) text += "\n" + job.request + " " + job.state;
  return text;
}

class CompactionTest : public ::testing::Test {
 protected:
  CompactionTest() { Start(); }
  void Start(uint64_t compact_after = 30) {
    core_.reset();
    store_.reset();
    Result<std::unique_ptr<Store>> store = Store::Open(folder_ / "schedd.db");
    ASSERT_OK(store.status());
    store_ = *std::move(store);
    SchedulerCore::Options options;
    options.now = [this] { return now_; };
    options.keep_ended = kKept;
    options.compact_after = compact_after;
    options.not_compacted = [](const Status& why) { ADD_FAILURE() << why.ToString(); };
    Result<std::unique_ptr<SchedulerCore>> core = SchedulerCore::Open(*store_, std::move(options));
    ASSERT_OK(core.status());
    core_ = *std::move(core);
  }
  Result<v1::QueuedJob> Submit(const std::string& name, const std::string& key = "") {
    v1::SubmitRequest request;
    request.set_name(name);
    request.set_tenant("red");
    request.set_idempotency_key(key);
    request.add_argv("/bin/train");
    request.set_folder("/");
    request.set_gpus(1);
    return core_->Submit(request);
  }
  void CarryOut() {
    for (const Order& order : core_->Ready()) Happens(OrderEnded{order.number, true, ""});
  }
  void Happens(const Fact& fact) { ASSERT_OK(core_->Record(fact).status()); }
  int64_t Count(const char* table) {
    return (*store_->database().Query(std::string("SELECT count(*) FROM ") + table))[0].Integer(0);
  }
  std::string Text() {
    std::string text;
    core_->Look([&](const Cluster& cluster) { text = TextOf(cluster); });
    return text;
  }
  std::vector<std::string> Events() {
    std::vector<std::string> texts;
    for (const v1::ClusterEvent& event : core_->EventsAfter(0, SIZE_MAX))
      texts.push_back(event.SerializeAsString());
    return texts;
  }

  TempFolder folder_;
  Time now_ = kBegin;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SchedulerCore> core_;
};

TEST_F(CompactionTest, TheSameAfterEveryStart) {
  Happens(TenantSet{"red", 1});
  Happens(NodeJoined{"n1", "unix:/nowhere", 4});
  for (int i = 0; i < 60; ++i) {
    now_ += 10 * kSecond;
    const std::string name = "j" + std::to_string(i);
    ASSERT_OK(Submit(name, "key-" + name).status());
    CarryOut();
    if (i % 3 != 0) Happens(JobEnded{name, true, 0, ""});
    core_->Tick();
    if (i % 7 != 0) continue;
    const std::string before = Text();
    const std::vector<std::string> events = Events();
    Start();
    EXPECT_EQ(Text(), before);
    EXPECT_EQ(Events(), events);
  }
  EXPECT_LT(Count("facts"), 60) << "of some hundred";
  EXPECT_GT(Count("snapshot_jobs"), 20);
  // What was asked for long ago is known all the same, and runs on.
  EXPECT_EQ(Submit("j1", "key-j1")->state(), v1::QUEUE_STATE_DONE);
  EXPECT_EQ(Submit("other", "key-j1").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Submit("j1").status().code(), StatusCode::kAlreadyExists);
}

TEST_F(CompactionTest, WhatEndedLongAgoIsForgotten) {
  Happens(TenantSet{"red", 1});
  Happens(NodeJoined{"n1", "unix:/nowhere", 2});
  for (const char* name : {"lives", "old"}) ASSERT_OK(Submit(name, std::string("key-") + name).status());
  CarryOut();
  Happens(JobEnded{"old", true, 0, ""});
  now_ += kKept - kSecond;
  for (int i = 0; i < 40; ++i) Happens(TenantSet{"red", 1.0 + i});
  core_->Tick();
  EXPECT_EQ(Count("snapshot_jobs"), 2) << "not yet";
  now_ += 2 * kSecond;
  for (int i = 0; i < 40; ++i) Happens(TenantSet{"red", 1.0 + i});
  core_->Tick();
  EXPECT_EQ(Count("snapshot_jobs"), 1);
  for (int round = 0; round < 2; ++round) {
    v1::QueueRequest all;
    all.set_ended(true);
    ASSERT_EQ(core_->Queue(all)->jobs_size(), 1);
    EXPECT_EQ(core_->Queue(all)->jobs(0).name(), "lives");
    EXPECT_EQ(core_->Queue(all)->jobs(0).state(), v1::QUEUE_STATE_RUNNING);
    Start();
  }
  EXPECT_EQ(Submit("old", "key-old")->state(), v1::QUEUE_STATE_STARTING) << "it is a new one";
}

TEST_F(CompactionTest, ASnapshotThatCannotBeIsNotStartedFrom) {
  Happens(TenantSet{"red", 1});
  Happens(NodeJoined{"n1", "unix:/nowhere", 2});
  ASSERT_OK(Submit("one").status());
  CarryOut();
  Start(1);
  ASSERT_EQ(Count("snapshot"), 1);
  ASSERT_EQ(Count("facts"), 0);
  core_.reset();
  const std::string good = (*store_->database().Query("SELECT cluster FROM snapshot"))[0].Text(0);
  const std::string job = (*store_->database().Query("SELECT state FROM snapshot_jobs"))[0].Text(0);
  SchedulerCore::Options options;
  options.now = [this] { return now_; };
  const auto open = [&](const std::string& cluster, const std::string& state) {
    EXPECT_TRUE(store_->database().Execute("UPDATE snapshot SET cluster = ?", {cluster}).ok());
    EXPECT_TRUE(store_->database().Execute("UPDATE snapshot_jobs SET state = ?", {state}).ok());
    return SchedulerCore::Open(*store_, options).status().code();
  };
  EXPECT_EQ(open(good, job), StatusCode::kOk);
  // Every number in it may be another one, and every text shorter: it is refused, or it can be.
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string cluster = good, state = job;
    std::string& spoilt = i % 2 == 0 ? cluster : state;
    const size_t at = random() % spoilt.size();
    if (i % 20 == 0) spoilt.resize(at);
    if (i % 20 != 0 && isdigit(static_cast<unsigned char>(spoilt[at])) != 0)
      spoilt[at] = static_cast<char>('0' + random() % 10);
    else if (i % 20 != 0)
      spoilt.erase(at, 1);
    const StatusCode code = open(cluster, state);
    EXPECT_TRUE(code == StatusCode::kOk || code == StatusCode::kCorrupt) << StatusCodeName(code);
    refused += code == StatusCode::kCorrupt ? 1 : 0;
  }
  EXPECT_GT(refused, 300);
}

// ---- Killed in the midst of it

// What happens to a small cluster: the same each time.
std::vector<StoredFact> Story() {
  std::vector<StoredFact> facts;
  const std::unique_ptr<Cluster> cluster = NewCluster();
  Time at = kBegin;
  const auto happens = [&](const Fact& fact) {
    facts.push_back({facts.size() + 1, at, fact});
    cluster->Take(facts.size(), at, fact);
  };
  const auto decide = [&] {
    for (std::vector<Fact> next = cluster->Decide(at); !next.empty(); next = cluster->Decide(at)) {
      for (const Fact& fact : next) happens(fact);
    }
  };
  happens(TenantSet{"red", 1});
  happens(NodeJoined{"n1", "unix:/nowhere", 3});
  for (int i = 0; facts.size() < 3000; ++i) {
    at += 10 * kSecond;
    JobRequest request;
    request.name = "j" + std::to_string(i);
    request.tenant = "red";
    request.argv = {"/bin/train"};
    happens(JobSubmitted{request, request.name});
    decide();
    for (const Order& order : cluster->Ready()) happens(OrderEnded{order.number, i % 9 != 0, ""});
    decide();
    const std::string ends = "j" + std::to_string(i - 2);
    if (cluster->Find(ends) != nullptr && cluster->Find(ends)->where == Cluster::Where::kRunning)
      happens(JobEnded{ends, true, 0, ""});
    if (i % 11 == 0) happens(JobsForgotten{at - 100 * kSecond});
  }
  return facts;
}

struct Opened {
  std::unique_ptr<Store> store;
  std::unique_ptr<Cluster> cluster = NewCluster();
};

Result<Opened> OpenAt(const std::string& path) {
  Opened opened;
  ASSIGN_OR_RETURN(opened.store, Store::Open(path));
  ASSIGN_OR_RETURN(const std::optional<Snapshot> snapshot, opened.store->LoadSnapshot());
  if (snapshot) RETURN_IF_ERROR(opened.cluster->Restore(*snapshot));
  RETURN_IF_ERROR(opened.store->ForEach([&](const StoredFact& stored) {
    opened.cluster->Take(stored.number, stored.at, stored.fact);
    return Status();
  }));
  return opened;
}

// Goes on from where it is, with a snapshot after every other fact; never returns. Writes a byte for each
// fact that is stored.
[[noreturn]] void GoOn(const std::string& path, const std::vector<StoredFact>& story, int stored) {
  Result<Opened> opened = OpenAt(path);
  if (!opened.ok()) _exit(2);
  uint64_t compacted = 0;
  const Result<std::optional<Snapshot>> snapshot = opened->store->LoadSnapshot();
  if (*snapshot) compacted = (*snapshot)->number;
  for (uint64_t next = opened->cluster->last_number(); next < story.size(); ++next) {
    const StoredFact& fact = story[next];
    if (!opened->store->Append({fact}).ok()) _exit(3);
    opened->cluster->Take(fact.number, fact.at, fact.fact);
    (void)!write(stored, "x", 1);
    if (fact.number % 2 != 0) continue;
    const Store::Event event{fact.number, "{}"};
    if (!opened->store->SaveSnapshot(opened->cluster->Save(compacted), {event}, 5).ok()) _exit(4);
    compacted = fact.number;
  }
  _exit(0);
}

TEST(CompactionKilled, TheSameWhereverItIsKilled) {
  const char* full = std::getenv("STASIS_TEST_FULL");
  const std::vector<StoredFact> story = Story();
  TempFolder folder;
  const std::string path = folder / "schedd.db";
  const std::unique_ptr<Cluster> reference = NewCluster();
  std::mt19937 random(1);
  const int rounds = full != nullptr && std::string_view(full) == "1" ? 300 : 30;
  for (int round = 0; round < rounds && reference->last_number() < story.size(); ++round) {
    int stored[2];
    ASSERT_EQ(pipe2(stored, O_CLOEXEC), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) GoOn(path, story, stored[1]);
    close(stored[1]);
    char byte;
    for (unsigned facts = 1 + random() % 4; facts > 0 && read(stored[0], &byte, 1) == 1; --facts) {
    }
    // Anywhere between this fact and the next ones.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    kill(child, SIGKILL);
    close(stored[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
    Result<Opened> opened = OpenAt(path);
    ASSERT_OK(opened.status());
    for (uint64_t next = reference->last_number(); next < opened->cluster->last_number(); ++next)
      reference->Take(story[next].number, story[next].at, story[next].fact);
    ASSERT_EQ(TextOf(*opened->cluster), TextOf(*reference)) << "after fact " << reference->last_number();
  }
  EXPECT_GT(reference->last_number(), 20u);
}

}  // namespace
}  // namespace stasis::scheduler

// What a target takes, and what it answers about it, without a network and without ghosts.
#include "coordinator/agent/incoming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/files.h"
#include "base/process.h"
#include "base/testing.h"
#include "coordinator/agent/chunk_sender.h"
#include "coordinator/agent/migration_testing.h"
#include "coordinator/agent/pack_tail.h"
#include "coordinator/agent/schema.h"
#include "coordinator/agent/signs_of_life.h"
#include "coordinator/agent/testing.h"
#include "coordinator/node/image_names.h"
#include "dedup/image_testing.h"
#include "ghost/manifest.h"

namespace stasis {
namespace {

using testing::HasSubstr;

// A clock that another thread may read while it is moved.
class TestClock final : public Clock {
 public:
  MonotonicTime Now() const override { return std::chrono::milliseconds(now_ms.load()); }
  std::atomic<int64_t> now_ms{1000};
};

class IncomingTest : public testing::Test {
 protected:
  void SetUp() override {
    site_.folders = {folder_ / "state", folder_ / "run"};
    site_.files.ghost = "/nonexistent/stasis-ghost";
    ASSERT_OK(MakeFolders(site_.folders.state));
    Result<std::unique_ptr<Database>> database = Database::Open(folder_ / "state/agent.db", SchemaSteps());
    ASSERT_OK(database.status());
    database_ = *std::move(database);
    Begin();
  }
  // As an agent that is started.
  void Begin() {
    incoming_.reset();
    Result<std::unique_ptr<Incoming>> incoming =
        Incoming::Start(site_, *database_, registry_, set_schedule_, end_job_, clock_);
    ASSERT_OK(incoming.status());
    incoming_ = *std::move(incoming);
    peer_ = std::make_unique<DirectPeer>(*incoming_);
  }

  Json TaskJson(const std::string& name) {
    return {{"version", 1},
            {"name", name},
            {"argv", {"/bin/true"}},
            {"cwd", "/"},
            {"created", 17},
            {"uid", 0},
            {"device", "soft"},
            {"driver", "/none.so"},
            {"driver_environment", Json::array()},
            {"strategy", "auto"},
            {"gpus", Json::array()},
            {"managed", "refuse"},
            {"pid_namespace", true},
            {"log", "/l/output.log"}};
  }
  Manifest MakeManifest(const std::string& name) {
    Manifest manifest;
    manifest.task = TaskJson(name);
    manifest.kernel = KernelRelease();
    manifest.machine = MachineName();
    manifest.criu = "4.1";
    manifest.run = "/run/somewhere";
    manifest.log = "/l/output.log";
    return manifest;
  }
  // An image of a task in a store of its own, the source's.
  void MakeImage(const std::string& task, uint64_t seed, size_t bytes) {
    source_ = OpenStore(folder_ / "source");
    Bytes noise = Noise(seed, bytes);
    auto writer = ImageWriter::Create(source_, task, "000001");
    ASSERT_OK(writer.status());
    ASSERT_OK((*writer)->AddStream("device-2", {{0, bytes}}));
    const StreamLayout& layout = (*writer)->Layout("device-2");
    for (size_t i = 0; i < layout.pieces().size(); ++i) {
      const Piece& piece = layout.pieces()[i];
      ASSERT_OK((*writer)->WritePiece("device-2", i, std::span(noise).subspan(piece.offset, piece.size)));
    }
    ASSERT_OK((*writer)->Commit(ManifestJson(MakeManifest(task))));
  }
  // Past the look at this machine: an offer that was accepted, as Offer() keeps it.
  std::string Accept(const std::string& task) {
    Manifest manifest = MakeManifest(task);
    Result<TaskConfig> config = ParseTaskConfig(manifest.task);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    HandOverRow row;
    row.token = "token-" + task;
    row.job = task;
    row.tasks = {task};
    EXPECT_TRUE(incoming_->Accept(row, {{task, manifest, *config}}, {{}}).ok());
    return row.token;
  }
  std::vector<ChunkRef> Chunks(const std::string& task) {
    auto image = ImageReader::Open(source_, task, "000001");
    EXPECT_TRUE(image.ok());
    return (*image)->distinct_chunks();
  }
  Status SendManifest(const std::string& token, const std::string& task) {
    Bytes bytes = ReadBytes(*ManifestPath(source_->root(), task, "000001"));
    return peer_->PutManifest(token, 0, bytes);
  }
  v1::Outcome HandOver(const std::string& token) {
    v1::HandOverRequest request;
    request.set_token(token);
    Result<v1::Outcome> outcome = incoming_->HandOver(request);
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return outcome.ok() ? *outcome : v1::Outcome();
  }
  v1::OutcomeKind Ask(const std::string& token) {
    Result<v1::Outcome> outcome = peer_->AskOutcome(token, Duration::zero());
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return outcome.ok() ? outcome->kind() : v1::OUTCOME_KIND_UNSPECIFIED;
  }
  bool NothingIsHere(const std::string& task) {
    Result<std::shared_ptr<Store>> store = OpenOrCreateStore(site_.folders);
    return !Exists(TaskPaths(site_.folders, task).folder) && ListImages(**store, task)->empty();
  }
  void WriteUndecided(const std::string& token, const std::string& task,
                      const Json& result = Json::object()) {
    HandOverRow row;
    row.token = token;
    row.job = task;
    row.tasks = {task};
    row.record = Taker::Record::kMine;
    row.result = result;
    ASSERT_OK(HandOverTable(*database_).Write(row));
  }

  TempFolder folder_;
  Site site_;
  FakeRegistry registry_;
  TestClock clock_;
  std::mutex schedules_mutex_;
  std::map<std::string, v1::Schedule> schedules_;  // that were set
  Status schedule_answer_;
  const SetSchedule set_schedule_ = [this](const std::string& job, const v1::Schedule& rules) {
    std::lock_guard lock(schedules_mutex_);
    schedules_[job] = rules;
    return schedule_answer_;
  };
  const EndJob end_job_ = [](const std::string&) { return Status(StatusCode::kInternal, "not asked for"); };
  std::unique_ptr<Database> database_;
  std::unique_ptr<Incoming> incoming_;
  std::unique_ptr<DirectPeer> peer_;
  std::shared_ptr<Store> source_;
};

TEST_F(IncomingTest, AllChunksArriveAndNoneTwice) {
  MakeImage("train", 1, 5 << 20);
  std::string token = Accept("train");
  std::vector<ChunkRef> chunks = Chunks("train");
  ChunkSender sender(*peer_, token);
  Result<std::vector<ChunkRef>> lacking = sender.Lacking(chunks);
  ASSERT_OK(lacking.status());
  EXPECT_EQ(lacking->size(), chunks.size());
  uint64_t told = 0;
  ASSERT_OK(sender.Send(source_, *lacking, [&](uint64_t done, uint64_t) { told = done; }));
  EXPECT_EQ(told, 5u << 20);
  EXPECT_EQ(sender.sent_chunks(), chunks.size());
  EXPECT_TRUE(sender.Lacking(chunks)->empty());
  ChunkSender another(*peer_, token);  // that does not know what the first one has sent
  EXPECT_TRUE(another.Lacking(chunks)->empty());
}

TEST_F(IncomingTest, TheFirstErrorOfSendingIsTold) {
  MakeImage("train", 1, 8 << 20);
  std::string token = Accept("train");
  std::vector<ChunkRef> chunks = Chunks("train");
  peer_->fail = [&](const std::string& call) {
    if (call == "Put" && peer_->puts > 2) return Status(StatusCode::kUnavailable, "the network is cut");
    return Status();
  };
  ChunkSender sender(*peer_, token);
  Status sent = sender.Send(source_, chunks, nullptr);
  EXPECT_EQ(sent.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(sent.message()), HasSubstr("the network is cut"));
}

TEST_F(IncomingTest, WhatIsGivenUpIsNotSentToTheEnd) {
  MakeImage("train", 1, 24 << 20);
  std::string token = Accept("train");
  std::vector<ChunkRef> chunks = Chunks("train");
  ChunkSender sender(*peer_, token);
  auto give_up = [&](uint64_t, uint64_t) { sender.GiveUp(Status(StatusCode::kCancelled, "enough")); };
  EXPECT_EQ(sender.Send(source_, chunks, give_up).code(), StatusCode::kCancelled);
  EXPECT_LT(sender.sent_chunks(), chunks.size());
}

TEST_F(IncomingTest, ADamagedChunkIsRefused) {
  MakeImage("train", 1, 1 << 20);
  std::string token = Accept("train");
  std::vector<ChunkRef> chunks = Chunks("train");
  std::vector<Hash128> hashes = {chunks[0].hash};
  auto reader = StoreReader::Begin(source_, hashes);
  ASSERT_OK(reader.status());
  Bytes record = *(*reader)->ReadRecord(chunks[0].hash);
  record[record.size() / 2] ^= std::byte{1};
  std::string text(reinterpret_cast<const char*>(record.data()), record.size());
  EXPECT_EQ(peer_->Put(token, text).code(), StatusCode::kCorrupt);
  EXPECT_EQ(peer_->Put(token, text.substr(0, text.size() / 2)).code(), StatusCode::kCorrupt);
  EXPECT_EQ(peer_->Put(token, text.substr(0, 7)).code(), StatusCode::kCorrupt);
  Result<std::vector<bool>> missing = peer_->Missing(token, hashes);
  ASSERT_OK(missing.status());
  EXPECT_TRUE((*missing)[0]);
}

TEST_F(IncomingTest, ChunksTravelWhileTheyAreWritten) {
  std::string token = Accept("train");
  std::shared_ptr<Store> store = OpenStore(folder_ / "source");
  ChunkSender sender(*peer_, token);
  auto tail = PackTail::Start(store->root(), {getpid()}, [&](std::vector<ChunkRecord> records) {
    return sender.Pass(std::move(records));
  });
  ASSERT_OK(tail.status());
  auto writer = StoreWriter::Begin(store);
  ASSERT_OK(writer.status());
  std::vector<Hash128> hashes;
  auto put = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Bytes chunk = Noise(hashes.size() + 100, 64 << 10);
      hashes.push_back(HashBytes(chunk));
      ASSERT_OK((*writer)->Put(hashes.back(), chunk));
    }
  };
  put(200);  // more than is written at once
  while (sender.sent_chunks() == 0) std::this_thread::yield();
  put(50);
  ASSERT_OK((*writer)->Finish());
  tail->reset();
  ASSERT_OK(sender.Flush());
  EXPECT_EQ(sender.sent_chunks(), hashes.size());
  // Eight of them share a link that may be slow.
  EXPECT_LE(peer_->longest_put, 1u << 20);
  Result<std::vector<bool>> missing = peer_->Missing(token, hashes);
  ASSERT_OK(missing.status());
  for (bool each : *missing) EXPECT_FALSE(each);
}

TEST_F(IncomingTest, WhatOthersWriteIsNotSent) {
  std::string token = Accept("train");
  std::shared_ptr<Store> store = OpenStore(folder_ / "source");
  ChunkSender sender(*peer_, token);
  auto tail = PackTail::Start(
      store->root(), {1}, [&](std::vector<ChunkRecord> records) { return sender.Pass(std::move(records)); });
  ASSERT_OK(tail.status());
  auto writer = StoreWriter::Begin(store);
  for (uint64_t i = 0; i < 100; ++i) {
    Bytes chunk = Noise(i + 1, 64 << 10);
    ASSERT_OK((*writer)->Put(HashBytes(chunk), chunk));
  }
  ASSERT_OK((*writer)->Finish());
  tail->reset();
  ASSERT_OK(sender.Flush());
  EXPECT_EQ(sender.sent_chunks(), 0u);
}

TEST_F(IncomingTest, AnOfferIsVoidOnceItsOutcomeWasAsked) {
  MakeImage("train", 1, 1 << 20);
  std::string token = Accept("train");
  ASSERT_OK(SendManifest(token, "train"));
  EXPECT_EQ(Ask(token), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_EQ(HandOver(token).kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_EQ(peer_->Put(token, "").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(NothingIsHere("train"));
}

TEST_F(IncomingTest, AnUnknownTokenWasNotTaken) {
  EXPECT_EQ(Ask("nonsense"), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_EQ(HandOver("nonsense").kind(), v1::OUTCOME_KIND_NOT_TAKEN);
}

TEST_F(IncomingTest, AnOfferEndsWithTheAgent) {
  std::string token = Accept("train");
  Begin();
  EXPECT_EQ(HandOver(token).kind(), v1::OUTCOME_KIND_NOT_TAKEN);
}

TEST_F(IncomingTest, AnImageThatIsNotWholeIsNotTaken) {
  MakeImage("train", 1, 2 << 20);
  std::string token = Accept("train");
  v1::Outcome without = HandOver(token);
  EXPECT_EQ(without.kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_THAT(without.result_json(), HasSubstr("has not come"));
  token = Accept("other");
  MakeImage("other", 2, 2 << 20);
  ASSERT_OK(SendManifest(token, "other"));
  v1::Outcome half = HandOver(token);
  EXPECT_EQ(half.kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_THAT(half.result_json(), HasSubstr("chunks of the image have not come"));
  EXPECT_TRUE(NothingIsHere("other"));
}

TEST_F(IncomingTest, AManifestOfAnotherTaskIsNotTaken) {
  MakeImage("other", 2, 1 << 20);
  std::string token = Accept("train");
  ASSERT_OK(SendManifest(token, "other"));
  EXPECT_THAT(HandOver(token).result_json(), HasSubstr("not of the task that was offered"));
}

TEST_F(IncomingTest, WhatCannotBeRestoredIsReturnedAndNothingStays) {
  MakeImage("train", 1, 2 << 20);
  std::string token = Accept("train");
  ChunkSender sender(*peer_, token);
  ASSERT_OK(sender.Send(source_, Chunks("train"), nullptr));
  ASSERT_OK(SendManifest(token, "train"));
  v1::Outcome outcome = HandOver(token);  // there is no ghost
  EXPECT_EQ(outcome.kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_TRUE(NothingIsHere("train"));
  Begin();
  EXPECT_EQ(Ask(token), v1::OUTCOME_KIND_NOT_TAKEN);
  ASSERT_OK(peer_->Settle(token));
  EXPECT_EQ(HandOverTable(*database_).Find(token).status().code(), StatusCode::kNotFound);
}

// With the token its source could only be told that it is not decided.
TEST_F(IncomingTest, WhatCouldNotBeWrittenDownIsNotForgotten) {
  MakeImage("train", 1, 2 << 20);
  const std::string token = Accept("train");
  ChunkSender sender(*peer_, token);
  ASSERT_OK(sender.Send(source_, Chunks("train"), nullptr));
  ASSERT_OK(SendManifest(token, "train"));
  ASSERT_OK(
      database_->Execute("CREATE TRIGGER no_room BEFORE INSERT ON handovers WHEN NEW.record = 'returned' "
                         "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"));
  EXPECT_EQ(HandOver(token).kind(), v1::OUTCOME_KIND_NOT_TAKEN);  // there is no ghost
  ASSERT_EQ(HandOverTable(*database_).Find(token)->record, Taker::Record::kMine);
  const std::string silent = Accept("silent");
  clock_.now_ms += 3 * 60 * 1000;
  // Looks for silent ones, too.
  (void)Accept("other");
  EXPECT_EQ(incoming_->JobOf(silent), "");
  EXPECT_EQ(Ask(token), v1::OUTCOME_KIND_NOT_TAKEN);
  ASSERT_OK(peer_->Settle(token));
  EXPECT_EQ(HandOverTable(*database_).Find(token).status().code(), StatusCode::kNotFound);
}

// What only this agent knows is lost with it.
TEST_F(IncomingTest, WhatCouldNotBeWrittenDownIsOnceItCanBe) {
  incoming_.reset();
  incoming_ = *Incoming::Start(site_, *database_, registry_, set_schedule_, end_job_, clock_,
                               std::chrono::milliseconds(1));
  peer_ = std::make_unique<DirectPeer>(*incoming_);
  MakeImage("train", 1, 2 << 20);
  MakeImage("other", 2, 2 << 20);
  // That it was this node's; that it is not any more.
  for (const char* record : {"mine", "returned"}) {
    const std::string task = record == std::string("mine") ? "train" : "other";
    ASSERT_OK(database_->Execute(std::string("CREATE TRIGGER no_room BEFORE INSERT ON handovers WHEN "
                                             "NEW.record IN ('") +
                                 record +
                                 "', 'returned') BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"));
    const std::string token = Accept(task);
    ASSERT_OK(ChunkSender(*peer_, token).Send(source_, Chunks(task), nullptr));
    ASSERT_OK(SendManifest(token, task));
    EXPECT_EQ(HandOver(token).kind(), v1::OUTCOME_KIND_NOT_TAKEN);  // there is no ghost
    EXPECT_NE(HandOverTable(*database_).Find(token).ok() ? HandOverTable(*database_).Find(token)->record
                                                         : Taker::Record::kNone,
              Taker::Record::kReturned);
    ASSERT_OK(database_->Execute("DROP TRIGGER no_room"));
    while (!HandOverTable(*database_).Find(token).ok() ||
           HandOverTable(*database_).Find(token)->record != Taker::Record::kReturned)
      std::this_thread::yield();
    // So it need not be kept in memory.
    clock_.now_ms += 31 * 1000;
    while (!incoming_->JobOf(token).empty()) std::this_thread::yield();
    EXPECT_EQ(Ask(token), v1::OUTCOME_KIND_NOT_TAKEN);
    ASSERT_OK(peer_->Settle(token));
  }
}

// What an agent that was killed in the middle has left, by what the task's files say.
TEST_F(IncomingTest, AfterAKillTheFilesDecide) {
  TaskPaths never(site_.folders, "never"), ended(site_.folders, "ended"), half(site_.folders, "half");
  for (const TaskPaths& paths : {never, ended, half}) {
    ASSERT_OK(MakeFolders(paths.folder));
    ASSERT_OK(WriteJson(paths.File("task.json"), TaskJson(paths.name)));
    ASSERT_OK(WriteJson(paths.File("status.json"), {{"state", "ended"}, {"ended_by", "import"}}));
    WriteUndecided("token-" + paths.name, paths.name);
  }
  ASSERT_OK(WriteJson(ended.File("exit.json"), {{"version", 1}, {"exit_code", 0}}));
  ASSERT_OK(WriteJson(ended.File("status.json"), {{"state", "ended"}, {"error", ""}}));
  // A ghost that was killed at the restore, as its successor has found the task.
  ASSERT_OK(WriteJson(half.File("status.json"), {{"state", "ended"}, {"ended_by", ""}, {"error", ""}}));
  WriteUndecided("token-nowhere", "nowhere");
  Begin();
  incoming_->AwaitProbes();
  EXPECT_EQ(Ask("token-never"), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_EQ(Ask("token-ended"), v1::OUTCOME_KIND_RUNS);
  EXPECT_EQ(Ask("token-half"), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_EQ(Ask("token-nowhere"), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_TRUE(Exists(ended.folder));
  EXPECT_FALSE(Exists(never.folder));
}

TEST_F(IncomingTest, TheScheduleOfAJobThatRunsHereIsTakenOverAfterAKillToo) {
  for (const char* name : {"runs", "returned"}) {
    TaskPaths paths(site_.folders, name);
    ASSERT_OK(MakeFolders(paths.folder));
    ASSERT_OK(WriteJson(paths.File("task.json"), TaskJson(name)));
    ASSERT_OK(WriteJson(paths.File("status.json"), {{"state", "ended"}, {"ended_by", "import"}}));
    WriteUndecided(std::string("token-") + name, name,
                   {{"images", {"000001"}}, {"schedule", R"({"intervalMs": "5000", "keepLast": 2})"}});
  }
  TaskPaths runs(site_.folders, "runs");
  ASSERT_OK(WriteJson(runs.File("exit.json"), {{"version", 1}, {"exit_code", 0}}));
  ASSERT_OK(WriteJson(runs.File("status.json"), {{"state", "ended"}, {"error", ""}}));
  schedule_answer_ = Status(StatusCode::kUnavailable, "no disk");
  Begin();
  incoming_->AwaitProbes();
  EXPECT_EQ(Ask("token-runs"), v1::OUTCOME_KIND_RUNS);
  EXPECT_EQ(Ask("token-returned"), v1::OUTCOME_KIND_NOT_TAKEN);
  ASSERT_EQ(schedules_.size(), 1u);
  EXPECT_EQ(schedules_["runs"].interval_ms(), 5000u);
  EXPECT_EQ(schedules_["runs"].keep_last(), 2u);
  // It runs all the same, and that is told.
  EXPECT_THAT(HandOver("token-runs").result_json(), HasSubstr("it runs without its schedule: "));
}

TEST_F(IncomingTest, AScheduleThatCannotBeIsNotTaken) {
  MakeImage("train", 1, 1 << 20);
  v1::HandOverRequest request;
  request.set_token(Accept("train"));
  request.mutable_schedule()->set_cron("every full moon");
  Result<v1::Outcome> outcome = incoming_->HandOver(request);
  ASSERT_OK(outcome.status());
  EXPECT_EQ(outcome->kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_THAT(outcome->result_json(), HasSubstr("cron"));
  EXPECT_TRUE(NothingIsHere("train"));
}

TEST_F(IncomingTest, WhatIsSilentIsForgotten) {
  std::string token = Accept("train");
  EXPECT_FALSE(
      incoming_->Accept({"second", "train", false, {"train"}, Taker::Record::kNone, {}}, {}, {}).ok());
  clock_.now_ms += 3 * 60 * 1000;
  ASSERT_OK(incoming_->Accept({"third", "train", false, {"train"}, Taker::Record::kNone, {}}, {}, {}));
  EXPECT_EQ(HandOver(token).kind(), v1::OUTCOME_KIND_NOT_TAKEN);
}

// Nobody else has to come for that.
TEST_F(IncomingTest, WhatASourceThatIsGoneHasSentIsLetGoOf) {
  incoming_ = *Incoming::Start(site_, *database_, registry_, set_schedule_, end_job_, clock_,
                               std::chrono::milliseconds(1));
  peer_ = std::make_unique<DirectPeer>(*incoming_);
  MakeImage("train", 1, 2 << 20);
  std::string token = Accept("train");
  ASSERT_OK(ChunkSender(*peer_, token).Send(source_, Chunks("train"), nullptr));
  // At an image, of which nothing is sent yet.
  for (int i = 0; i < 10; ++i) {
    clock_.now_ms += 25 * 1000;
    ASSERT_OK(peer_->StillAtIt(token));
  }
  clock_.now_ms += 31 * 1000;
  while (!incoming_->JobOf(token).empty()) std::this_thread::yield();
  EXPECT_TRUE(std::filesystem::is_empty(site_.folders.state + "/store/packs"));
  EXPECT_EQ(peer_->StillAtIt(token).code(), StatusCode::kNotFound);
  EXPECT_EQ(HandOver(token).kind(), v1::OUTCOME_KIND_NOT_TAKEN);
}

// One sign that is lost on the way is followed by another one, as is one that the target could not take.
TEST_F(IncomingTest, ASourceIsHeardWhileItLives) {
  incoming_ = *Incoming::Start(site_, *database_, registry_, set_schedule_, end_job_, clock_,
                               std::chrono::milliseconds(1));
  peer_ = std::make_unique<DirectPeer>(*incoming_);
  std::string token = Accept("train");
  peer_->fail = [&](const std::string&) {
    constexpr StatusCode kOdd[] = {StatusCode::kUnavailable, StatusCode::kResourceExhausted,
                                   StatusCode::kInternal};
    const int sign = peer_->signs;
    return sign % 2 == 0 ? Status(kOdd[sign / 2 % 3], "not heard") : Status();
  };
  {
    SignsOfLife signs(*peer_, token, std::chrono::milliseconds(1));
    for (int i = 0; i < 10; ++i) {
      clock_.now_ms += 25 * 1000;
      for (const int before = peer_->signs; peer_->signs < before + 4;) std::this_thread::yield();
      ASSERT_EQ(incoming_->JobOf(token), "train");
    }
  }
  clock_.now_ms += 31 * 1000;
  while (!incoming_->JobOf(token).empty()) std::this_thread::yield();
}

TEST_F(IncomingTest, AnOfferReplacesAnEarlierOneOfTheSameAgent) {
  const auto accept = [this](const char* token, const char* from) {
    return incoming_->Accept({token, "train", false, {"train"}, Taker::Record::kNone, {}}, {}, {}, from);
  };
  ASSERT_OK(accept("first", "one"));
  EXPECT_EQ(accept("others", "two").code(), StatusCode::kAlreadyExists);
  ASSERT_OK(accept("second", "one"));
  EXPECT_EQ(HandOver("first").kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  clock_.now_ms += 11 * 1000;
  ASSERT_OK(accept("others", "two"));
  EXPECT_EQ(HandOver("second").kind(), v1::OUTCOME_KIND_NOT_TAKEN);
}

TEST_F(IncomingTest, MalformedOffersAreRefused) {
  v1::OfferRequest offer;
  auto code = [&] { return incoming_->Offer(offer).status().code(); };
  EXPECT_EQ(code(), StatusCode::kInvalidArgument);
  offer.set_job("train");
  EXPECT_EQ(code(), StatusCode::kInvalidArgument);
  v1::RankNeeds* needs = offer.add_ranks();
  needs->set_task("../train");
  EXPECT_EQ(code(), StatusCode::kInvalidArgument);
  needs->set_task("train");
  needs->set_manifest_json("[");
  EXPECT_EQ(code(), StatusCode::kInvalidArgument);
  needs->set_manifest_json("{}");
  EXPECT_EQ(code(), StatusCode::kCorrupt);
  needs->set_manifest_json(ManifestJson(MakeManifest("other")).dump());
  EXPECT_EQ(code(), StatusCode::kInvalidArgument);
  offer.add_gpus(5000);
  EXPECT_EQ(code(), StatusCode::kInvalidArgument);
}

TEST_F(IncomingTest, AnOfferSaysWhatIsMissing) {
  Manifest manifest = MakeManifest("train");
  manifest.programs = {{"/nonexistent/program", "00ff", 10, 20}};
  manifest.files = {{"/nonexistent/data", 30, true}};
  v1::OfferRequest offer;
  offer.set_job("train");
  v1::RankNeeds* needs = offer.add_ranks();
  needs->set_task("train");
  needs->set_manifest_json(ManifestJson(manifest).dump());
  Result<v1::OfferReply> reply = incoming_->Offer(offer);
  ASSERT_OK(reply.status());
  EXPECT_EQ(reply->token(), "");
  std::string told;
  for (const v1::Refusal& refusal : reply->refused()) told += refusal.what() + " " + refusal.needed() + "\n";
  EXPECT_THAT(told, HasSubstr("program /nonexistent/program"));
  EXPECT_THAT(told, HasSubstr("file /nonexistent/data"));
}

TEST_F(IncomingTest, ANameThatIsTakenIsRefused) {
  TaskPaths paths(site_.folders, "train");
  ASSERT_OK(MakeFolders(paths.folder));
  Json other = TaskJson("train");
  other["created"] = 18;
  ASSERT_OK(WriteJson(paths.File("task.json"), other));
  v1::OfferRequest offer;
  offer.set_job("train");
  v1::RankNeeds* needs = offer.add_ranks();
  needs->set_task("train");
  needs->set_manifest_json(ManifestJson(MakeManifest("train")).dump());
  Result<v1::OfferReply> reply = incoming_->Offer(offer);
  ASSERT_OK(reply.status());
  ASSERT_EQ(reply->refused_size(), 1);
  EXPECT_EQ(reply->refused(0).what(), "name");
}

}  // namespace
}  // namespace stasis

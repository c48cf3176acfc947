// Copies of images as a target keeps them: what counts, what replaces what, and what is left after a kill.
#include "coordinator/agent/copy_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/testing.h"
#include "coordinator/agent/chunk_sender.h"
#include "coordinator/agent/incoming.h"
#include "coordinator/agent/migration_testing.h"
#include "coordinator/agent/schema.h"
#include "coordinator/agent/testing.h"
#include "coordinator/job_json.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/job.h"
#include "coordinator/node/job_start.h"
#include "dedup/image_testing.h"
#include "ghost/manifest.h"

namespace stasis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kBytes = 300 << 10;

Status NoSchedule(const std::string&, const v1::Schedule&) { return Status(); }
Status NoEnd(const std::string&) { return Status(); }

class CopyTest : public testing::Test {
 protected:
  void SetUp() override {
    site_.folders = {folder_ / "state", folder_ / "run"};
    ASSERT_OK(MakeFolders(site_.folders.state));
    Result<std::unique_ptr<Database>> database = Database::Open(folder_ / "state/agent.db", SchemaSteps());
    ASSERT_OK(database.status());
    database_ = *std::move(database);
    source_ = OpenStore(folder_ / "source");
    Begin();
  }
  // As an agent that is started.
  void Begin() {
    incoming_.reset();
    Result<std::unique_ptr<Incoming>> incoming =
        Incoming::Start(site_, *database_, registry_, NoSchedule, NoEnd);
    ASSERT_OK(incoming.status());
    incoming_ = *std::move(incoming);
    peer_ = std::make_unique<DirectPeer>(*incoming_);
  }

  std::vector<std::string> TasksOf(const std::string& job, int ranks) {
    if (ranks == 0) return {job};
    std::vector<std::string> tasks;
    for (int rank = 0; rank < ranks; ++rank) tasks.push_back(RankName(job, rank));
    return tasks;
  }
  Manifest MakeManifest(const std::string& job, int rank, int ranks, uint64_t created) {
    Manifest manifest;
    const std::string name = TasksOf(job, ranks)[static_cast<size_t>(rank)];
    manifest.task = {{"version", 1},
                     {"name", name},
                     {"argv", {"/bin/true"}},
                     {"cwd", "/"},
                     {"created", 17},
                     {"uid", 0},
                     {"device", "soft"},
                     {"driver", "/n"},
                     {"driver_environment", Json::array()},
                     {"strategy", "auto"},
                     {"gpus", {rank}},
                     {"managed", "refuse"},
                     {"pid_namespace", true},
                     {"log", "/l/output.log"}};
    if (ranks > 0) {
      manifest.task["job"] = job;
      manifest.task["rank"] = rank;
      manifest.task["ranks"] = ranks;
    }
    manifest.kernel = KernelRelease();
    manifest.machine = MachineName();
    manifest.criu = "4.1";
    manifest.run = "/run/somewhere";
    manifest.created = created;
    return manifest;
  }
  // An image of each rank (0: of a task alone) in the source's store, with bytes of its own.
  void MakeImages(const std::string& job, int ranks, uint64_t created, const std::string& id) {
    std::vector<std::string> tasks = TasksOf(job, ranks);
    for (size_t rank = 0; rank < tasks.size(); ++rank) {
      Bytes noise = Noise(created * 100 + rank, kBytes);
      auto writer = ImageWriter::Create(source_, tasks[rank], id);
      ASSERT_OK(writer.status());
      ASSERT_OK((*writer)->AddStream("device-2", {{0, noise.size()}}));
      const StreamLayout& layout = (*writer)->Layout("device-2");
      for (size_t i = 0; i < layout.pieces().size(); ++i) {
        const Piece& piece = layout.pieces()[i];
        ASSERT_OK((*writer)->WritePiece("device-2", i, std::span(noise).subspan(piece.offset, piece.size)));
      }
      Manifest manifest = MakeManifest(job, static_cast<int>(rank), ranks, created);
      ASSERT_OK((*writer)->Commit(ManifestJson(manifest)));
    }
    ASSERT_OK(source_->Refresh());
  }

  // Past the look at this machine: an offer that was accepted, as Offer() keeps it.
  std::string Accept(const std::string& job, int ranks) {
    static int count = 0;
    ArrivedJob arrived{"token-" + std::to_string(count++), job, ranks > 0, TasksOf(job, ranks)};
    std::vector<Arriving> arriving;
    for (size_t rank = 0; rank < arrived.tasks.size(); ++rank) {
      Manifest manifest = MakeManifest(job, static_cast<int>(rank), ranks, 0);
      Result<TaskConfig> config = ParseTaskConfig(manifest.task);
      EXPECT_TRUE(config.ok()) << config.status().ToString();
      arriving.push_back({arrived.tasks[rank], manifest, *config});
    }
    EXPECT_TRUE(incoming_->AcceptCopy(arrived, arriving, {}).ok());
    return arrived.token;
  }
  Status SendImages(const std::string& token, const std::string& job, int ranks, const std::string& id) {
    ChunkSender sender(*peer_, token);
    std::vector<std::string> tasks = TasksOf(job, ranks);
    for (size_t rank = 0; rank < tasks.size(); ++rank) {
      ASSIGN_OR_RETURN(auto image, ImageReader::Open(source_, tasks[rank], id));
      ASSIGN_OR_RETURN(std::vector<ChunkRef> lacking, sender.Lacking(image->distinct_chunks()));
      RETURN_IF_ERROR(sender.Send(source_, lacking, nullptr));
      ASSIGN_OR_RETURN(std::string path, ManifestPath(source_->root(), tasks[rank], id));
      RETURN_IF_ERROR(peer_->PutManifest(token, static_cast<uint32_t>(rank), ReadBytes(path)));
    }
    return Status();
  }
  Result<v1::KeepReply> Keep(const std::string& token, const std::string& job, int ranks, uint32_t keep) {
    v1::KeepRequest request;
    request.set_token(token);
    request.set_keep(keep);
    JobRecord record{job, {"/bin/true"}, 17, 29500, {ThisNode(ranks, {})}};
    if (ranks > 0) request.set_job_json(JobRecordText(record));
    return incoming_->Keep(request);
  }
  Result<v1::KeepReply> Copy(const std::string& job, int ranks, const std::string& id, uint32_t keep = 0) {
    std::string token = Accept(job, ranks);
    RETURN_IF_ERROR(SendImages(token, job, ranks, id));
    Result<v1::KeepReply> kept = Keep(token, job, ranks, keep);
    RETURN_IF_ERROR(peer_->Settle(token));
    return kept;
  }
  // Its id here.
  std::string Copied(const std::string& job, int ranks, const std::string& id, uint32_t keep = 0) {
    Result<v1::KeepReply> kept = Copy(job, ranks, id, keep);
    EXPECT_TRUE(kept.ok()) << kept.status().ToString();
    return kept.ok() ? kept->image() : "";
  }

  std::vector<std::string> Ids(const std::string& task) {
    Result<std::shared_ptr<Store>> store = OpenOrCreateStore(site_.folders);
    return *ListImages(**store, task);
  }
  std::vector<std::string> JobIds(const std::string& job) {
    std::vector<std::string> ids;
    Result<std::vector<JobImage>> images = ListJobImages(site_.folders.state, job);
    EXPECT_TRUE(images.ok()) << images.status().ToString();
    if (!images.ok()) return ids;
    for (const JobImage& image : *images) ids.push_back(image.id);
    return ids;
  }
  uint64_t CreatedOf(const std::string& task, const std::string& id) {
    Result<std::unique_ptr<ImageReader>> image = OpenImage({task, id}, site_.folders);
    EXPECT_TRUE(image.ok()) << image.status().ToString();
    return image.ok() ? ParseManifest((*image)->meta())->created : 0;
  }
  TaskCondition ConditionOf(const std::string& task) {
    Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(site_.folders, task));
    EXPECT_TRUE(facts.ok()) << facts.status().ToString();
    return facts.ok() ? DeriveCondition(*facts).condition : TaskCondition::kCreated;
  }
  std::string LastImage(const std::string& task) {
    return TextField(*ReadJson(TaskPaths(site_.folders, task).File("status.json")), "last_image");
  }
  bool IsKnown(const std::string& task) { return Exists(TaskPaths(site_.folders, task).File("task.json")); }
  // As an agent leaves it that is killed before it has written that the newest copy is whole.
  CopyRow BreakNewest(const std::string& job) {
    CopyTable table(*database_);
    CopyRow row = table.Of(job)->back();
    row.whole = false;
    EXPECT_TRUE(table.Write(row).ok());
    return row;
  }
  void RemoveFromStore(const std::string& task, const std::string& id) {
    Result<std::shared_ptr<Store>> store = OpenOrCreateStore(site_.folders);
    ASSERT_OK(RemoveImage(**store, task, id));
  }
  uint64_t StoredBytes() {
    Result<std::shared_ptr<Store>> store = OpenOrCreateStore(site_.folders);
    return (*store)->counts().raw_bytes;
  }
  // Some process of it lives.
  void MakeLive(const std::string& task) {
    ProcessIdentity self = *IdentifyProcess(getpid());
    TaskPaths paths(site_.folders, task);
    ASSERT_OK(
        WriteJson(paths.File("process.json"),
                  {{"init_pid", self.pid}, {"init_start_time", self.start_time}, {"boot_id", self.boot_id}}));
    ASSERT_OK(WriteJson(paths.File("status.json"), {{"state", "running"}}));
  }

  TempFolder folder_;
  Site site_;
  FakeRegistry registry_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Incoming> incoming_;
  std::unique_ptr<DirectPeer> peer_;
  std::shared_ptr<Store> source_;
};

TEST_F(CopyTest, ATaskThatHasEndedAndCanBeRestored) {
  MakeImages("train", 0, 1000, "000007");
  EXPECT_EQ(Copied("train", 0, "000007"), "000001");
  EXPECT_EQ(ConditionOf("train"), TaskCondition::kCheckpointed);
  EXPECT_EQ(LastImage("train"), "000001");
  EXPECT_THAT(Ids("train"), ElementsAre("000001"));
  EXPECT_EQ(CreatedOf("train", ""), 1000u);
  EXPECT_GT(registry_.refreshed("train"), 0);
}

TEST_F(CopyTest, AJobOfRanks) {
  MakeImages("ddp", 2, 1000, "000003");
  EXPECT_EQ(Copied("ddp", 2, "000003"), "000001");
  EXPECT_THAT(JobIds("ddp"), ElementsAre("000001"));
  Result<JobFacts> facts = ReadJobFacts(site_.folders, "ddp");
  ASSERT_OK(facts.status());
  EXPECT_EQ(facts->record.ranks(), 2);
  EXPECT_EQ(facts->last_image, "000001");
  for (const std::string& task : TasksOf("ddp", 2))
    EXPECT_EQ(ConditionOf(task), TaskCondition::kCheckpointed);
}

TEST_F(CopyTest, TheNewestStayAndTheNewestIsLast) {
  for (uint64_t i = 1; i <= 4; ++i) MakeImages("train", 0, 1000 + i, "00000" + std::to_string(i));
  Copied("train", 0, "000001");
  Copied("train", 0, "000002");
  Copied("train", 0, "000003");
  EXPECT_THAT(Ids("train"), ElementsAre("000002", "000003"));
  EXPECT_EQ(StoredBytes(), 2 * kBytes);
  EXPECT_EQ(Copied("train", 0, "000004", 1), "000004");
  EXPECT_THAT(Ids("train"), ElementsAre("000004"));
  EXPECT_EQ(CreatedOf("train", ""), 1004u);
  EXPECT_EQ(LastImage("train"), "000004");
}

TEST_F(CopyTest, OfRanksTheSame) {
  for (uint64_t i = 1; i <= 3; ++i) MakeImages("ddp", 2, 1000 + i, "00000" + std::to_string(i));
  for (const char* id : {"000001", "000002", "000003"}) Copied("ddp", 2, id);
  EXPECT_THAT(JobIds("ddp"), ElementsAre("000002", "000003"));
  EXPECT_THAT(Ids("ddp.1"), ElementsAre("000002", "000003"));
}

TEST_F(CopyTest, TheSameImageIsThereOnce) {
  MakeImages("train", 0, 1000, "000001");
  MakeImages("train", 0, 1001, "000002");
  Copied("train", 0, "000001");
  Copied("train", 0, "000002");
  const uint64_t puts = peer_->puts;
  Result<v1::KeepReply> again = Copy("train", 0, "000002");
  ASSERT_OK(again.status());
  EXPECT_TRUE(again->known());
  EXPECT_EQ(again->image(), "000002");
  EXPECT_EQ(peer_->puts, puts);
  EXPECT_THAT(Ids("train"), ElementsAre("000001", "000002"));
}

TEST_F(CopyTest, AnOlderOneIsRefused) {
  MakeImages("train", 0, 1000, "000001");
  MakeImages("train", 0, 1001, "000002");
  Copied("train", 0, "000002");
  Result<v1::KeepReply> older = Copy("train", 0, "000001");
  EXPECT_EQ(older.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(older.status().ToString(), HasSubstr("newer"));
  EXPECT_THAT(Ids("train"), ElementsAre("000001"));
  EXPECT_EQ(CreatedOf("train", ""), 1001u);
}

TEST_F(CopyTest, AJobThatLivesHereIsLeftAlone) {
  MakeImages("train", 0, 1000, "000001");
  MakeImages("train", 0, 1001, "000002");
  Copied("train", 0, "000001");
  MakeLive("train");
  Result<v1::KeepReply> refused = Copy("train", 0, "000002");
  EXPECT_EQ(refused.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(Ids("train"), ElementsAre("000001"));
  EXPECT_EQ(ConditionOf("train"), TaskCondition::kRunning);
}

TEST_F(CopyTest, WhatRanHereToItsEndStays) {
  MakeImages("train", 0, 1000, "000001");
  MakeImages("train", 0, 1001, "000002");
  Copied("train", 0, "000001");
  TaskPaths paths(site_.folders, "train");
  ASSERT_OK(WriteJson(paths.File("process.json"),
                      {{"init_pid", 1}, {"init_start_time", 1}, {"boot_id", "before"}}));
  ASSERT_OK(WriteJson(paths.File("status.json"), {{"state", "ended"}, {"ended_by", ""}}));
  ASSERT_OK(WriteJson(paths.File("exit.json"), {{"version", 1}, {"exit_code", 0}}));
  EXPECT_THAT(Copy("train", 0, "000002").status().ToString(), HasSubstr("to its end"));
  EXPECT_EQ(ConditionOf("train"), TaskCondition::kExited);
}

TEST_F(CopyTest, AnOperationOnTheJobComesFirst) {
  MakeImages("train", 0, 1000, "000001");
  v1::Job job;
  job.set_name("train");
  job.set_operation("op-000003");
  registry_.Put(job);
  EXPECT_THAT(Copy("train", 0, "000001").status().ToString(), HasSubstr("op-000003"));
  EXPECT_FALSE(IsKnown("train"));
}

TEST_F(CopyTest, OfRanksAnotherOperationHoldsTheLock) {
  MakeImages("ddp", 2, 1000, "000001");
  Result<Fd> lock = LockJob(site_.folders.run, "ddp");
  ASSERT_OK(lock.status());
  EXPECT_EQ(Copy("ddp", 2, "000001").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Ids("ddp.0"), IsEmpty());
}

TEST_F(CopyTest, HalfAnImageIsNone) {
  MakeImages("ddp", 2, 1000, "000001");
  std::string token = Accept("ddp", 2);
  EXPECT_THAT(Keep(token, "ddp", 2, 0).status().ToString(), HasSubstr("has not come"));
  token = Accept("ddp", 2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    std::string path = *ManifestPath(source_->root(), RankName("ddp", static_cast<int>(rank)), "000001");
    ASSERT_OK(peer_->PutManifest(token, rank, ReadBytes(path)));
  }
  Result<v1::KeepReply> half = Keep(token, "ddp", 2, 0);
  EXPECT_THAT(half.status().ToString(), HasSubstr("chunks of the image have not come"));
  // Asked again it answers the same, and nothing more is taken.
  EXPECT_EQ(Keep(token, "ddp", 2, 0).status().ToString(), half.status().ToString());
  EXPECT_EQ(peer_->Put(token, "").code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(IsKnown("ddp.0"));
  EXPECT_THAT(Ids("ddp.0"), IsEmpty());
}

TEST_F(CopyTest, ACopyThatWasGivenUpLeavesNothing) {
  MakeImages("train", 0, 1000, "000001");
  std::string token = Accept("train", 0);
  ASSERT_OK(SendImages(token, "train", 0, "000001"));
  ASSERT_OK(peer_->Settle(token));
  EXPECT_EQ(Keep(token, "train", 0, 0).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(StoredBytes(), 0u);
  EXPECT_FALSE(IsKnown("train"));
}

// As of a source that was killed in the middle and begins anew, or never does.
TEST_F(CopyTest, AnotherCopyOfTheJobTakesThePlaceOfOneOnItsWay) {
  MakeImages("train", 0, 1000, "000001");
  MakeImages("train", 0, 1001, "000002");
  std::string token = Accept("train", 0);
  ASSERT_OK(SendImages(token, "train", 0, "000001"));
  EXPECT_EQ(Copied("train", 0, "000002"), "000001");
  EXPECT_EQ(CreatedOf("train", ""), 1001u);
  EXPECT_EQ(Keep(token, "train", 0, 0).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(StoredBytes(), kBytes);
}

TEST_F(CopyTest, AMigrationOfTheJobGoesFirst) {
  MakeImages("train", 0, 1000, "000001");
  std::string token = Accept("train", 0);
  ASSERT_OK(SendImages(token, "train", 0, "000001"));
  Manifest manifest = MakeManifest("train", 0, 0, 0);
  HandOverRow row{"moving", "train", false, {"train"}, Taker::Record::kNone, {}};
  ASSERT_OK(incoming_->Accept(row, {{"train", manifest, *ParseTaskConfig(manifest.task)}}, {{}}));
  EXPECT_EQ(Keep(token, "train", 0, 0).status().code(), StatusCode::kNotFound);
  ArrivedJob job{"later", "train", false, {"train"}};
  EXPECT_EQ(incoming_->AcceptCopy(job, {{"train", manifest, *ParseTaskConfig(manifest.task)}}, {}).code(),
            StatusCode::kAlreadyExists);
  ASSERT_OK(peer_->AskOutcome("moving", Duration::zero()).status());
  EXPECT_EQ(Copied("train", 0, "000001"), "000001");
}

// There is no ghost, so that the restore fails.
TEST_F(CopyTest, AMigrationThatFailsLeavesTheCopies) {
  site_.files.ghost = "/nonexistent/stasis-ghost";
  Begin();
  MakeImages("train", 0, 1000, "000001");
  MakeImages("train", 0, 1001, "000002");
  Copied("train", 0, "000001");
  Manifest manifest = MakeManifest("train", 0, 0, 0);
  HandOverRow row{"moving", "train", false, {"train"}, Taker::Record::kNone, {}};
  ASSERT_OK(incoming_->Accept(row, {{"train", manifest, *ParseTaskConfig(manifest.task)}}, {{}}));
  ASSERT_OK(SendImages("moving", "train", 0, "000002"));
  v1::HandOverRequest request;
  request.set_token("moving");
  Result<v1::Outcome> outcome = incoming_->HandOver(request);
  ASSERT_OK(outcome.status());
  EXPECT_EQ(outcome->kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_THAT(Ids("train"), ElementsAre("000001"));
  EXPECT_EQ(ConditionOf("train"), TaskCondition::kCheckpointed);
  EXPECT_EQ(LastImage("train"), "000001");
}

TEST_F(CopyTest, WhatHasMovedAwayCanComeBack) {
  MakeImages("train", 0, 1000, "000001");
  TaskPaths paths(site_.folders, "train");
  ASSERT_OK(MakeFolders(paths.folder));
  ASSERT_OK(WriteJson(paths.File("task.json"), MakeManifest("train", 0, 0, 0).task));
  ASSERT_OK(MarkMoved(paths.folder, "elsewhere"));
  Copied("train", 0, "000001");
  EXPECT_EQ(MovedTo(paths.folder), "");
  EXPECT_EQ(ConditionOf("train"), TaskCondition::kCheckpointed);
}

TEST_F(CopyTest, AnImageThatTookTheIdOfOneThatIsGoneIsNotACopy) {
  for (uint64_t i = 1; i <= 3; ++i) MakeImages("train", 0, 1000 + i, "00000" + std::to_string(i));
  Copied("train", 0, "000001");
  RemoveFromStore("train", "000001");
  // The job has run here, and has made this.
  Result<std::shared_ptr<Store>> store = OpenOrCreateStore(site_.folders);
  auto writer = ImageWriter::Create(*store, "train", "000001");
  ASSERT_OK(writer.status());
  ASSERT_OK((*writer)->Commit(ManifestJson(MakeManifest("train", 0, 0, 5))));
  Copied("train", 0, "000002", 1);
  Copied("train", 0, "000003", 1);
  EXPECT_THAT(Ids("train"), ElementsAre("000001", "000003"));
}

TEST_F(CopyTest, AfterAKillAWholeCopyIsFinished) {
  MakeImages("train", 0, 1000, "000001");
  Copied("train", 0, "000001");
  BreakNewest("train");
  ASSERT_OK(RemoveTree(TaskPaths(site_.folders, "train").folder));
  Begin();
  EXPECT_EQ(ConditionOf("train"), TaskCondition::kCheckpointed);
  EXPECT_EQ(CopyTable(*database_).Of("train")->size(), 1u);
}

TEST_F(CopyTest, AfterAKillAWholeCopyOfRanksIsFinished) {
  MakeImages("ddp", 2, 1000, "000001");
  Copied("ddp", 2, "000001");
  BreakNewest("ddp");
  ASSERT_OK(RemoveTree(TaskPaths(site_.folders, "ddp.1").folder));
  ASSERT_OK(RemoveTree(JobFolder(site_.folders, "ddp")));
  Begin();
  EXPECT_THAT(JobIds("ddp"), ElementsAre("000001"));
  EXPECT_EQ(ConditionOf("ddp.1"), TaskCondition::kCheckpointed);
}

TEST_F(CopyTest, AfterAKillHalfACopyGoesAndTheOneBeforeStays) {
  MakeImages("ddp", 2, 1000, "000001");
  MakeImages("ddp", 2, 1001, "000002");
  Copied("ddp", 2, "000001");
  Copied("ddp", 2, "000002");
  BreakNewest("ddp");
  ASSERT_OK(RemoveJobImage(site_.folders.state, "ddp", "000002"));
  RemoveFromStore("ddp.1", "000002");  // only the first rank's was published
  Begin();
  EXPECT_THAT(JobIds("ddp"), ElementsAre("000001"));
  EXPECT_THAT(Ids("ddp.0"), ElementsAre("000001"));
  EXPECT_THAT(Ids("ddp.1"), ElementsAre("000001"));
  EXPECT_EQ(StoredBytes(), 2 * kBytes);
  ASSERT_OK(ReadJobFacts(site_.folders, "ddp").status());
}

TEST_F(CopyTest, WhatIsSilentIsForgottenWithWhatItSent) {
  MakeImages("train", 0, 1000, "000001");
  class LateClock final : public Clock {
   public:
    MonotonicTime Now() const override { return std::chrono::milliseconds(now_ms.load()); }
    std::atomic<int64_t> now_ms{1000};
  } clock;
  incoming_ =
      *Incoming::Start(site_, *database_, registry_, NoSchedule, NoEnd, clock, std::chrono::milliseconds(5));
  peer_ = std::make_unique<DirectPeer>(*incoming_);
  std::string token = Accept("train", 0);
  ASSERT_OK(SendImages(token, "train", 0, "000001"));
  clock.now_ms += 3 * 60 * 1000;
  while (!incoming_->JobOf(token).empty()) std::this_thread::yield();
  EXPECT_EQ(Keep(token, "train", 0, 0).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(StoredBytes(), 0u);
  incoming_.reset();
}

}  // namespace
}  // namespace stasis

#include "coordinator/agent/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <thread>

#include "coordinator/agent/image_shelf.h"
#include "coordinator/agent/schedule_testing.h"
#include "coordinator/agent/schema.h"
#include "coordinator/agent/testing.h"
#include "coordinator/job_record.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/testing.h"
#include "dedup/image.h"

namespace stasis {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Duration kLongest = seconds(60);

class SchedulesTest : public testing::Test {
 protected:
  SchedulesTest() : folders_{folder_.File("state"), folder_.File("run")} {
    Result<std::unique_ptr<Database>> database = Database::Open(folders_.state + "/agent.db", SchemaSteps());
    EXPECT_TRUE(database.ok()) << database.status().ToString();
    database_ = *std::move(database);
    v1::Job job;
    job.set_name("train");
    job.set_condition(v1::CONDITION_RUNNING);
    job.set_live(true);
    registry_.Put(job);
  }

  void Start() {
    Result<std::unique_ptr<Schedules>> schedules =
        Schedules::Start(*database_, registry_, operations_, {folders_, 0});
    ASSERT_TRUE(schedules.ok()) << schedules.status().ToString();
    schedules_ = *std::move(schedules);
  }
  void Set(uint64_t interval_ms) {
    v1::Schedule schedule;
    schedule.set_job("train");
    schedule.set_interval_ms(interval_ms);
    schedule.set_keep_last(1);
    Result<v1::Schedule> set = schedules_->Set(schedule);
    ASSERT_TRUE(set.ok()) << set.status().ToString();
  }
  // An image with a megabyte of its own.
  void MakeImage(const std::string& task, const std::string& id) {
    Result<std::shared_ptr<Store>> store = OpenOrCreateStore(folders_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    Result<std::unique_ptr<ImageWriter>> writer = ImageWriter::Create(*store, task, id);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    std::vector<std::byte> bytes(1 << 20);
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<std::byte>(next_random_() >> 24);
    ASSERT_TRUE((*writer)->AddStream("memory", {{0, bytes.size()}}).ok());
    ASSERT_TRUE((*writer)->WritePiece("memory", 0, bytes).ok());
    ASSERT_TRUE((*writer)->Commit(Json::object()).ok());
  }
  std::vector<std::string> Images(const std::string& job) {
    Result<std::vector<std::string>> images = MakeImageShelf(folders_)->List(job);
    EXPECT_TRUE(images.ok()) << images.status().ToString();
    return images.ok() ? *images : std::vector<std::string>();
  }
  uintmax_t StoredBytes() {
    uintmax_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(StoreRoot(folders_) + "/packs")) {
      bytes += file.file_size();
    }
    return bytes;
  }

  TempFolder folder_;
  const Folders folders_;
  std::minstd_rand next_random_{7};
  std::unique_ptr<Database> database_;
  FakeRegistry registry_;
  ScheduleOperations operations_;
  std::unique_ptr<Schedules> schedules_;
};

TEST_F(SchedulesTest, ACheckpointIsStartedWhenItsTimeHasCome) {
  Start();
  auto begin = std::chrono::steady_clock::now();
  Set(1000);
  ASSERT_TRUE(operations_.AwaitSubmitted(1, kLongest));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, seconds(1));
  operations_.End(v1::OPERATION_STATE_SUCCEEDED, {{"ok", true}, {"image", "000001"}, {"standstill_ms", 3}},
                  1);
  ASSERT_TRUE(operations_.AwaitSubmitted(2, kLongest));
}

TEST_F(SchedulesTest, AnEarlierTimeThanTheOneThatIsWaitedForIsKept) {
  Start();
  Set(3600000);
  Set(1000);
  EXPECT_TRUE(operations_.AwaitSubmitted(1, kLongest));
}

TEST_F(SchedulesTest, EndsWhileItWaits) {
  Start();
  Set(3600000);
  schedules_.reset();
  Start();
  ASSERT_EQ(schedules_->List("").size(), 1u);
  EXPECT_EQ(schedules_->List("train").at(0).interval_ms(), 3600000u);
  EXPECT_THAT(schedules_->List("other"), IsEmpty());
}

TEST_F(SchedulesTest, ImagesThatAreNotKeptGiveTheirRoomBack) {
  Start();
  Set(1000);
  for (size_t count = 1; count <= 3; count++) {
    ASSERT_TRUE(operations_.AwaitSubmitted(count, kLongest));
    std::string id = "00000" + std::to_string(count);
    MakeImage("train", id);
    operations_.End(v1::OPERATION_STATE_SUCCEEDED, {{"ok", true}, {"image", id}, {"standstill_ms", 3}}, 1);
  }
  ASSERT_TRUE(operations_.AwaitSubmitted(4, kLongest));
  auto give_up = std::chrono::steady_clock::now() + kLongest;
  while (Images("train").size() > 1 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  schedules_.reset();  // ends when what it is at has been done
  EXPECT_THAT(Images("train"), ElementsAre("000003"));
  EXPECT_LT(StoredBytes(), 3u << 19);
}

TEST_F(SchedulesTest, NoStoreHasNoImages) {
  EXPECT_THAT(Images("train"), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(StoreRoot(folders_)));
}

TEST_F(SchedulesTest, ImagesOfARankedJobGoWithTheirParts) {
  JobRecord record;
  record.name = "ddp";
  record.argv = {"./ddp_train"};
  record.nodes.resize(1);
  record.nodes[0].name = "here";
  record.nodes[0].ranks = 2;
  ASSERT_TRUE(WriteJobRecord(folders_.state, record).ok());
  for (const char* id : {"000001", "000002"}) {
    MakeImage("ddp.0", id);
    MakeImage("ddp.1", id);
    ASSERT_TRUE(WriteJobImage(folders_.state, "ddp", {id, 1, {id, id}}).ok());
  }
  EXPECT_THAT(Images("ddp"), ElementsAre("000001", "000002"));
  ASSERT_TRUE(MakeImageShelf(folders_)->Remove("ddp", {"000001", "000009"}).ok());
  EXPECT_THAT(Images("ddp"), ElementsAre("000002"));
  EXPECT_THAT(Images("ddp.0"), ElementsAre("000002"));
  EXPECT_THAT(Images("ddp.1"), ElementsAre("000002"));
  EXPECT_LT(StoredBytes(), 5u << 19);
}

}  // namespace
}  // namespace stasis

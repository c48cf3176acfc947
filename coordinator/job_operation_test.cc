#include "coordinator/job_operation.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "coordinator/testing.h"

namespace stasis {
namespace {

using Verb = JobRequest::Verb;

// An event for each request to give up.
class TestInterrupt final : public Interrupt {
 public:
  TestInterrupt() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)) {}
  int fd() const override { return event_.get(); }
  bool Take() override {
    uint64_t count;
    if (read(event_.get(), &count, sizeof count) != sizeof count) return false;
    taken_ = true;
    taken_.notify_all();
    return true;
  }
  void AwaitTaken() { taken_.wait(false); }
  void Raise() {
    uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof one);
  }

 private:
  Fd event_;
  std::atomic<bool> taken_{false};
};

class JobOperationTest : public testing::Test {
 protected:
  static constexpr int kRanks = 4;

  JobOperationTest() {
    std::string pattern = testing::TempDir() + "stasis-op-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    place_ = {folder_ + "/state", folder_ + "/run", folder_ + "/no-ghost"};
    record_.name = "job";
    record_.argv = {"./train"};
    record_.nodes.resize(1);
    record_.nodes[0].name = "here";
    record_.nodes[0].ranks = kRanks;
    EXPECT_TRUE(WriteJobRecord(place_.state_dir, record_).ok());
    for (int rank = 0; rank < kRanks; ++rank) StartGhost(rank);
    request_.deadline = std::chrono::seconds(20);
  }
  ~JobOperationTest() override {
    ghosts_.clear();
    std::filesystem::remove_all(folder_);
  }

  void StartGhost(int rank) {
    ghosts_.resize(kRanks);
    ghosts_[static_cast<size_t>(rank)] =
        std::make_unique<FakeRank>(place_.state_dir, place_.run_dir, record_.TaskOf(rank));
  }
  FakeRank& Ghost(int rank) { return *ghosts_[static_cast<size_t>(rank)]; }
  Json Run(Verb verb) {
    request_.verb = verb;
    JobWatcher watcher;
    watcher.interrupt = &interrupt_;
    watcher.on_attempt = [this](int, const std::string& why) { retries_.push_back(why); };
    return JobOperation(place_, record_, watcher).Run(request_);
  }
  void ExpectAll(const std::string& phase) {
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(Ghost(rank).phase(), phase) << "rank " << rank;
  }
  std::vector<JobImage> Images() { return *ListJobImages(place_.state_dir, "job"); }
  bool HasTaskImage(int rank, const std::string& id) {
    return std::filesystem::exists(place_.state_dir + "/store/images/job." + std::to_string(rank) + "/" + id +
                                   ".image");
  }

  std::string folder_;
  JobPlace place_;
  JobRecord record_;
  JobRequest request_;
  TestInterrupt interrupt_;
  std::vector<std::string> retries_;
  std::vector<std::unique_ptr<FakeRank>> ghosts_;
};

TEST_F(JobOperationTest, APauseIsOfAllRanks) {
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(result["attempts"], 1);
  EXPECT_EQ(result["first_try"], true);
  EXPECT_EQ(result["protocol"], "cut");
  EXPECT_EQ(result["device_bytes"], 400);
  EXPECT_EQ(result["ranks"].size(), 4u);
  ExpectAll("held");
  EXPECT_EQ(Ghost(2).asked(), (std::vector<std::string>{"cut", "cut", "drained", "held"}));
  EXPECT_EQ(Ghost(2).requests()[0]["job"], Json({{"name", "job"}, {"rank", 2}, {"ranks", 4}}));
  EXPECT_EQ(Run(Verb::kPause)["code"], "FAILED_PRECONDITION");
  Json resumed = Run(Verb::kResume);
  EXPECT_EQ(resumed["ok"], true) << resumed.dump(2);
  ExpectAll("running");
}

TEST_F(JobOperationTest, WithTheTimeoutRuleNobodyLooksForACut) {
  request_.cut = false;
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(result["protocol"], "timeout");
  EXPECT_EQ(Ghost(0).asked(), (std::vector<std::string>{"drained", "held"}));
}

TEST_F(JobOperationTest, OneRankThatCannotDrainTurnsAllBack) {
  Ghost(2).SetFault({FakeFault::kFail, "drained", StatusCode::kUnsupported});
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["ok"], false);
  EXPECT_EQ(result["code"], "UNSUPPORTED");
  EXPECT_EQ(result["message"], "rank 2: it went wrong at drained");
  EXPECT_EQ(result["remedy"], "look at job.2");
  EXPECT_EQ(result["left"], "rolled-back");
  EXPECT_EQ(result["attempts"], 1);
  ExpectAll("running");
  EXPECT_EQ(Ghost(0).asked().back(), "drained");
}

TEST_F(JobOperationTest, AfterTheCommunicatorsAreGoneAllGoBackTogether) {
  Ghost(1).SetFault({FakeFault::kFail, "held", StatusCode::kDriver});
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["left"], "rolled-back") << result.dump(2);
  ExpectAll("running");
  for (int rank : {0, 1, 3}) {
    EXPECT_EQ(Ghost(rank).asked(),
              (std::vector<std::string>{"cut", "cut", "drained", "held", "join", "joined"}));
  }
}

TEST_F(JobOperationTest, AWayBackThatFailsLeavesAllPaused) {
  Ghost(1).SetFault({FakeFault::kFail, "held", StatusCode::kDriver});
  Ghost(3).SetFault({FakeFault::kFail, "join", StatusCode::kDriver});
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["left"], "paused") << result.dump(2);
  EXPECT_EQ(result["message"], "rank 1: it went wrong at held");
  ExpectAll("held");
  EXPECT_EQ(Run(Verb::kResume)["ok"], true);
  ExpectAll("running");
}

TEST_F(JobOperationTest, WhatWasNotInTimeIsTriedAgain) {
  Ghost(0).SetFault({FakeFault::kFail, "drained", StatusCode::kTimeout, 2});
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(result["attempts"], 3);
  EXPECT_EQ(result["first_try"], false);
  EXPECT_EQ(retries_, std::vector<std::string>(2, "rank 0: it went wrong at drained"));
}

TEST_F(JobOperationTest, AttemptsComeToAnEnd) {
  request_.attempts = 2;
  Ghost(0).SetFault({FakeFault::kFail, "cut", StatusCode::kTimeout, 100});
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["code"], "TIMEOUT");
  EXPECT_EQ(result["attempts"], 2);
  EXPECT_EQ(result["left"], "rolled-back");
  ExpectAll("running");
}

TEST_F(JobOperationTest, AGhostThatDiesBeforeItsVoteTurnsTheOthersBack) {
  Ghost(3).SetFault({FakeFault::kDie, "drained"});
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["code"], "PEER_DIED") << result.dump(2);
  EXPECT_EQ(result["message"], "rank 3: its ghost has ended");
  EXPECT_EQ(result["left"], "rolled-back");
  ExpectAll("running");
}

TEST_F(JobOperationTest, AGhostThatDiesLaterLeavesAllPaused) {
  Ghost(3).SetFault({FakeFault::kDie, "held"});
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["code"], "PEER_DIED");
  EXPECT_EQ(result["left"], "paused") << result.dump(2);
  ExpectAll("held");
  EXPECT_EQ(result["remedy"], "`stasis resume job` lets all of its ranks run on");
  EXPECT_EQ(Run(Verb::kResume)["ok"], true);
  ExpectAll("running");
}

TEST_F(JobOperationTest, ASilentRankIsNamed) {
  request_.silence = std::chrono::milliseconds(400);
  Ghost(1).SetFault({FakeFault::kSilent, "drained"});
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["code"], "TIMEOUT") << result.dump(2);
  EXPECT_EQ(result["message"],
            "rank 1: it has not answered for 0.4 s: its ghost is stopped or its node is gone");
  EXPECT_EQ(result["left"], "in-doubt");
  EXPECT_EQ(result["left_ranks"]["in-doubt"], Json({1}));
  EXPECT_EQ(Ghost(0).phase(), "running");
}

// Who does not listen hears nothing, and has asked nobody.
TEST_F(JobOperationTest, NobodyIsSilentBecauseTheCoordinatorStoodStill) {
  struct sigaction stand {
  }, before{};
  stand.sa_handler = [](int) {
    const timespec time = {1, 0};
    nanosleep(&time, nullptr);
  };
  ASSERT_EQ(sigaction(SIGUSR2, &stand, &before), 0);
  request_.silence = std::chrono::milliseconds(400);
  Ghost(1).HoldAt("drained");
  std::thread later([this, coordinator = pthread_self()] {
    Ghost(1).AwaitHeld();
    pthread_kill(coordinator, SIGUSR2);
    Ghost(1).Release();
  });
  Json result = Run(Verb::kPause);
  later.join();
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  ExpectAll("held");
  ASSERT_EQ(sigaction(SIGUSR2, &before, nullptr), 0);
}

TEST_F(JobOperationTest, ARankThatIsNotDoneInTimeIsNamed) {
  request_.deadline = std::chrono::seconds(1);
  request_.attempts = 1;
  Ghost(2).HoldAt("drained");
  std::thread later([this] {
    Ghost(2).AwaitHeld();
    // Only the answers to questions for its state come from it; here not even these. Longer than the
    // coordinator waits beyond the deadline.
    std::this_thread::sleep_for(std::chrono::seconds(5));
    Ghost(2).Release();
  });
  Json result = Run(Verb::kPause);
  later.join();
  EXPECT_EQ(result["code"], "TIMEOUT") << result.dump(2);
  EXPECT_EQ(result["message"], "rank 2 does not stand still in time");
  ExpectAll("running");
}

// A coordinator that goes away when all ranks but the last have voted.
TEST_F(JobOperationTest, RanksInDoubtWithoutOneThatIsPausedRunOn) {
  std::vector<RankLink> links;
  for (int rank = 0; rank < kRanks - 1; ++rank) {
    links.push_back(*RankLink::Connect({record_.TaskOf(rank), place_.state_dir, place_.run_dir, "", {}}));
    ASSERT_TRUE(links.back().Ask({{"verb", "pause"}, {"pause_protocol", "timeout"}}).ok());
    while (Ghost(rank).asked().empty()) std::this_thread::yield();
  }
  links.clear();
  for (int rank = 0; rank < kRanks - 1; ++rank) {
    while (Ghost(rank).state() != "in-doubt") std::this_thread::yield();
  }
  EXPECT_EQ(Run(Verb::kCheckpoint)["code"], "FAILED_PRECONDITION");
  Json resumed = Run(Verb::kResume);
  EXPECT_EQ(resumed["ok"], true) << resumed.dump(2);
  EXPECT_EQ(Ghost(0).requests().back()["in_doubt"], "go-on");
  ExpectAll("running");
}

TEST_F(JobOperationTest, InDoubtAndPausedAreResumedTogether) {
  for (int rank : {0, 1}) Ghost(rank).set_phase("held");
  for (int rank : {2, 3}) Ghost(rank).set_phase("drained");
  Json refused = Run(Verb::kPause);
  EXPECT_EQ(refused["code"], "FAILED_PRECONDITION");
  EXPECT_EQ(refused["message"], "ranks 2 and 3 of job job are in doubt, the others are not");
  Json resumed = Run(Verb::kResume);
  EXPECT_EQ(resumed["ok"], true) << resumed.dump(2);
  EXPECT_FALSE(Ghost(0).requests().back().contains("in_doubt"));
  EXPECT_EQ(Ghost(2).requests().back()["in_doubt"], "give-up");
  for (int rank : {0, 3})
    EXPECT_EQ(Ghost(rank).asked(), (std::vector<std::string>{"revived", "join", "joined"}));
  ExpectAll("running");
}

TEST_F(JobOperationTest, InDoubtBesideRunningGoOn) {
  Ghost(2).set_phase("drained");
  EXPECT_EQ(Run(Verb::kResume)["ok"], true);
  EXPECT_TRUE(Ghost(0).requests().empty());
  EXPECT_EQ(Ghost(2).requests().back()["in_doubt"], "go-on");
  ExpectAll("running");
}

TEST_F(JobOperationTest, ACheckpointIsOneImageOfAll) {
  Json result = Run(Verb::kCheckpoint);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(result["image"], "000001");
  EXPECT_EQ(result["standstill_ms"], 7);
  EXPECT_EQ(result["image_bytes"], 4000);
  ASSERT_EQ(Images().size(), 1u);
  EXPECT_EQ(Images()[0].images, std::vector<std::string>(4, "000001"));
  ExpectAll("running");
  EXPECT_EQ(Run(Verb::kCheckpoint)["image"], "000002");
}

TEST_F(JobOperationTest, TheJobsImageIsThereBeforeAnyRankMayEnd) {
  request_.stop = true;
  std::atomic<int> seen{0};
  for (int rank = 0; rank < kRanks; ++rank) {
    Ghost(rank).set_on_committed([&] { seen += Images().size() == 1; });
  }
  Json result = Run(Verb::kCheckpoint);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(seen, kRanks);
  ExpectAll("absent");
}

TEST_F(JobOperationTest, ACheckpointThatOneRankCannotWriteIsNone) {
  Ghost(1).SetFault({FakeFault::kFail, "committed", StatusCode::kResourceExhausted});
  Json result = Run(Verb::kCheckpoint);
  EXPECT_EQ(result["code"], "RESOURCE_EXHAUSTED") << result.dump(2);
  EXPECT_TRUE(Images().empty());
  ExpectAll("running");
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_FALSE(HasTaskImage(rank, "000001"));
}

TEST_F(JobOperationTest, ImagesOfNoImageOfTheJobAreRemoved) {
  std::filesystem::create_directories(place_.state_dir + "/store/images/job.2");
  std::ofstream(place_.state_dir + "/store/images/job.2/000007.image") << "orphan";
  Json result = Run(Verb::kCheckpoint);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_FALSE(HasTaskImage(2, "000007"));
  EXPECT_TRUE(HasTaskImage(2, Images()[0].images[2]));
  EXPECT_EQ(result["notes"].size(), 1u);
}

TEST_F(JobOperationTest, ARestoreIsOfAllRanks) {
  request_.stop = true;
  ASSERT_EQ(Run(Verb::kCheckpoint)["ok"], true);
  request_.stop = false;
  Ghost(2).SetFault({FakeFault::kFail, "revived", StatusCode::kResourceExhausted});
  Json failed = Run(Verb::kRestore);
  EXPECT_EQ(failed["code"], "RESOURCE_EXHAUSTED") << failed.dump(2);
  EXPECT_EQ(failed["left"], "unchanged");
  ExpectAll("absent");
  Json result = Run(Verb::kRestore);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(result["image"], "000001");
  ExpectAll("running");
  Json request = Ghost(1).requests().back();
  EXPECT_EQ(request["image"], "000001");
  EXPECT_EQ(request["peers"].size(), 4u);
  EXPECT_EQ(request["peers"][3]["task"], "job.3");
}

TEST_F(JobOperationTest, ARestoreElsewhereChangesTheRecord) {
  request_.stop = true;
  ASSERT_EQ(Run(Verb::kCheckpoint)["ok"], true);
  request_.stop = false;
  request_.nodes.resize(2);
  request_.nodes[0].name = "a";
  request_.nodes[0].ranks = 1;
  request_.nodes[1].name = "b";
  request_.nodes[1].ranks = 2;
  EXPECT_EQ(Run(Verb::kRestore)["code"], "INVALID_ARGUMENT");
  request_.nodes[1].ranks = 3;
  request_.nodes[1].gpus = {2, 1, 0};
  Ghost(0).SetFault({FakeFault::kFail, "join", StatusCode::kDriver});
  EXPECT_EQ(Run(Verb::kRestore)["ok"], false);
  EXPECT_EQ(ReadJobRecord(place_.state_dir, "job")->nodes.size(), 1u);
  Json result = Run(Verb::kRestore);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(ReadJobRecord(place_.state_dir, "job")->nodes.size(), 2u);
  EXPECT_EQ(Ghost(2).requests().back()["gpus"], Json::array({1}));
  EXPECT_EQ(Ghost(0).requests().back()["gpus"], Json::array({0}));
  EXPECT_EQ(Ghost(2).requests().back()["peers"].size(), 3u);
  EXPECT_EQ(Ghost(0).requests().back()["peers"].size(), 1u);
}

TEST_F(JobOperationTest, WithARankThatHasEndedOnlyCancelAndRestoreAreLeft) {
  ASSERT_EQ(Run(Verb::kCheckpoint)["ok"], true);
  Ghost(1).set_phase("absent");
  for (Verb verb : {Verb::kPause, Verb::kCheckpoint, Verb::kResume}) {
    Json result = Run(verb);
    EXPECT_EQ(result["code"], "FAILED_PRECONDITION");
    EXPECT_EQ(result["message"], "rank 1 of job job has ended");
  }
  Json alive = Run(Verb::kRestore);
  EXPECT_EQ(alive["code"], "ALREADY_EXISTS");
  EXPECT_EQ(alive["message"], "job job is alive (ranks 0, 2 and 3)");
  EXPECT_EQ(Run(Verb::kCancel)["ok"], true);
  ExpectAll("absent");
  EXPECT_EQ(Run(Verb::kCancel)["code"], "FAILED_PRECONDITION");
  EXPECT_EQ(Run(Verb::kRestore)["ok"], true);
  ExpectAll("running");
}

TEST_F(JobOperationTest, AnInterruptTurnsAllBack) {
  Ghost(3).HoldAt("drained");
  std::thread stop([this] {
    Ghost(3).AwaitHeld();
    interrupt_.Raise();
    interrupt_.AwaitTaken();
    Ghost(3).Release();
  });
  Json result = Run(Verb::kPause);
  stop.join();
  EXPECT_EQ(result["code"], "CANCELLED") << result.dump(2);
  EXPECT_EQ(result["left"], "rolled-back");
  ExpectAll("running");
}

TEST_F(JobOperationTest, OneOperationAtATime) {
  Ghost(0).HoldAt("drained");
  std::thread second([this] {
    Ghost(0).AwaitHeld();
    JobRequest request;
    request.verb = Verb::kCheckpoint;
    Json result = JobOperation(place_, record_, {}).Run(request);
    EXPECT_EQ(result["code"], "FAILED_PRECONDITION");
    EXPECT_EQ(result["message"], "another operation on job job is running");
    Ghost(0).Release();
  });
  EXPECT_EQ(Run(Verb::kPause)["ok"], true);
  second.join();
}

TEST_F(JobOperationTest, GhostsThatCannotStartAreNamed) {
  ghosts_[2].reset();
  Json result = Run(Verb::kPause);
  EXPECT_EQ(result["code"], "NOT_FOUND");
  EXPECT_NE(result["message"].get<std::string>().find("rank 2: "), std::string::npos) << result.dump(2);
  EXPECT_EQ(Ghost(0).phase(), "running");
}

}  // namespace
}  // namespace stasis

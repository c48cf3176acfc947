#include "coordinator/agent/request_checks.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/field_checks.h"

namespace stasis {
namespace {

v1::RunRequest GoodRun() {
  v1::RunRequest request;
  request.set_name("train");
  request.add_argv("./train");
  request.add_environment("HOME=/root");
  request.set_folder("/tmp");
  return request;
}

template <typename Request>
std::string Refusal(const Request& request) {
  Status status = CheckRequest(request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(RequestChecks, WhatIsInOrderIsTaken) {
  EXPECT_TRUE(CheckRequest(v1::ListRequest()).ok());
  EXPECT_TRUE(CheckRequest(v1::WatchRequest()).ok());
  EXPECT_TRUE(CheckRequest(v1::DevicesRequest()).ok());
  EXPECT_TRUE(CheckRequest(GoodRun()).ok());
  v1::PauseRequest pause;
  pause.set_job("train");
  pause.set_residency("host");
  EXPECT_TRUE(CheckRequest(pause).ok());
}

TEST(RequestChecks, NamesThatLeadElsewhereAreRefused) {
  for (const char* name : {"../etc", "a/b", ".hidden", "-x", "a b", "a\nb", ""}) {
    v1::PauseRequest pause;
    pause.set_job(name);
    EXPECT_NE(Refusal(pause).find("no task name"), std::string::npos) << name;
    v1::LogsRequest logs;
    logs.set_name(name);
    Refusal(logs);
    v1::RemoveRequest remove;
    remove.set_job(name);
    Refusal(remove);
    v1::SetScheduleRequest schedule;
    schedule.mutable_schedule()->set_job(name);
    Refusal(schedule);
  }
  v1::RestoreRequest restore;
  restore.set_job("train");
  restore.set_image("../../etc/passwd");
  EXPECT_NE(Refusal(restore).find("no id of a checkpoint"), std::string::npos);
}

TEST(RequestChecks, RunNeedsAProgramAndAFolder) {
  v1::RunRequest none = GoodRun();
  none.clear_argv();
  EXPECT_NE(Refusal(none).find("no program"), std::string::npos);
  v1::RunRequest relative = GoodRun();
  relative.set_folder("tmp");
  EXPECT_NE(Refusal(relative).find("no absolute path"), std::string::npos);
}

TEST(RequestChecks, TextsThatExecCannotTakeAreRefused) {
  v1::RunRequest zero = GoodRun();
  zero.add_argv(std::string("a\0b", 3));
  EXPECT_NE(Refusal(zero).find("zero byte"), std::string::npos);
  v1::RunRequest bare = GoodRun();
  bare.add_environment("NOVALUE");
  Refusal(bare);
  v1::RunRequest huge = GoodRun();
  huge.add_argv(std::string(kMaxRequestString, 'x'));
  EXPECT_NE(Refusal(huge).find("length"), std::string::npos);
  v1::RunRequest many = GoodRun();
  for (size_t i = 0; i <= kMaxRequestStrings; i++) many.add_argv("x");
  EXPECT_NE(Refusal(many).find("number"), std::string::npos);
}

TEST(RequestChecks, NumbersOutOfRangeAreRefused) {
  v1::RunRequest run = GoodRun();
  run.set_ranks(1u << 20);
  Refusal(run);
  v1::MigrateRequest twice;
  twice.set_job("train");
  twice.add_gpus(1);
  twice.add_gpus(1);
  EXPECT_NE(Refusal(twice).find("twice"), std::string::npos);
  v1::PauseRequest pause;
  pause.set_job("train");
  pause.mutable_options()->set_deadline_ms(std::numeric_limits<uint32_t>::max());
  Refusal(pause);
  v1::ListOperationsRequest list;
  list.set_limit(kMaxListedOperations + 1);
  Refusal(list);
  v1::SignalRequest stop;
  stop.set_job("train");
  stop.set_signal(19);
  EXPECT_NE(Refusal(stop).find("not passed on"), std::string::npos);
}

TEST(RequestChecks, WordsOfNoMeaningAreRefused) {
  v1::DevicesRequest devices;
  devices.set_kind("amd");
  EXPECT_NE(Refusal(devices).find("none of auto, nvidia, soft"), std::string::npos);
  v1::CheckpointRequest checkpoint;
  checkpoint.set_job("train");
  checkpoint.set_snapshot("maybe");
  Refusal(checkpoint);
}

TEST(RequestChecks, ACopyNeedsANodeAndAnImageByItsId) {
  v1::CopyImageRequest copy;
  copy.set_job("train");
  EXPECT_NE(Refusal(copy).find("node"), std::string::npos);
  copy.set_node("n1:7470");
  EXPECT_TRUE(CheckRequest(copy).ok());
  copy.set_image("../1");
  EXPECT_NE(Refusal(copy).find("no id of a checkpoint"), std::string::npos);
  copy.set_image("000003");
  EXPECT_TRUE(CheckRequest(copy).ok());
  copy.set_keep(kMaxCopiesKept + 1);
  Refusal(copy);
}

TEST(RequestChecks, SchedulesMustMakeSense) {
  v1::SetScheduleRequest request;
  request.mutable_schedule()->set_job("train");
  request.mutable_schedule()->set_interval_ms(1000);
  EXPECT_TRUE(CheckRequest(request).ok());
  request.mutable_schedule()->set_cron("* * * * *");
  EXPECT_NE(Refusal(request).find("not both"), std::string::npos);
  request.mutable_schedule()->clear_cron();
  request.mutable_schedule()->set_overhead_budget(std::numeric_limits<double>::quiet_NaN());
  Refusal(request);
}

// A job does not begin under a schedule that it would then not have.
TEST(RequestChecks, ARunWithAScheduleThatMakesNoSenseIsRefused) {
  v1::RunRequest run;
  run.add_argv("./train");
  run.set_folder("/work");
  run.mutable_schedule()->set_cron("*/5 * * * *");
  EXPECT_TRUE(CheckRequest(run).ok());
  for (const char* cron : {"60 * * * *", "* * * *", "0 0 30 2 *", "whenever", "\n"}) {
    run.mutable_schedule()->set_cron(cron);
    EXPECT_NE(Refusal(run).find("cron"), std::string::npos) << cron;
  }
}

TEST(RequestChecks, KeysAreLimited) {
  v1::RemoveRequest remove;
  remove.set_job("train");
  remove.mutable_change()->set_idempotency_key(std::string(kMaxKey, 'k'));
  EXPECT_TRUE(CheckRequest(remove).ok());
  remove.mutable_change()->set_idempotency_key(std::string(kMaxKey + 1, 'k'));
  Refusal(remove);
}

}  // namespace
}  // namespace stasis

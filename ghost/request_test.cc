#include "ghost/request.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

TEST(RequestTest, DefaultsAreThoseOfTheProtocol) {
  Result<Request> request = ParseRequest(R"({"verb":"pause"})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->verb, Verb::kPause);
  EXPECT_EQ(request->residency, Residency::kDevice);
  EXPECT_EQ(request->deadline, Duration(std::chrono::seconds(30)));
  EXPECT_TRUE(request->freeze);
  EXPECT_EQ(request->wait_low, Duration::zero());
  EXPECT_EQ(ParseRequest(R"({"verb":"checkpoint"})")->snapshot, SnapshotMode::kAuto);
}

TEST(RequestTest, EveryFieldIsRead) {
  Result<Request> pause =
      ParseRequest(R"({"verb":"pause","residency":"disk","deadline_ms":5,"freeze":false})");
  ASSERT_TRUE(pause.ok());
  EXPECT_EQ(pause->residency, Residency::kDisk);
  EXPECT_EQ(pause->deadline, Duration(std::chrono::milliseconds(5)));
  EXPECT_FALSE(pause->freeze);
  Result<Request> restore = ParseRequest(R"({"verb":"restore","image":"000002","gpus":[1,0]})");
  ASSERT_TRUE(restore.ok());
  EXPECT_EQ(restore->image, "000002");
  EXPECT_EQ(restore->gpus, (std::vector<int>{1, 0}));
  EXPECT_TRUE(restore->peers.empty());
  Result<Request> rank = ParseRequest(
      R"({"verb":"restore","peers":[{"task":"j.0","image":"000001"},{"task":"j.1","image":"000004"}]})");
  ASSERT_TRUE(rank.ok());
  EXPECT_EQ(rank->peers, (std::vector<RestorePeer>{{"j.0", "000001"}, {"j.1", "000004"}}));
  Result<Request> cancel = ParseRequest(R"({"verb":"cancel","what":"operation"})");
  ASSERT_TRUE(cancel.ok());
  EXPECT_FALSE(cancel->whole_task);
  Result<Request> checkpoint = ParseRequest(
      R"({"verb":"checkpoint","stop":true,"wait_low_ms":500,"snapshot":"host","snapshot_host_percent":7})");
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_TRUE(checkpoint->stop);
  EXPECT_EQ(checkpoint->wait_low, Duration(std::chrono::milliseconds(500)));
  EXPECT_EQ(checkpoint->snapshot, SnapshotMode::kHost);
  EXPECT_EQ(checkpoint->snapshot_host_percent, 7u);
}

TEST(RequestTest, EachThatChangesSomethingMayHaveAnOperation) {
  for (const char* verb : {"pause", "resume", "checkpoint", "restore", "cancel"}) {
    Result<Request> request = ParseRequest("{\"operation\":\"op-1\",\"verb\":\"" + std::string(verb) + "\"}");
    ASSERT_TRUE(request.ok()) << verb;
    EXPECT_EQ(request->operation, "op-1");
  }
  EXPECT_FALSE(ParseRequest(R"({"verb":"status","operation":"op-1"})").ok());
  EXPECT_FALSE(ParseRequest(R"({"verb":"pause","operation":7})").ok());
  EXPECT_FALSE(ParseRequest(R"({"verb":"pause","operation":")" + std::string(129, 'x') + R"("})").ok());
}

TEST(RequestTest, ACoordinatorNamesTheRank) {
  Result<Request> pause = ParseRequest(
      R"({"verb":"pause","job":{"name":"j","rank":1,"ranks":2},"pause_protocol":"timeout","patience_ms":7})");
  ASSERT_TRUE(pause.ok()) << pause.status().ToString();
  EXPECT_EQ(pause->job, (JobRank{"j", 1, 2}));
  EXPECT_EQ(pause->pause_protocol, PauseProtocol::kTimeout);
  EXPECT_EQ(pause->patience, Duration(std::chrono::milliseconds(7)));
  EXPECT_EQ(ParseRequest(R"({"verb":"pause"})")->job, std::nullopt);
  EXPECT_EQ(ParseRequest(R"({"verb":"pause"})")->pause_protocol, PauseProtocol::kCut);
  Result<Request> resume =
      ParseRequest(R"({"verb":"resume","job":{"name":"j","rank":0,"ranks":1},"in_doubt":"give-up"})");
  ASSERT_TRUE(resume.ok()) << resume.status().ToString();
  EXPECT_EQ(resume->in_doubt, InDoubt::kGiveUp);
  EXPECT_EQ(ParseRequest(R"({"verb":"resume","in_doubt":"go-on"})")->in_doubt, InDoubt::kGoOn);
  Result<Request> cancel = ParseRequest(R"({"verb":"cancel","job":{"name":"j","rank":0,"ranks":1}})");
  ASSERT_TRUE(cancel.ok()) << cancel.status().ToString();
  EXPECT_TRUE(cancel->job.has_value());
}

TEST(RequestTest, AnythingElseIsInvalid) {
  for (const char* text : {"",
                           "null",
                           "[]",
                           "{}",
                           R"({"verb":7})",
                           R"({"verb":"explode"})",
                           R"({"verb":"status","x":1})",
                           R"({"verb":"pause","residency":"moon"})",
                           R"({"verb":"pause","deadline_ms":-1})",
                           R"({"verb":"pause","deadline_ms":1.5})",
                           R"({"verb":"pause","deadline_ms":99999999999})",
                           R"({"verb":"migrate"})",
                           R"({"verb":"migrate","gpus":[]})",
                           R"({"verb":"migrate","gpus":["0"]})",
                           R"({"verb":"resume","gpus":[-1]})",
                           R"({"verb":"restore","image":5})",
                           R"({"verb":"restore","peers":{}})",
                           R"({"verb":"restore","peers":[{"task":"j.0"}]})",
                           R"({"verb":"restore","peers":[{"task":"a/b","image":"000001"}]})",
                           R"({"verb":"checkpoint","peers":[]})",
                           R"({"verb":"status","job":{"name":"j","rank":0,"ranks":2}})",
                           R"({"verb":"pause","job":"j"})",
                           R"({"verb":"pause","job":{"name":"j","rank":2,"ranks":2}})",
                           R"({"verb":"pause","job":{"name":"j","rank":0,"ranks":2,"size":1}})",
                           R"({"verb":"pause","pause_protocol":"naive"})",
                           R"({"verb":"resume","pause_protocol":"cut"})",
                           R"({"verb":"resume","in_doubt":"maybe"})",
                           R"({"verb":"pause","in_doubt":"go-on"})",
                           R"({"verb":"cancel","what":"all"})",
                           R"({"verb":"pause","freeze":1})",
                           R"({"verb":"checkpoint","gpus":[0]})",
                           R"({"verb":"checkpoint","snapshot":"moon"})",
                           R"({"verb":"checkpoint","device_hash":"perhaps"})",
                           R"({"verb":"checkpoint","snapshot_host_percent":101})",
                           R"({"verb":"pause","snapshot":"off"})",
                           R"({"verb":"pause","wait_low_ms":-1})",
                           R"({"verb":"resume","wait_low_ms":1})"}) {
    EXPECT_EQ(ParseRequest(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(ResultTest, FailuresNameEverything) {
  Answer answer;
  answer.remedy = "do this";
  answer.left = "rolled-back";
  answer.blockers = {{1, 2, "cuStreamSynchronize", {"main+0x1 (a)"}}};
  Json json = ResultJson("pause", Status(StatusCode::kTimeout, "late\xff"), answer);
  EXPECT_EQ(json["code"], "TIMEOUT");
  EXPECT_EQ(json["blockers"][0]["stack"][0], "main+0x1 (a)");
  EXPECT_TRUE(ParseJsonObject(JsonText(json)).ok()) << "whatever bytes a message holds";
}

}  // namespace
}  // namespace stasis

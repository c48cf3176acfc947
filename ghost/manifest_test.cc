#include "ghost/manifest.h"

#include <functional>

#include "ghost/testing.h"

namespace stasis {
namespace {

Manifest Example() {
  Manifest manifest;
  manifest.task = Json::parse(R"({"version":1,"name":"t","argv":["a","b"],"cwd":"/","created":1,"uid":0,
    "device":"soft","driver":"/l/libcuda.so.1","strategy":"auto","gpus":[0],"pid_namespace":true,"log":"/l/output.log"})",
                              nullptr, false);
  manifest.created = 5;
  manifest.kernel = "6.1";
  manifest.machine = "x86_64";
  manifest.criu = "4.2";
  manifest.cpu_features = {"avx2"};
  manifest.init_nspid = 1;
  manifest.program_nspid = 2;
  manifest.log = "/l/output.log";
  manifest.run = "/r/tasks/t";
  manifest.programs = {{"/bin/sh", "00ff", 10, 20}};
  manifest.files = {{"/l/output.log", 30, true}};
  manifest.tcp = {{0, TcpState::kListening, *ParseTcpAddress("[::]:80"), *ParseTcpAddress("[::]:0"), 0}};
  ManifestMember member;
  member.nspid = 2;
  member.driver_version = 13000;
  member.devices = {{0, 1, std::string(16, '\x7f'), "GPU", 1 << 30, 120, true}};
  member.stream = "device-2";
  member.extents = {{1, 0, 0x10000, 2 << 20}, {2, 0, 0x900000, 4 << 20}};
  member.ranges = {{0x10000, 4096}, {0x20000, 512}, {0x900000, 4 << 20}};
  manifest.members = {member};
  return manifest;
}

TEST(ManifestTest, WhatWasWrittenIsRead) {
  Json json = ManifestJson(Example());
  Result<Manifest> manifest = ParseManifest(json);
  ASSERT_OK(manifest.status());
  EXPECT_EQ(ManifestJson(*manifest), json);
  EXPECT_EQ(manifest->DeviceBytes(), 6u << 20);
  EXPECT_EQ(manifest->ActiveBytes(), (4u << 20) + 4096 + 512);
  EXPECT_EQ(manifest->members[0].devices[0].uuid, std::string(16, '\x7f'));
}

TEST(ManifestTest, EveryFieldIsNeededAndHasItsType) {
  Json good = ManifestJson(Example());
  for (auto field = good.begin(); field != good.end(); ++field) {
    Json missing = good, wrong = good;
    missing.erase(field.key());
    wrong[field.key()] = Json::array({1.5});
    // Older images lack it.
    if (field.key() != "tcp") {
      EXPECT_EQ(ParseManifest(missing).status().code(), StatusCode::kCorrupt) << field.key();
    }
    EXPECT_EQ(ParseManifest(wrong).status().code(), StatusCode::kCorrupt) << field.key();
  }
  for (auto field = good["members"][0].begin(); field != good["members"][0].end(); ++field) {
    Json wrong = good;
    wrong["members"][0][field.key()] = nullptr;
    EXPECT_EQ(ParseManifest(wrong).status().code(), StatusCode::kCorrupt) << field.key();
  }
}

TEST(ManifestTest, LiesAreRefused) {
  std::function<void(Json&)> lies[] = {
      [](Json& j) { j["files"][0]["path"] = "/a/../../etc/passwd"; },
      [](Json& j) { j["files"][0]["path"] = "relative"; },
      [](Json& j) { j["programs"][0]["path"] = "/.."; },
      [](Json& j) { j["log"] = "output.log"; },
      [](Json& j) { j["run"] = "/r/../t"; },
      [](Json& j) { j["members"][0]["stream"] = "../secret"; },
      [](Json& j) { j["members"][0]["stream"] = ""; },
      [](Json& j) { j["members"][0]["strategy"] = "magic"; },
      [](Json& j) { j["members"][0]["extents"][1]["address"] = 0x10000; },
      [](Json& j) { j["members"][0]["ranges"][1]["address"] = 0x10800; },
      [](Json& j) { j["members"][0]["ranges"][0]["address"] = 0x20000; },
      [](Json& j) { j["members"][0]["ranges"][0]["address"] = 0xf000; },
      [](Json& j) { j["members"][0]["ranges"][2]["size"] = (4 << 20) + 1; },
      [](Json& j) { j["members"][0]["ranges"][2]["size"] = UINT64_MAX; },
      [](Json& j) { j["members"][0]["ranges"][2]["address"] = 0x800000; },
      [](Json& j) { j["members"][0]["ranges"][2]["size"] = 0; },
      [](Json& j) { j["members"][0]["ranges"] = Json::array(); },
      [](Json& j) { j["members"][0]["extents"][0]["size"] = 0; },
      [](Json& j) { j["members"][0]["extents"][0]["size"] = UINT64_MAX; },
      [](Json& j) { j["members"][0]["extents"][0]["device"] = -1; },
      [](Json& j) { j["members"][0]["devices"][0]["uuid"] = "xyz"; },
      [](Json& j) { j["task"]["name"] = "a/b"; },
      [](Json& j) { j["task"]["version"] = 9; },
      [](Json& j) { j["files"][0]["path"] = std::string("/a\0b", 4); },
  };
  for (size_t i = 0; i < std::size(lies); ++i) {
    Json json = ManifestJson(Example());
    lies[i](json);
    EXPECT_FALSE(ParseManifest(json).ok()) << i;
  }
}

TEST(ManifestTest, MissingCpuFeaturesAreNamed) {
  EXPECT_TRUE(CheckCpuFeatures({"avx2"}, {"avx", "avx2"}).ok());
  Status status = CheckCpuFeatures({"avx2", "avx512f"}, {"avx2"});
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("avx512f"), std::string_view::npos);
  EXPECT_FALSE(CpuFeatures().empty());
}

}  // namespace
}  // namespace stasis

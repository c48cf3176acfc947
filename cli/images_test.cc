#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "cli/command_line.h"
#include "cli/completion.h"
#include "coordinator/node/device_memory.h"
#include "coordinator/node/image_device_needs.h"
#include "coordinator/node/image_figures.h"
#include "coordinator/node/image_needs.h"
#include "coordinator/node/imported_task.h"
#include "coordinator/node/subprocess.h"
#include "coordinator/node/task.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

class ImageNames : public testing::Test {
 protected:
  std::string Parsed(const std::string& text) {
    Result<ImageName> name = ParseImageName(text, folders_);
    return name.ok() ? name->Text() : StatusCodeName(name.status().code());
  }
  std::string MakeFile(const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(folder_.File(path)).parent_path());
    WriteText(folder_.File(path), "");
    return folder_.File(path);
  }

  TempFolder folder_;
  Folders folders_{folder_.path() + "/state", folder_.path() + "/run"};
};

TEST_F(ImageNames, Words) {
  EXPECT_EQ(Parsed("train"), "train");
  EXPECT_EQ(Parsed("train/000002"), "train/000002");
  EXPECT_EQ(Parsed("train/held"), "train/held");
  for (const char* bad :
       {"", "a/", "/a", "..", "../a", "a/..", "a/../b", "a/b/c", ".a", "-a", "a/-b", "a b"}) {
    EXPECT_EQ(Parsed(bad), "INVALID_ARGUMENT") << bad;
  }
}

TEST_F(ImageNames, Paths) {
  std::string good = MakeFile("state/store/images/train/000002.image");
  EXPECT_EQ(Parsed(good), "train/000002");
  EXPECT_EQ(Parsed(folder_.path() + "/state/store/../store/images/train/000002.image"), "train/000002");
  EXPECT_EQ(Parsed(MakeFile("state/store/images/train/000002.tmp")), "UNSUPPORTED");
  EXPECT_EQ(Parsed(MakeFile("elsewhere/train/000002.image")), "UNSUPPORTED");
  EXPECT_EQ(Parsed("/"), "UNSUPPORTED");
  EXPECT_EQ(Parsed(MakeFile("state/store/images/train/deep/000002.image")), "INVALID_ARGUMENT");
  std::filesystem::create_directories(folder_.File("state/images/train/000001"));
  Result<ImageName> old = ParseImageName(folder_.File("state/images/train/000001"), folders_);
  EXPECT_EQ(old.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(old.status().message().find("version 1"), std::string::npos);
}

TEST_F(ImageNames, OldImagesAreListed) {
  EXPECT_EQ(OldImagesNote(folders_), "");
  for (const char* path : {"a/000001", "a/000002", "a/000003.partial", "b/000007", "b/note", "c/000001"}) {
    std::filesystem::create_directories(folder_.File("state/images/" + std::string(path)));
  }
  EXPECT_EQ(ListOldImages(folders_),
            std::vector<std::string>({"a/000001", "a/000002", "b/000007", "c/000001"}));
  EXPECT_EQ(OldImagesNote(folders_).substr(0, 21), "4 of format version 1");
}

TEST_F(ImageNames, NothingIsMadeByAsking) {
  EXPECT_EQ(OpenStore(folders_).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(folders_.state));
  ASSERT_TRUE(OpenOrCreateStore(folders_).ok());
  EXPECT_TRUE(OpenStore(folders_).ok());
}

Hash128 Chunk(uint64_t number) { return {number, number * 7}; }

TEST(ExclusiveBytes, CountsWhatNobodyElseNames) {
  auto stored = [](const Hash128& hash) { return hash.high; };
  std::vector<std::vector<Hash128>> lists = {{Chunk(1), Chunk(2), Chunk(2), kZeroChunk},
                                             {Chunk(1), Chunk(4)},
                                             {},
                                             {kZeroChunk},
                                             {Chunk(8), Chunk(8), Chunk(16)}};
  EXPECT_EQ(ExclusiveBytes(lists, stored), std::vector<uint64_t>({2, 4, 0, 0, 24}));
  EXPECT_TRUE(ExclusiveBytes({}, stored).empty());
}

TEST(DeviceMemory, NvidiaSmi) {
  FreeMemory memory = ParseNvidiaSmi(
      "GPU-00112233-4455-6677-8899-aabbccddeeff, 81000\n"
      "GPU-ffffffff-4455-6677-8899-aabbccddeeff, 0\n"
      "GPU-00000000-4455-6677-8899-aabbccddeeff, [N/A]\n"
      "GPU-short, 7\nNo devices were found\n, 3\n");
  EXPECT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory["00112233445566778899aabbccddeeff"], 81000ull << 20);
  EXPECT_EQ(memory["ffffffff445566778899aabbccddeeff"], 0u);
  EXPECT_TRUE(ParseNvidiaSmi("").empty());
}

TEST(DeviceMemory, SoftgpuSmi) {
  FreeMemory memory = ParseSoftgpuSmi(
      R"({"devices": [{"uuid": "GPU-00112233-4455-6677-8899-aabbccddeeff", "memory_free": 5},
                      {"uuid": "x", "memory_free": 5}, {"memory_free": 5}, 7,
                      {"uuid": "GPU-ff112233-4455-6677-8899-aabbccddeeff", "memory_free": -5}]})");
  EXPECT_EQ(memory, FreeMemory({{"00112233445566778899aabbccddeeff", 5}}));
  for (const char* bad : {"", "{", "[]", "{}", R"({"devices": 7})"})
    EXPECT_TRUE(ParseSoftgpuSmi(bad).empty()) << bad;
}

TEST(ImageNeeds, System) {
  EXPECT_EQ(CpuNeed({"avx", "sse"}, {"avx", "avx2", "sse"}).met, Met::kYes);
  Need cpu = CpuNeed({"avx512f", "sse"}, {"sse"});
  EXPECT_EQ(cpu.met, Met::kNo);
  EXPECT_NE(cpu.here.find("avx512f"), std::string::npos);
  EXPECT_EQ(KernelNeed("6.1.0", "5.11.0-generic").met, Met::kYes);
  EXPECT_EQ(KernelNeed("6.1.0", "5.10.9").met, Met::kNo);
  EXPECT_EQ(CriuNeed("4.1", "/usr/sbin/criu", "Version: 4.2.1\n").met, Met::kYes);
  EXPECT_EQ(CriuNeed("4.2", "/usr/sbin/criu", "Version: 4.1\n").met, Met::kUnknown);
  EXPECT_EQ(CriuNeed("3.0", "/usr/sbin/criu", "Version: 3.19\n").met, Met::kNo);
  EXPECT_EQ(CriuNeed("4.1", "", "").met, Met::kNo);
  EXPECT_EQ(CriuNeed("4.1", "/usr/sbin/criu", "").met, Met::kNo);
}

TEST(ImageNeeds, Files) {
  TempFolder folder;
  WriteText(folder.File("ten"), "0123456789");
  EXPECT_EQ(FileNeed({folder.File("ten"), 10, false}).met, Met::kYes);
  EXPECT_EQ(FileNeed({folder.File("ten"), 11, true}).met, Met::kNo);
  EXPECT_EQ(FileNeed({folder.File("ten"), 9, false}).met, Met::kNo);
  EXPECT_EQ(FileNeed({folder.File("ten"), 9, true}).met, Met::kYes);
  EXPECT_EQ(FileNeed({folder.File("none"), 0, true}).met, Met::kNo);
  EXPECT_EQ(FileNeed({folder.path(), 0, true}).met, Met::kNo);
}

// A task with two processes on two devices.
Manifest TwoProcesses(TaskStrategy strategy) {
  Manifest manifest;
  for (int nspid : {2, 3}) {
    ManifestMember member;
    member.nspid = nspid;
    member.strategy = strategy;
    member.driver_version = 12080;
    for (int ordinal : {0, 1, 2}) {
      TaskDevice device;
      device.virtual_ordinal = ordinal;
      device.physical_ordinal = ordinal;
      device.compute_capability = 90;
      device.used = ordinal < 2;
      member.devices.push_back(device);
    }
    member.extents = {{1, 0, 1 << 20, 100}, {2, 1, 2 << 20, 30}, {3, 0, 3 << 20, 1}};
    manifest.members.push_back(member);
  }
  return manifest;
}

std::map<std::string, Need> NeedsByName(const Manifest& manifest, const DevicesHere& devices) {
  std::map<std::string, Need> needs;
  for (const Need& need : DeviceNeeds(manifest, devices)) needs[need.what] = need;
  return needs;
}

TEST(ImageNeeds, Devices) {
  DriverInfo driver{"/l/libcuda.so.1", 13000, {{"A", 1000, "aa", 90}, {"B", 1000, "bb", 90}}};
  DevicesHere here{driver, {{"aa", 202}, {"bb", 59}}};
  std::map<std::string, Need> needs = NeedsByName(TwoProcesses(TaskStrategy::kReconstruct), here);
  EXPECT_EQ(needs.size(), 6u);
  EXPECT_EQ(needs["driver"].met, Met::kYes);
  EXPECT_EQ(needs["devices"].met, Met::kYes);
  EXPECT_EQ(needs["device 0"].met, Met::kYes);
  EXPECT_EQ(needs["memory of device 0"].met, Met::kYes);
  EXPECT_EQ(needs["memory of device 1"].met, Met::kNo);
  needs = NeedsByName(TwoProcesses(TaskStrategy::kDriverCheckpoint), here);
  EXPECT_EQ(needs["driver"].met, Met::kUnknown) << "whether a newer driver takes its state";
}

TEST(ImageNeeds, DevicesThatDoNotFit) {
  DriverInfo driver{"/l/libcuda.so.1", 12000, {{"A", 201, "aa", 80}}};
  std::map<std::string, Need> needs =
      NeedsByName(TwoProcesses(TaskStrategy::kReconstruct), {driver, FreeMemory()});
  EXPECT_EQ(needs["driver"].met, Met::kNo);
  EXPECT_EQ(needs["devices"].met, Met::kNo);
  EXPECT_EQ(needs["device 0"].met, Met::kNo);
  EXPECT_EQ(needs["memory of device 0"].met, Met::kNo);
  EXPECT_EQ(needs["device 1"].met, Met::kUnknown);
  driver.devices[0] = {"A", 202, "aa", 100};
  needs = NeedsByName(TwoProcesses(TaskStrategy::kReconstruct), {driver, FreeMemory()});
  EXPECT_EQ(needs["memory of device 0"].met, Met::kUnknown) << "what is free is not known";
  EXPECT_EQ(needs["device 0"].met, Met::kUnknown);
  Status none(StatusCode::kNotFound, "no driver");
  needs = NeedsByName(TwoProcesses(TaskStrategy::kReconstruct), {none, FreeMemory()});
  EXPECT_EQ(needs.size(), 1u);
  EXPECT_EQ(needs["driver"].met, Met::kNo);
  EXPECT_TRUE(NeedsByName(Manifest(), {none, FreeMemory()}).empty());
}

TEST(ImageNeeds, SummaryIsOfTheWorst) {
  Need yes{"a", "", Met::kYes, ""}, no{"b", "", Met::kNo, ""}, unknown{"c", "", Met::kUnknown, ""};
  EXPECT_NE(Summary({yes}).find("can be restored here"), std::string::npos);
  EXPECT_NE(Summary({yes, unknown}).find("1 of 2 needs cannot be told"), std::string::npos);
  EXPECT_NE(Summary({yes, no, unknown}).find("cannot be restored here: 1 of 3"), std::string::npos);
  EXPECT_FALSE(AnyUnmet({yes, unknown}));
  EXPECT_TRUE(AnyUnmet({yes, no}));
}

Json TaskJson(const std::string& name) {
  return {{"version", 1},
          {"name", name},
          {"argv", {"./train"}},
          {"cwd", "/w"},
          {"created", 17},
          {"uid", 5},
          {"device", "nvidia"},
          {"driver", "/l/libcuda.so.1"},
          {"gpus", {1}},
          {"managed", "host"},
          {"log", "/elsewhere/output.log"},
          {"pid_namespace", true},
          {"driver_environment", {"LD_PRELOAD=/evil.so"}},
          {"unknown", 1}};
}

TEST(ImportedTask, IsOneOfThisSite) {
  TempFolder folder;
  TaskPaths paths({folder.path(), folder.path() + "/run"}, "copy");
  TaskConfig config = *ParseTaskConfig(TaskJson("train"));
  Json json = ImportedTaskJson(paths, TaskJson("train"), config, OwnFiles());
  EXPECT_EQ(json["name"], "copy");
  EXPECT_EQ(json["log"], folder.path() + "/tasks/copy/output.log");
  EXPECT_EQ(json["managed"], "host");
  EXPECT_TRUE(json["driver_environment"].empty());
  EXPECT_FALSE(json.contains("unknown"));
  EXPECT_TRUE(SameOrigin(*ParseTaskConfig(json), config));

  bool exists = true;
  EXPECT_TRUE(CheckOrigin(paths, config, &exists).ok());
  EXPECT_FALSE(exists);
  ASSERT_TRUE(WriteImportedTask(paths, json, "000004").ok());
  EXPECT_TRUE(CheckOrigin(paths, config, &exists).ok());
  EXPECT_TRUE(exists);
  config.created++;
  EXPECT_EQ(CheckOrigin(paths, config, &exists).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(WriteImportedTask(paths, json, "000004").code(), StatusCode::kAlreadyExists);
  TaskView view = DeriveCondition(*ReadTaskFacts(paths));
  EXPECT_EQ(view.condition, TaskCondition::kCheckpointed);
  EXPECT_EQ(view.last_image, "000004");
}

TEST(ImportedTask, ARecordThatCannotBeReadIsNotReplaced) {
  TempFolder folder;
  TaskPaths paths({folder.path(), folder.path() + "/run"}, "t");
  std::filesystem::create_directories(paths.folder);
  WriteText(paths.File("task.json"), "{");
  bool exists = false;
  EXPECT_EQ(CheckOrigin(paths, *ParseTaskConfig(TaskJson("t")), &exists).code(), StatusCode::kCorrupt);
}

Options Parsed(const std::vector<std::string>& arguments) {
  CommandLine line;
  CommandLine::Outcome outcome = line.Parse(arguments);
  EXPECT_FALSE(outcome.done) << outcome.text;
  return line.options();
}

TEST(ImagesCommandLine, Verbs) {
  Options options = Parsed({"images", "ls", "train", "-a", "--json"});
  EXPECT_EQ(options.verb, "images");
  EXPECT_EQ(options.images_verb, "ls");
  EXPECT_EQ(options.name, "train");
  EXPECT_TRUE(options.all && options.json);
  options = Parsed({"images", "rm", "a/000001", "b/000002", "--force"});
  EXPECT_EQ(options.images, std::vector<std::string>({"a/000001", "b/000002"}));
  EXPECT_TRUE(options.force);
  options = Parsed({"images", "export", "train", "/tmp/x"});
  EXPECT_EQ(options.target, "train");
  EXPECT_EQ(options.file, "/tmp/x");
  options = Parsed({"images", "import", "/tmp/x", "--as", "copy"});
  EXPECT_EQ(options.as, "copy");
  EXPECT_EQ(Parsed({"images", "verify"}).target, "");
  options = Parsed({"images", "copy", "train", "000003", "--to", "node7:7470", "--keep", "1"});
  EXPECT_EQ(options.name + " " + options.target + " " + options.to, "train 000003 node7:7470");
  EXPECT_EQ(options.keep, 1);
}

TEST(ImagesCommandLine, WrongUsageNamesTheVerb) {
  CommandLine line;
  EXPECT_NE(line.Parse({"images", "frob"}).text.find("no verb frob"), std::string::npos);
  CommandLine other;
  CommandLine::Outcome outcome = other.Parse({"images", "export", "train"});
  EXPECT_TRUE(outcome.done);
  EXPECT_NE(outcome.text.find("`stasis images export --help`"), std::string::npos) << outcome.text;
}

TEST(ImagesCommandLine, EveryVerbHasHelpWithAnExampleAndJson) {
  for (const char* verb :
       {"ls", "show", "verify", "rm", "gc", "copy", "export", "import", "keygen", "encrypt-to"}) {
    CommandLine line;
    CommandLine::Outcome outcome = line.Parse({"images", verb, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_NE(outcome.text.find("Example"), std::string::npos) << verb;
    EXPECT_NE(outcome.text.find("--json"), std::string::npos) << verb;
  }
}

// What bash offers for a command line whose last word is being completed.
std::string Completed(const TempFolder& folder, const std::vector<std::string>& words) {
  std::string script = ". " + folder.File("completion") + "; stasis() { echo from-$1; }; COMP_WORDS=(";
  for (const std::string& word : words) script += "'" + word + "' ";
  script += "); COMP_CWORD=" + std::to_string(words.size() - 1) + "; _stasis; echo ${COMPREPLY[*]}";
  Result<SubprocessResult> ran = RunSubprocess({{"/bin/bash", "-c", script}, OwnEnvironment()},
                                               Deadline::After(std::chrono::seconds(30)));
  return ran.ok() ? ran->output : ran.status().ToString();
}

TEST(ImagesCommandLine, BashCompletesBothLevels) {
  TempFolder folder;
  CommandLine line;
  WriteText(folder.File("completion"), CompletionScript(line.app(), "bash"));
  EXPECT_EQ(Completed(folder, {"stasis", "imag"}), "images\n");
  EXPECT_EQ(Completed(folder, {"stasis", "images", "ex"}), "export\n");
  EXPECT_EQ(Completed(folder, {"stasis", "images", "rm", "--f"}), "--force\n");
  EXPECT_EQ(Completed(folder, {"stasis", "rm", "--f"}), "\n");
  EXPECT_EQ(Completed(folder, {"stasis", "images", "show", ""}),
            "from-complete-tasks from-complete-images\n");
  EXPECT_EQ(Completed(folder, {"stasis", "images", "ls", ""}), "from-complete-tasks\n");
  EXPECT_EQ(Completed(folder, {"stasis", "pause", ""}), "from-complete-tasks\n");
  EXPECT_EQ(Completed(folder, {"stasis", "pause", "t", "--residency", "h"}), "host\n");
  WriteText(folder.File("exported"), "");
  EXPECT_EQ(Completed(folder, {"stasis", "images", "import", folder.File("exp")}),
            folder.File("exported") + "\n");
}

}  // namespace
}  // namespace stasis

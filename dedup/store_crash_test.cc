// Power cuts and kills at every change that a checkpoint, a removal and a collection make to the disk: what
// was committed restores byte for byte, what was not is not there, and the store is whole again by itself.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "dedup/crash_file_system.h"
#include "dedup/image.h"
#include "dedup/image_testing.h"
#include "dedup/store.h"

namespace stasis {
namespace {

constexpr char kRoot[] = "/disk/store";
constexpr uint64_t kChunk = 4096;
using Keep = CrashFileSystem::Keep;
using Disk = std::unique_ptr<CrashFileSystem>;
using Images = std::map<std::string, Bytes>;  // by "task/id"

StoreOptions Options(CrashFileSystem& disk) {
  StoreOptions options;
  options.chunk_bytes = kChunk;
  options.pack_bytes = 8 * kChunk;  // an image takes several
  options.files = &disk;
  return options;
}

Result<std::shared_ptr<Store>> TryOpen(CrashFileSystem& disk) { return Store::Open(kRoot, Options(disk)); }

// Chunks by number; equal numbers are equal chunks. Every fourth compresses.
Bytes Content(const std::vector<uint64_t>& numbers) {
  Bytes bytes;
  for (uint64_t number : numbers) {
    Bytes chunk = Noise(number + 1, number % 4 == 0 ? 64 : kChunk);
    while (chunk.size() < kChunk) chunk.push_back(chunk[chunk.size() - 64]);
    bytes.insert(bytes.end(), chunk.begin(), chunk.end());
  }
  return bytes;
}

std::vector<uint64_t> Range(uint64_t from, uint64_t to) {
  std::vector<uint64_t> numbers;
  for (uint64_t number = from; number < to; ++number) numbers.push_back(number);
  return numbers;
}

struct Name {
  std::string task, id;
  explicit Name(const std::string& text)
      : task(text.substr(0, text.find('/'))), id(text.substr(text.find('/') + 1)) {}
};

Status WriteImage(const std::shared_ptr<Store>& store, const std::string& name, const Bytes& bytes) {
  Name parts(name);
  ASSIGN_OR_RETURN(std::unique_ptr<ImageWriter> writer, ImageWriter::Create(store, parts.task, parts.id));
  RETURN_IF_ERROR(writer->AddStream("memory", {{0x10000, bytes.size()}}));
  RETURN_IF_ERROR(WriteStream(writer.get(), "memory", bytes));
  return writer->Commit({{"name", name}});
}

Result<Bytes> ReadImage(const std::shared_ptr<Store>& store, const std::string& name) {
  Name parts(name);
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> reader, ImageReader::Open(store, parts.task, parts.id));
  return ReadStream(*reader, "memory");
}

void ExpectClean(Store& store, const std::string& when) {
  Result<VerifyReport> report = store.Verify();
  ASSERT_TRUE(report.ok()) << report.status().ToString() << when;
  for (const Damage& damage : report->damages) {
    ADD_FAILURE() << damage.file << " at " << damage.offset << ": " << damage.what << when;
  }
}

// Each of `there` restores; each of `maybe` restores or is not there.
void ExpectImages(const std::shared_ptr<Store>& store, const Images& there, const Images& maybe,
                  const std::string& when) {
  for (const auto& [name, bytes] : there) {
    Result<Bytes> read = ReadImage(store, name);
    ASSERT_TRUE(read.ok()) << name << ": " << read.status().ToString() << when;
    EXPECT_TRUE(*read == bytes) << name << when;
  }
  for (const auto& [name, bytes] : maybe) {
    Result<Bytes> read = ReadImage(store, name);
    if (!read.ok()) {
      EXPECT_EQ(read.status().code(), StatusCode::kNotFound) << name << read.status().ToString() << when;
    } else {
      EXPECT_TRUE(*read == bytes) << name << when;
    }
  }
}

void ExpectNoLeftovers(const CrashFileSystem& disk, const std::string& when) {
  std::set<std::string> files;
  for (const std::string& path : disk.AllFiles()) files.insert(path);
  for (const std::string& path : files) {
    EXPECT_FALSE(path.ends_with(".tmp")) << path << when;
    if (path.ends_with(".idx")) {
      EXPECT_TRUE(files.contains(path.substr(0, path.size() - 4) + ".pack")) << path << when;
    }
  }
}

// What the next boot, or the next process, has to find.
void ExpectWhole(CrashFileSystem& disk, const Images& there, const Images& maybe, const std::string& when) {
  SCOPED_TRACE(when);
  Result<std::shared_ptr<Store>> store = TryOpen(disk);
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  ExpectImages(*store, there, maybe, " at once");
  ExpectClean(**store, " at once");
  Result<GcReport> collected = (*store)->CollectGarbage();
  ASSERT_TRUE(collected.ok()) << collected.status().ToString();
  EXPECT_TRUE(collected->damages.empty());
  ExpectImages(*store, there, maybe, " after collecting");
  ExpectClean(**store, " after collecting");
  ExpectNoLeftovers(disk, " after collecting");
}

struct Scenario {
  Disk disk;     // on stable storage
  Images there;  // before, during and after
  Images maybe;  // is being written or removed
  Images after;  // when `run` succeeded, with `there`
  std::function<Status(CrashFileSystem&)> run;
};

// Stops `scenario` at each change, in every way a machine can stop.
void StopEverywhere(const Scenario& scenario) {
  const uint64_t seeds = FullTest() ? 60 : 8;
  for (uint64_t stop = 1;; ++stop) {
    Disk disk = scenario.disk->AfterPowerCut(Keep::kEverything, 0);
    disk->StopAt(stop);
    Status status = scenario.run(*disk);
    Images there = scenario.there, maybe = scenario.maybe;
    const bool done = !disk->stopped();
    if (done) {
      ASSERT_TRUE(status.ok()) << status.ToString();
      disk->StopAt(1);  // what it left unsynced goes
      (void)disk->Remove(disk->AllFiles().front());
    }
    if (status.ok()) {
      there.insert(scenario.after.begin(), scenario.after.end());
      if (!scenario.after.empty()) maybe.clear();
    }
    const std::string when = " stopped at change " + std::to_string(stop);
    ASSERT_NO_FATAL_FAILURE(
        ExpectWhole(*disk->AfterPowerCut(Keep::kNothing, 0), there, maybe, when + ", nothing kept"));
    if (!done) {
      ASSERT_NO_FATAL_FAILURE(ExpectWhole(*disk->AfterKill(), there, maybe, when + ", killed"));
      ASSERT_NO_FATAL_FAILURE(
          ExpectWhole(*disk->AfterPowerCut(Keep::kEverything, 0), there, maybe, when + ", all kept"));
    }
    for (uint64_t seed = 1; seed <= seeds && !done; ++seed) {
      Disk next = disk->AfterPowerCut(Keep::kSome, seed * 1000003 + stop);
      ASSERT_NO_FATAL_FAILURE(
          ExpectWhole(*next, there, maybe, when + ", some kept, seed " + std::to_string(seed)));
    }
    if (done) {
      ::testing::Test::RecordProperty("changes", static_cast<int>(stop));
      return;
    }
  }
}

Disk DiskWith(const Images& images) {
  auto disk = std::make_unique<CrashFileSystem>();
  std::shared_ptr<Store> store = *TryOpen(*disk);
  for (const auto& [name, bytes] : images) EXPECT_TRUE(WriteImage(store, name, bytes).ok());
  return disk;
}

TEST(StoreCrash, FirstCheckpoint) {
  Scenario scenario;
  scenario.disk = std::make_unique<CrashFileSystem>();
  const Bytes bytes = Content(Range(0, 20));
  scenario.maybe = scenario.after = {{"job/000001", bytes}};
  scenario.run = [&](CrashFileSystem& disk) -> Status {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, TryOpen(disk));
    return WriteImage(store, "job/000001", bytes);
  };
  StopEverywhere(scenario);
}

TEST(StoreCrash, CheckpointThatSharesChunks) {
  Scenario scenario;
  scenario.there = {{"job/000001", Content(Range(0, 20))}};
  scenario.disk = DiskWith(scenario.there);
  const Bytes bytes = Content(Range(10, 40));
  scenario.maybe = scenario.after = {{"job/000002", bytes}};
  scenario.run = [&](CrashFileSystem& disk) -> Status {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, TryOpen(disk));
    return WriteImage(store, "job/000002", bytes);
  };
  StopEverywhere(scenario);
}

TEST(StoreCrash, CheckpointWithNothingNew) {
  Scenario scenario;
  scenario.there = {{"job/000001", Content(Range(0, 20))}};
  scenario.disk = DiskWith(scenario.there);
  const Bytes bytes = Content(Range(3, 15));
  scenario.maybe = scenario.after = {{"other/000001", bytes}};
  scenario.run = [&](CrashFileSystem& disk) -> Status {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, TryOpen(disk));
    return WriteImage(store, "other/000001", bytes);
  };
  StopEverywhere(scenario);
}

// Another process has named its packs and has not yet synced those names when this one finds chunks in them.
TEST(StoreCrash, ChunksOfAWriterThatIsNotDone) {
  Scenario scenario;
  scenario.disk = DiskWith({});
  const Bytes bytes = Content(Range(0, 8));
  scenario.maybe = scenario.after = {{"job/000001", bytes}};
  scenario.run = [&](CrashFileSystem& disk) -> Status {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> first, TryOpen(disk));
    RETURN_IF_ERROR(WriteImage(first, "first/000001", bytes));
    ASSIGN_OR_RETURN(std::shared_ptr<Store> second, TryOpen(disk));
    RETURN_IF_ERROR(RemoveImage(*first, "first", "000001"));
    return WriteImage(second, "job/000001", bytes);
  };
  StopEverywhere(scenario);
}

TEST(StoreCrash, RemovalAndCollection) {
  Scenario scenario;
  const Bytes gone = Content(Range(0, 40));
  // One chunk of each pack of the first, and some of the second's own: packs go, and packs are written again.
  scenario.there = {{"job/000002", Content({0, 9, 18, 27, 36, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60})},
                    {"job/000003", Content({50, 61, 62, 63})}};
  Images all = scenario.there;
  all["job/000001"] = gone;
  scenario.disk = DiskWith(all);
  scenario.maybe = {{"job/000001", gone}};
  scenario.run = [&](CrashFileSystem& disk) -> Status {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, TryOpen(disk));
    RETURN_IF_ERROR(RemoveImage(*store, "job", "000001"));
    ASSIGN_OR_RETURN(GcReport report, store->CollectGarbage());
    EXPECT_GT(report.packs_rewritten, 0u);
    EXPECT_LT(report.bytes_after, report.bytes_before);
    return Status();
  };
  StopEverywhere(scenario);
}

// The same chunks in several packs, from writers that did not see each other.
TEST(StoreCrash, CollectionOfCopies) {
  Scenario scenario;
  scenario.there = {{"a/000001", Content(Range(0, 30))}, {"b/000001", Content(Range(0, 33))}};
  scenario.disk = std::make_unique<CrashFileSystem>();
  {
    std::shared_ptr<Store> first = *TryOpen(*scenario.disk), second = *TryOpen(*scenario.disk);
    ASSERT_OK(WriteImage(first, "a/000001", scenario.there["a/000001"]));
    ASSERT_OK(WriteImage(second, "b/000001", scenario.there["b/000001"]));
    ASSERT_GE((*TryOpen(*scenario.disk))->counts().chunks, 60u);
  }
  scenario.run = [&](CrashFileSystem& disk) -> Status {
    ASSIGN_OR_RETURN(std::shared_ptr<Store> store, TryOpen(disk));
    ASSIGN_OR_RETURN(GcReport report, store->CollectGarbage());
    EXPECT_GT(report.packs_removed, 0u);
    EXPECT_LE(store->counts().chunks, 40u);
    return Status();
  };
  StopEverywhere(scenario);
}

// Many lives of one disk: each writes, removes and collects, and most end in the middle.
TEST(StoreCrash, ManyLives) {
  const uint64_t walks = FullTest() ? 300 : 20, lives = 30;
  for (uint64_t walk = 0; walk < walks; ++walk) {
    std::mt19937_64 random(walk);
    auto disk = std::make_unique<CrashFileSystem>();
    Images there, maybe;
    uint64_t serial = 0;
    for (uint64_t life = 0; life < lives; ++life) {
      disk->StopAt(random() % 120);
      Result<std::shared_ptr<Store>> opened = TryOpen(*disk);
      for (int step = 0; opened.ok() && step < 4 && !disk->stopped(); ++step) {
        switch (random() % 3) {
          case 0: {
            char name[32];
            snprintf(name, sizeof name, "job%llu/%06llu", static_cast<unsigned long long>(serial % 3),
                     static_cast<unsigned long long>(serial + 1));
            ++serial;
            uint64_t from = random() % 40;
            Bytes bytes = Content(Range(from, from + 1 + random() % 30));
            (WriteImage(*opened, name, bytes).ok() ? there : maybe)[name] = bytes;
            break;
          }
          case 1: {
            if (there.empty()) break;
            auto victim = std::next(there.begin(), static_cast<long>(random() % there.size()));
            Name name(victim->first);
            if (!RemoveImage(**opened, name.task, name.id).ok()) maybe[victim->first] = victim->second;
            there.erase(victim);
            break;
          }
          default:
            (void)(*opened)->CollectGarbage();
        }
      }
      opened = Status(StatusCode::kCancelled, "the process is gone");
      const bool killed = random() % 4 == 0;
      disk = killed ? disk->AfterKill() : disk->AfterPowerCut(static_cast<Keep>(random() % 3), random());
      const std::string when = "walk " + std::to_string(walk) + ", life " + std::to_string(life);
      // On a copy: this disk goes on with what the stop has left.
      ASSERT_NO_FATAL_FAILURE(ExpectWhole(*disk->AfterKill(), there, maybe, when));
      ASSERT_FALSE(HasFailure()) << when;
      if (killed && random() % 2 == 0) continue;  // nothing is decided while it is in the page cache
      if (killed) disk = disk->AfterPowerCut(Keep::kEverything, 0);
      std::shared_ptr<Store> store = *TryOpen(*disk);
      for (const auto& [name, bytes] : std::exchange(maybe, {})) {
        if (ReadImage(store, name).ok()) there[name] = bytes;
      }
    }
  }
}

}  // namespace
}  // namespace stasis

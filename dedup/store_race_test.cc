// Writers, readers and collectors at once, in threads and in processes, and processes that are killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dedup/image.h"
#include "dedup/image_testing.h"
#include "dedup/store.h"

namespace stasis {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kUniverse = 60;  // few enough that everybody shares with everybody

StoreOptions Options() {
  StoreOptions options;
  options.chunk_bytes = kChunk;
  options.pack_bytes = 10 * kChunk;
  return options;
}

const Bytes& Universe() {
  static const Bytes* const bytes = [] {
    auto* all = new Bytes;
    for (uint64_t i = 0; i < kUniverse; ++i) {
      Bytes chunk = i % 3 == 0 ? Bytes(kChunk, static_cast<std::byte>(i + 1)) : Noise(i, kChunk);
      all->insert(all->end(), chunk.begin(), chunk.end());
    }
    return all;
  }();
  return *bytes;
}

Bytes SomeContent(std::mt19937_64& random) {
  Bytes bytes;
  for (uint64_t chunks = 1 + random() % 40; chunks > 0; --chunks) {
    auto chunk = std::span(Universe()).subspan(random() % kUniverse * kChunk, kChunk);
    bytes.insert(bytes.end(), chunk.begin(), chunk.end());
  }
  return bytes;
}

// One task's life: checkpoints, restores, removals, in an order that the seed gives.
class Job {
 public:
  Job(std::string root, uint64_t seed)
      : root_(std::move(root)), task_("job" + std::to_string(seed)), random_(seed) {}

  Status Run(int steps, const std::function<void()>& committed = nullptr) {
    for (int step = 0; step < steps; ++step) {
      // A store that was opened long ago knows packs that are gone by now.
      if (!store_ || random_() % 8 == 0) {
        ASSIGN_OR_RETURN(store_, Store::Open(root_, Options()));
      }
      switch (random_() % 4) {
        case 0:
        case 1:
          RETURN_IF_ERROR(Write().WithContext("write"));
          if (committed) committed();
          break;
        case 2:
          RETURN_IF_ERROR(Remove().WithContext("remove"));
          break;
        default:
          RETURN_IF_ERROR(Check().WithContext("check"));
      }
    }
    return Check();
  }

 private:
  Status Write() {
    ASSIGN_OR_RETURN(std::string id, NextImageId(*store_, task_));
    Bytes bytes = SomeContent(random_);
    ASSIGN_OR_RETURN(std::unique_ptr<ImageWriter> writer, ImageWriter::Create(store_, task_, id));
    RETURN_IF_ERROR(writer->AddStream("memory", {{0, bytes.size()}}));
    RETURN_IF_ERROR(WriteStream(writer.get(), "memory", bytes));
    if (random_() % 5 == 0) return Status();  // given up
    RETURN_IF_ERROR(writer->Commit(Json::object()));
    images_[id] = std::move(bytes);
    return Status();
  }
  Status Remove() {
    if (images_.size() < 3) return Status();
    auto victim = std::next(images_.begin(), static_cast<long>(random_() % images_.size()));
    RETURN_IF_ERROR(RemoveImage(*store_, task_, victim->first));
    images_.erase(victim);
    return Status();
  }
  Status Check() {
    for (const auto& [id, bytes] : images_) {
      ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> reader, ImageReader::Open(store_, task_, id));
      ASSIGN_OR_RETURN(Bytes read, ReadStream(*reader, "memory"));
      if (read != bytes) return Status(StatusCode::kInternal, task_ + "/" + id + ": other bytes came back");
    }
    return Status();
  }

  const std::string root_;
  const std::string task_;
  std::mt19937_64 random_;
  std::shared_ptr<Store> store_;
  std::map<std::string, Bytes> images_;
};

Status CollectOnce(const std::string& root) {
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(root, Options()));
  Status status = store->CollectGarbage().status();
  // Another collector: that one does the work.
  return status.code() == StatusCode::kFailedPrecondition ? Status() : status;
}

// Verify, every image, and both once more after a collection.
void ExpectWhole(const std::string& root) {
  std::shared_ptr<Store> store = OpenStore(root, Options());
  for (int round = 0; round < 2; ++round) {
    Result<VerifyReport> report = store->Verify();
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    for (const Damage& damage : report->damages) ADD_FAILURE() << damage.file << ": " << damage.what;
    Result<std::vector<std::string>> tasks = ListImageTasks(*store);
    ASSERT_TRUE(tasks.ok());
    for (const std::string& task : *tasks) {
      Result<std::vector<std::string>> ids = ListImages(*store, task);
      ASSERT_TRUE(ids.ok());
      for (const std::string& id : *ids) {
        Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store, task, id);
        ASSERT_TRUE(image.ok()) << image.status().ToString();
        Status whole = (*image)->VerifyAll();
        EXPECT_TRUE(whole.ok()) << whole.ToString();
      }
    }
    Result<GcReport> collected = store->CollectGarbage();
    ASSERT_TRUE(collected.ok()) << collected.status().ToString();
    EXPECT_EQ(collected->packs_in_use, 0u);
  }
}

int Steps() { return FullTest() ? 200 : 25; }

TEST(StoreRace, Threads) {
  const uint64_t rounds = FullTest() ? 12 : 3;
  for (uint64_t round = 0; round < rounds; ++round) {
    TempFolder folder;
    const std::string root = folder / "store";
    OpenStore(root, Options());
    std::atomic<int> running{3};
    std::vector<Status> results(4);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        results[i] = Job(root, round * 100 + i).Run(Steps());
        --running;
      });
    }
    threads.emplace_back([&] {
      while (running > 0 && results[3].ok()) results[3] = CollectOnce(root);
    });
    for (std::thread& thread : threads) thread.join();
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.ToString() << ", round " << round;
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(root));
    ASSERT_FALSE(HasFailure()) << round;
  }
}

// Runs `work` in a process of its own.
pid_t Fork(const std::function<Status()>& work) {
  fflush(nullptr);
  pid_t child = fork();
  if (child != 0) return child;
  Status status = work();
  if (!status.ok())
    fprintf(stderr, "process %d: %s\n", static_cast<int>(getpid()), status.ToString().c_str());
  _exit(status.ok() ? 0 : 1);
}

int WaitFor(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(StoreRace, Processes) {
  const uint64_t rounds = FullTest() ? 12 : 3;
  for (uint64_t round = 0; round < rounds; ++round) {
    TempFolder folder;
    const std::string root = folder / "store";
    std::vector<pid_t> children;
    for (uint64_t i = 0; i < 3; ++i) {
      children.push_back(Fork([&] { return Job(root, round * 100 + i).Run(Steps()); }));
    }
    children.push_back(Fork([&]() -> Status {
      for (int i = 0; i < Steps(); ++i) RETURN_IF_ERROR(CollectOnce(root));
      return Status();
    }));
    for (pid_t child : children) EXPECT_EQ(WaitFor(child), 0) << round;
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(root));
    ASSERT_FALSE(HasFailure()) << round;
  }
}

// After so many commits of its own each writer is killed wherever it is then; so is a collector.
TEST(StoreRace, KilledProcesses) {
  const uint64_t rounds = FullTest() ? 60 : 10;
  TempFolder folder;
  const std::string root = folder / "store";
  for (uint64_t round = 0; round < rounds; ++round) {
    std::mt19937_64 random(round);
    int commits[2];
    ASSERT_EQ(pipe(commits), 0);
    std::vector<pid_t> children;
    for (uint64_t i = 0; i < 2; ++i) {
      children.push_back(Fork([&] {
        close(commits[0]);
        return Job(root, round * 100 + i).Run(1 << 20, [&] {
          if (write(commits[1], "c", 1) != 1) _exit(2);
        });
      }));
    }
    children.push_back(Fork([&]() -> Status {
      for (;;) RETURN_IF_ERROR(CollectOnce(root));
    }));
    close(commits[1]);
    char byte;
    for (uint64_t count = 1 + random() % 10; count > 0; --count) ASSERT_EQ(read(commits[0], &byte, 1), 1);
    for (pid_t child : children) kill(child, SIGKILL);
    for (pid_t child : children) EXPECT_TRUE(WIFSIGNALED(WaitFor(child))) << round;
    close(commits[0]);
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(root));
    ASSERT_FALSE(HasFailure()) << round;
  }
}

}  // namespace
}  // namespace stasis

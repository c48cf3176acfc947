// The registry over files as `stasis`, stasis-init and ghosts write them, and processes as they are theirs.
#include "coordinator/agent/registry.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/process.h"
#include "base/testing.h"
#include "base/unix_socket.h"
#include "coordinator/job_record.h"

namespace stasis {
namespace {

constexpr auto kLong = std::chrono::seconds(60);

// A child that lives until told otherwise, and listens on a socket if it has a path.
class Child {
 public:
  explicit Child(const std::string& socket = "") {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    Fd out(ready[0]), in(ready[1]);
    pid_ = fork();
    if (pid_ == 0) {
      Result<UnixListener> listener(Status(StatusCode::kNotFound, "none"));
      if (!socket.empty()) listener = UnixListener::Listen(socket);
      if (socket.empty() || listener.ok()) (void)!write(in.get(), "x", 1);
      for (;;) pause();
    }
    in.Reset();
    char byte;
    EXPECT_EQ(read(out.get(), &byte, 1), 1) << socket;
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  Json ProcessFile() const {
    Result<ProcessIdentity> identity = IdentifyProcess(pid_);
    EXPECT_TRUE(identity.ok());
    return {{"version", 1},
            {"init_pid", pid_},
            {"init_start_time", identity->start_time},
            {"boot_id", identity->boot_id},
            {"pid", pid_},
            {"nspid", 2}};
  }

 private:
  pid_t pid_ = 0;
};

class RegistryTest : public testing::Test {
 protected:
  void Start() {
    Result<std::unique_ptr<Registry>> registry = Registry::Start(site_);
    ASSERT_OK(registry.status());
    registry_ = *std::move(registry);
    subscription_ = registry_->Subscribe([this](const JobPicture& job) {
      std::lock_guard lock(mutex_);
      last_[job->name()] = job;
      last_revision_ = job->revision();
      changed_.notify_all();
    });
  }
  void TearDown() override {
    subscription_.reset();
    registry_.reset();
  }

  TaskPaths Paths(const std::string& name) const { return TaskPaths(site_.folders, name); }
  void WriteTask(const std::string& name, const std::string& file, const Json& value) {
    ASSERT_OK(WriteJson(Paths(name).File(file), value));
  }
  // What `stasis run` writes, but for the process.
  void MakeTask(const std::string& name, const Json& more = Json::object()) {
    ASSERT_OK(MakeFolders(Paths(name).folder));
    ASSERT_OK(MakeFolders(Paths(name).ctl));
    Json task = {{"version", 1},
                 {"name", name},
                 {"argv", {"train", "--fast"}},
                 {"created", 1700000000},
                 {"uid", 7},
                 {"device", "soft"},
                 {"gpus", {1}}};
    task.update(more);
    WriteTask(name, "task.json", task);
  }
  void MakeJob(const std::string& name, const std::vector<const Child*>& children) {
    ASSERT_OK(MakeFolders(site_.folders.state + "/jobs/" + name));
    JobRecord record;
    record.name = name;
    record.argv = {"train"};
    record.nodes = {JobNode{"here", "127.0.0.1", {}, static_cast<int>(children.size()), {}}};
    for (int rank = 0; rank < record.ranks(); rank++) {
      MakeTask(record.TaskOf(rank), {{"job", name}, {"rank", rank}, {"ranks", record.ranks()}});
      WriteTask(record.TaskOf(rank), "process.json", children[static_cast<size_t>(rank)]->ProcessFile());
    }
    ASSERT_OK(WriteJobRecord(site_.folders.state, record));
  }
  Json StatusFile(const std::string& state, pid_t ghost, const std::string& more_key = "version",
                  const Json& more = 1) const {
    return {{"state", state},
            {"ghost_pid", ghost},
            {"residency", state == "paused" ? "device" : ""},
            {more_key, more}};
  }

  // The job's picture once `wanted` is true of what subscribers were told of it.
  JobPicture AwaitJob(const std::string& name, const std::function<bool(const v1::Job&)>& wanted) {
    std::unique_lock lock(mutex_);
    bool there = changed_.wait_for(lock, kLong, [&] {
      auto found = last_.find(name);
      return found != last_.end() && wanted(*found->second);
    });
    EXPECT_TRUE(there) << name << " is " << (last_.count(name) ? last_[name]->ShortDebugString() : "unknown");
    return there ? last_[name] : std::make_shared<v1::Job>();
  }
  JobPicture Await(const std::string& name, v1::Condition condition) {
    return AwaitJob(name, [&](const v1::Job& job) { return !job.gone() && job.condition() == condition; });
  }

  TempFolder folder_;
  Site site_{{folder_ / "state", folder_ / "run"}, {}};
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Registry::Subscription> subscription_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, JobPicture> last_;
  uint64_t last_revision_ = 0;
};

TEST_F(RegistryTest, KnowsWhatWasThereBefore) {
  Child child;
  MakeTask("lives");
  WriteTask("lives", "process.json", child.ProcessFile());
  MakeTask("exited");
  WriteTask("exited", "process.json", {{"init_pid", 1}, {"boot_id", "another"}});
  WriteTask("exited", "exit.json", {{"exit_code", 3}, {"time", 1700000001.5}});
  Start();
  std::vector<JobPicture> jobs = registry_->List();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]->name(), "exited");
  EXPECT_EQ(jobs[0]->condition(), v1::CONDITION_EXITED);
  EXPECT_EQ(jobs[0]->exit_code(), 3);
  EXPECT_EQ(jobs[0]->ended_ms(), 1700000001500);
  EXPECT_EQ(jobs[1]->condition(), v1::CONDITION_RUNNING);
  EXPECT_EQ(jobs[1]->ranks(0).pid(), child.pid());
  EXPECT_EQ(jobs[1]->uid(), 7u);
  EXPECT_EQ(jobs[1]->argv(1), "--fast");
  EXPECT_EQ(registry_->revision(), std::max(jobs[0]->revision(), jobs[1]->revision()));
}

TEST_F(RegistryTest, FollowsATaskThroughItsLife) {
  Start();
  MakeTask("t");
  Await("t", v1::CONDITION_CREATED);
  Child child;
  WriteTask("t", "process.json", child.ProcessFile());
  EXPECT_FALSE(Await("t", v1::CONDITION_RUNNING)->ranks(0).managed());
  ASSERT_OK(WriteFileAtomically(Paths("t").ctl + "/2.sock", ""));
  AwaitJob("t", [](const v1::Job& job) { return job.ranks(0).managed(); });

  auto ghost = std::make_unique<Child>(Paths("t").ghost_socket);
  WriteTask("t", "status.json", StatusFile("paused", ghost->pid(), "last_image", "000004"));
  JobPicture paused = Await("t", v1::CONDITION_PAUSED);
  EXPECT_EQ(paused->ranks(0).residency(), "device");
  EXPECT_EQ(paused->last_image(), "000004");
  ghost.reset();  // nothing is written: the process has ended
  Await("t", v1::CONDITION_STRANDED);
  ghost = std::make_unique<Child>(Paths("t").ghost_socket);
  WriteTask("t", "status.json", StatusFile("running", ghost->pid()));
  Await("t", v1::CONDITION_RUNNING);

  WriteTask("t", "exit.json", {{"signal", 11}, {"time", 1.0}});
  child.Kill();
  EXPECT_EQ(Await("t", v1::CONDITION_KILLED)->signal(), 11);
  ASSERT_OK(RemoveTree(Paths("t").folder));
  AwaitJob("t", [](const v1::Job& job) { return job.gone(); });
  EXPECT_EQ(registry_->Find("t"), nullptr);
  EXPECT_EQ(registry_->revision(), last_revision_);
}

TEST_F(RegistryTest, ATaskThatItsGhostEndsForACheckpointWasNeverKilled) {
  Child child, ghost(Paths("t").ghost_socket);
  MakeTask("t");
  WriteTask("t", "process.json", child.ProcessFile());
  WriteTask("t", "status.json", StatusFile("checkpointing", ghost.pid()));
  Start();
  bool killed = false;
  auto watcher = registry_->Subscribe(
      [&](const JobPicture& job) { killed = killed || job->condition() == v1::CONDITION_KILLED; });
  EXPECT_EQ(registry_->Find("t")->condition(), v1::CONDITION_CHECKPOINTING);
  child.Kill();
  registry_->Refresh("t");
  EXPECT_EQ(registry_->Find("t")->condition(), v1::CONDITION_CHECKPOINTING);
  WriteTask("t", "status.json", StatusFile("ended", ghost.pid(), "ended_by", "checkpoint"));
  EXPECT_EQ(Await("t", v1::CONDITION_CHECKPOINTED)->ended_by(), "checkpoint");
  watcher.reset();
  EXPECT_FALSE(killed);
}

TEST_F(RegistryTest, AGhostThatEndsWithItsTaskHasLostIt) {
  Child child, ghost(Paths("t").ghost_socket);
  MakeTask("t");
  WriteTask("t", "process.json", child.ProcessFile());
  WriteTask("t", "status.json", StatusFile("checkpointing", ghost.pid()));
  Start();
  child.Kill();
  ghost.Kill();
  Await("t", v1::CONDITION_KILLED);
}

TEST_F(RegistryTest, AJobIsOneWithItsRanks) {
  Start();
  Child first, second;
  MakeJob("j", {&first, &second});
  JobPicture job = Await("j", v1::CONDITION_RUNNING);
  EXPECT_TRUE(job->ranked());
  ASSERT_EQ(job->ranks_size(), 2);
  EXPECT_EQ(job->ranks(1).task(), "j.1");
  EXPECT_EQ(registry_->List().size(), 1u) << "ranks are no jobs of their own";

  WriteTask("j.0", "exit.json", {{"exit_code", 0}, {"time", 1.0}});
  first.Kill();
  EXPECT_EQ(AwaitJob("j", [](const v1::Job& j) { return j.ranks(0).pid() == 0; })->text(),
            "running (1 of 2)");
  WriteTask("j.1", "exit.json", {{"exit_code", 2}, {"time", 2.0}});
  second.Kill();
  EXPECT_EQ(Await("j", v1::CONDITION_EXITED)->exit_code(), 2);

  ASSERT_OK(WriteJobImage(site_.folders.state, "j", {"000001", 1, {"000001", "000001"}}));
  AwaitJob("j", [](const v1::Job& j) { return j.last_image() == "000001"; });

  for (const char* task : {"j.0", "j.1"}) ASSERT_OK(RemoveTree(Paths(task).folder));
  ASSERT_OK(RemoveTree(site_.folders.state + "/jobs/j"));
  AwaitJob("j", [](const v1::Job& j) { return j.gone(); });
  EXPECT_TRUE(registry_->List().empty());
}

TEST_F(RegistryTest, ARankWithoutItsJobIsATask) {
  Child child;
  MakeJob("j", {&child});
  Start();
  ASSERT_NE(registry_->Find("j"), nullptr);
  ASSERT_OK(RemoveTree(site_.folders.state + "/jobs/j"));
  Await("j.0", v1::CONDITION_RUNNING);
  AwaitJob("j", [](const v1::Job& j) { return j.gone(); });
}

TEST_F(RegistryTest, ANameThatIsUsedAgainIsAnotherTask) {
  Start();
  for (int i = 0; i < 5; i++) {
    Child child;
    MakeTask("t");
    WriteTask("t", "process.json", child.ProcessFile());
    AwaitJob("t", [&](const v1::Job& job) {
      return job.condition() == v1::CONDITION_RUNNING && job.ranks(0).pid() == child.pid();
    });
    ASSERT_OK(RemoveTree(Paths("t").folder));
    if (i % 2 == 0) AwaitJob("t", [](const v1::Job& job) { return job.gone(); });
  }
}

TEST_F(RegistryTest, RefreshReadsAtOnce) {
  Start();
  MakeTask("t");
  registry_->Refresh("t");
  ASSERT_NE(registry_->Find("t"), nullptr);
  WriteTask("t", "status.json", {{"last_image", "000009"}});
  registry_->Refresh("t");
  EXPECT_EQ(registry_->Find("t")->last_image(), "000009");
  registry_->Refresh("../t");
  registry_->Refresh("none");
  EXPECT_EQ(registry_->List().size(), 1u);
}

TEST_F(RegistryTest, SaysWhatCannotBeReadUntilItCan) {
  Start();
  MakeTask("t");
  Await("t", v1::CONDITION_CREATED);
  ASSERT_OK(WriteFileAtomically(Paths("t").File("status.json"), "{"));
  registry_->Refresh("t");
  ASSERT_EQ(registry_->Notes().size(), 1u);
  EXPECT_NE(registry_->Notes()[0].find("status.json"), std::string::npos);
  WriteTask("t", "status.json", {{"last_image", "000001"}});
  AwaitJob("t", [](const v1::Job& job) { return job.last_image() == "000001"; });
  EXPECT_TRUE(registry_->Notes().empty());
}

TEST_F(RegistryTest, ManyTasksAtOnceAreAllKnown) {
  Start();
  Child child;
  constexpr int kTasks = 200;
  for (int i = 0; i < kTasks; i++) {
    MakeTask("t" + std::to_string(i));
    WriteTask("t" + std::to_string(i), "process.json", child.ProcessFile());
  }
  for (int i = 0; i < kTasks; i++) Await("t" + std::to_string(i), v1::CONDITION_RUNNING);
  child.Kill();
  for (int i = 0; i < kTasks; i++) Await("t" + std::to_string(i), v1::CONDITION_KILLED);
  EXPECT_EQ(registry_->List().size(), static_cast<size_t>(kTasks));
}

TEST_F(RegistryTest, RevisionsGoOnAfterARestart) {
  MakeTask("t");
  Start();
  uint64_t before = registry_->revision();
  TearDown();
  Start();
  EXPECT_GT(registry_->Find("t")->revision(), before);
}

}  // namespace
}  // namespace stasis

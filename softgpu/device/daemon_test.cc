// softgpud as a process: memory, processes, time slices, faults, checkpoint rendezvous.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "base/mapping.h"
#include "softgpu/device/test_daemon.h"

namespace softgpu {
namespace {

using stasis::Fd;
using stasis::Mapping;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;
using ::testing::ElementsAre;

constexpr uint64_t kGranule = kMemoryGranularity;

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() : daemon_({"--gpus", "2", "--memory", "64MiB", "--slice-ms", "5"}) {
    tool_ = daemon_.Connect(nullptr, true);
  }
  uint64_t Used(uint32_t device) {
    Result<MemoryInfo> info = tool_->MemInfo(device);
    EXPECT_TRUE(info.ok()) << info.status().ToString();
    return info.ok() ? (info->total_bytes - info->free_bytes) / kGranule : 999;
  }
  std::unique_ptr<ChildProgram> Peer(std::vector<std::string> arguments, int inherited = -1) {
    arguments.insert(arguments.begin(), {SOFTGPU_TEST_CLIENT_PATH, daemon_.socket()});
    return std::make_unique<ChildProgram>(arguments, inherited);
  }

  TestDaemon daemon_;
  std::unique_ptr<DeviceClient> tool_;
};

// ---- memory

TEST_F(DaemonTest, CapacityIsEnforcedAcrossClients) {
  auto one = daemon_.Connect();
  auto two = daemon_.Connect();
  ASSERT_TRUE(one->MemCreate(0, 20 * kGranule).ok());
  Result<Allocation> too_much = two->MemCreate(0, 13 * kGranule);
  EXPECT_EQ(too_much.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(two->MemCreate(0, 12 * kGranule).ok());
  EXPECT_TRUE(two->MemCreate(1, 32 * kGranule).ok());
  EXPECT_EQ(one->MemCreate(0, 100).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(one->MemCreate(2, kGranule).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Used(0), 32u);
}

TEST_F(DaemonTest, MemoryIsSharedAndCannotBeResized) {
  auto client = daemon_.Connect();
  Result<Allocation> memory = client->MemCreate(0, kGranule);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->size, kGranule);
  EXPECT_EQ(lseek(memory->memory.get(), 0, SEEK_END), static_cast<off_t>(kGranule));
  EXPECT_NE(ftruncate(memory->memory.get(), 0), 0);
  EXPECT_NE(fcntl(memory->memory.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(client->MemRelease(memory->id).ok());
  EXPECT_EQ(client->MemRelease(memory->id).code(), StatusCode::kNotFound);
  EXPECT_EQ(Used(0), 0u);
}

TEST_F(DaemonTest, KilledProcessGivesItsMemoryBack) {
  auto peer = Peer({"hold", "1", "30"});
  ASSERT_EQ(peer->ReadLine(), "ready");
  EXPECT_EQ(Used(1), 30u);
  Inventory inventory = tool_->GetInventory().value();
  ASSERT_EQ(inventory.processes.size(), 1u);
  EXPECT_EQ(inventory.processes[0].pid, peer->pid());
  EXPECT_THAT(inventory.processes[0].contexts, ElementsAre(0, 1));
  EXPECT_THAT(inventory.processes[0].memory_bytes, ElementsAre(0, 30 * kGranule));
  peer->Kill(SIGKILL);
  EXPECT_TRUE(WithinAMinute([&] { return Used(1) == 0; }));
  EXPECT_TRUE(tool_->GetInventory()->processes.empty());
}

// The child's copy of the socket keeps the connection open; the daemon must notice the process itself.
TEST_F(DaemonTest, ForkedChildHoldingTheSocketDoesNotKeepMemory) {
  auto peer = Peer({"fork", "0", "5"});
  pid_t child = static_cast<pid_t>(std::atoi(peer->ReadLine().c_str()));
  ASSERT_GT(child, 0);
  EXPECT_EQ(Used(0), 5u);
  peer->Kill(SIGKILL);
  peer->Wait();
  ASSERT_EQ(kill(child, 0), 0) << "the child must still be there";
  EXPECT_TRUE(WithinAMinute([&] { return Used(0) == 0; }));
}

TEST_F(DaemonTest, CloseGivesEverythingBack) {
  auto client = daemon_.Connect();
  ASSERT_TRUE(client->MemCreate(0, 4 * kGranule).ok());
  client->Close();
  EXPECT_TRUE(WithinAMinute([&] { return Used(0) == 0; }));
  EXPECT_EQ(client->MemCreate(0, kGranule).status().code(), StatusCode::kPeerDied);
  EXPECT_EQ(client->RequestSlice(0).code(), StatusCode::kPeerDied);
  EXPECT_FALSE(client->connected());
  client->Close();
}

TEST_F(DaemonTest, ExportOutlivesItsExporterAndEndsWithTheLastCopy) {
  auto exporter = daemon_.Connect();
  Result<Allocation> memory = exporter->MemCreate(0, 2 * kGranule);
  ASSERT_TRUE(memory.ok());
  {
    Mapping mapped = Mapping::OfFd(memory->memory.get(), 0, kGranule, PROT_READ | PROT_WRITE).value();
    mapped.bytes()[0] = std::byte{41};
  }
  Fd token = exporter->MemExport(memory->id).value();
  Fd copy = token.Duplicate();
  exporter->Close();
  token.Reset();
  EXPECT_EQ(Used(0), 2u) << "a copy of the token is still open";

  auto peer = Peer({"import"}, copy.get());
  ASSERT_EQ(peer->ReadLine(), "ready");
  copy.Reset();
  EXPECT_EQ(Used(0), 2u) << "the importing process holds a reference";
  Mapping mapped = Mapping::OfFd(memory->memory.get(), 0, kGranule, PROT_READ).value();
  EXPECT_EQ(mapped.bytes()[0], std::byte{42}) << "both see the same memory";
  peer->Kill(SIGKILL);
  EXPECT_TRUE(WithinAMinute([&] { return Used(0) == 0; }));
}

TEST_F(DaemonTest, LastCloseOfAnUnusedExportFrees) {
  auto exporter = daemon_.Connect();
  Result<Allocation> memory = exporter->MemCreate(0, kGranule);
  ASSERT_TRUE(memory.ok());
  Fd token = exporter->MemExport(memory->id).value();
  // Nobody should write into a token; who does must not keep the daemon busy or confuse it.
  ASSERT_EQ(write(token.get(), "x", 1), 1);
  ASSERT_TRUE(exporter->MemRelease(memory->id).ok());
  EXPECT_EQ(Used(0), 1u);
  Result<Allocation> again = exporter->MemImport(token.get());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->id, memory->id);
  token.Reset();
  ASSERT_TRUE(exporter->MemRelease(memory->id).ok());
  EXPECT_TRUE(WithinAMinute([&] { return Used(0) == 0; }));
}

TEST_F(DaemonTest, OtherDescriptorsCannotBeImported) {
  auto client = daemon_.Connect();
  Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  for (int fd : {null.get(), write_end.get(), -1}) {
    EXPECT_EQ(client->MemImport(fd).status().code(), StatusCode::kInvalidArgument);
  }
  TestDaemon other_node;
  auto other = other_node.Connect();
  Fd token = client->MemExport(client->MemCreate(0, kGranule)->id).value();
  EXPECT_EQ(other->MemImport(token.get()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(other->devices()[0].uuid, client->devices()[0].uuid);
}

// ---- time slices

TEST_F(DaemonTest, SliceGoesToAndFro) {
  EventLog first_log, second_log;
  auto first = daemon_.Connect(&first_log);
  auto second = daemon_.Connect(&second_log);
  ASSERT_TRUE(first->RequestSlice(0).ok());
  EXPECT_EQ(first_log.Next(), "granted 0");
  ASSERT_TRUE(second->RequestSlice(0).ok());
  for (int round = 0; round < 5; round++) {
    EXPECT_EQ(first_log.Next(), "revoke 0");
    ASSERT_TRUE(first->ReleaseSlice(0).ok());
    ASSERT_TRUE(first->RequestSlice(0).ok());
    EXPECT_EQ(second_log.Next(), "granted 0");
    EXPECT_EQ(second_log.Next(), "revoke 0");
    ASSERT_TRUE(second->ReleaseSlice(0).ok());
    ASSERT_TRUE(second->RequestSlice(0).ok());
    EXPECT_EQ(first_log.Next(), "granted 0");
  }
  EXPECT_EQ(first->RequestSlice(2).code(), StatusCode::kInvalidArgument);
}

TEST_F(DaemonTest, SliceOfAKilledHolderIsPassedOn) {
  auto peer = Peer({"slice", "1"});
  ASSERT_EQ(peer->ReadLine(), "ready");
  EventLog log;
  auto client = daemon_.Connect(&log);
  ASSERT_TRUE(client->RequestSlice(1).ok());
  ASSERT_TRUE(client->RequestSlice(0).ok());
  EXPECT_EQ(log.Next(), "granted 0") << "the holder of 1 does not answer, and keeps it";
  peer->Kill(SIGKILL);
  EXPECT_EQ(log.Next(), "granted 1");
}

// ---- faults

TEST_F(DaemonTest, LostDeviceReachesItsUsersOnly) {
  EventLog user_log, other_log;
  auto user = daemon_.Connect(&user_log);
  auto other = daemon_.Connect(&other_log);
  ASSERT_TRUE(user->CtxCreate(1).ok());
  ASSERT_TRUE(other->CtxCreate(0).ok());
  Allocation memory = user->MemCreate(1, kGranule).value();
  ASSERT_TRUE(tool_->InjectFault(1, {.kind = FaultKind::kFellOffBus}).ok());
  EXPECT_EQ(user_log.Next(), "fault 1 fell-off-bus");
  EXPECT_EQ(user->MemCreate(1, kGranule).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(user->CtxCreate(1).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(user->MemRelease(memory.id).ok());
  EXPECT_TRUE(other->MemCreate(0, kGranule).ok());
  EXPECT_EQ(user->Devices()->at(1).health, Health::kFellOffBus);
  ASSERT_TRUE(tool_->InjectFault(0, {.kind = FaultKind::kSlow, .factor = 0.5}).ok());
  EXPECT_EQ(other_log.Next(), "fault 0 slow=0.5");
  ASSERT_TRUE(tool_->InjectFault(1, {.kind = FaultKind::kReset}).ok());
  EXPECT_EQ(user_log.Next(), "fault 1 reset");
  EXPECT_TRUE(user->MemCreate(1, kGranule).ok());
}

TEST_F(DaemonTest, MemoryRunsOutAsInjected) {
  auto client = daemon_.Connect();
  ASSERT_TRUE(tool_->InjectFault(0, {.kind = FaultKind::kOomAfter, .count = 1}).ok());
  EXPECT_TRUE(client->MemCreate(0, kGranule).ok());
  EXPECT_EQ(client->MemCreate(0, kGranule).status().code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(tool_->InjectFault(0, {}).ok());
  EXPECT_TRUE(client->MemCreate(0, kGranule).ok());
}

// ---- the end of either side

TEST_F(DaemonTest, ClientsNoticeTheEndOfTheDaemon) {
  EventLog log;
  auto client = daemon_.Connect(&log);
  daemon_.program().Kill(SIGTERM);
  EXPECT_EQ(log.Next(), "disconnected");
  EXPECT_EQ(client->MemInfo(0).status().code(), StatusCode::kPeerDied);
  EXPECT_FALSE(client->connected());
  EXPECT_EQ(daemon_.program().Wait(), 0);
  EXPECT_NE(access(daemon_.socket().c_str(), F_OK), 0) << "the socket must be removed";
}

TEST_F(DaemonTest, WaitingCallEndsWhenTheConnectionIsClosed) {
  EventLog log;
  auto client = daemon_.Connect(&log);
  // Nobody answers the operation, so the call waits until the connection goes.
  std::future<Status> waiting = std::async(std::launch::async, [&] {
    return client->CheckpointRequest(getpid(), CheckpointOp::kLock, 0, {}, kPatience).status();
  });
  ASSERT_EQ(log.Next(), "checkpoint 0");
  client->Close();
  EXPECT_EQ(waiting.get().code(), StatusCode::kPeerDied);
}

TEST_F(DaemonTest, ChildAfterForkHasNoConnection) {
  auto client = daemon_.Connect();
  ASSERT_TRUE(client->MemCreate(0, kGranule).ok());
  pid_t child = fork();
  if (child == 0) {
    bool unusable = client->MemInfo(0).status().code() == StatusCode::kFailedPrecondition;
    client->AbandonAfterFork();
    unusable = unusable && client->MemInfo(0).status().code() == StatusCode::kFailedPrecondition &&
               client->RequestSlice(0).code() == StatusCode::kFailedPrecondition && !client->connected();
    client.reset();
    _exit(unusable ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Used(0), 1u) << "the parent's connection is untouched";
  EXPECT_TRUE(client->MemInfo(0).ok());
}

class CallsBack final : public EventHandler {
 public:
  void OnSliceGranted(uint32_t device) override {
    outcome.set_value(client->MemInfo(device).status());
    released.set_value(client->ReleaseSlice(device));
  }
  void OnSliceRevoke(uint32_t) override {}
  void OnDeviceFault(uint32_t, const Fault&) override {}
  void OnCheckpointOp(const CheckpointEvent&) override {}
  void OnDisconnected(const Status&) override {}
  DeviceClient* client = nullptr;
  std::promise<Status> outcome, released;
};

TEST_F(DaemonTest, ReceivingThreadMaySendButNotWait) {
  CallsBack handler;
  auto client = daemon_.Connect(&handler);
  handler.client = client.get();
  ASSERT_TRUE(client->RequestSlice(0).ok());
  EXPECT_EQ(handler.outcome.get_future().get().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(handler.released.get_future().get().ok());
}

TEST_F(DaemonTest, ManyThreadsShareAConnection) {
  auto client = daemon_.Connect();
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; round++) {
        Result<Allocation> memory = client->MemCreate(i % 2, kGranule);
        if (!memory.ok() || memory->device != static_cast<uint32_t>(i % 2) ||
            !client->MemRelease(memory->id).ok()) {
          failures++;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(Used(0) + Used(1), 0u);
}

// ---- checkpoint rendezvous

TEST_F(DaemonTest, CheckpointAndRestoreMeet) {
  EventLog log;
  auto target = daemon_.Connect(&log);
  auto ask = [&](CheckpointOp op) {
    std::byte args[] = {std::byte{1}, std::byte{2}};
    return tool_->CheckpointRequest(getpid(), op, 77, args, kPatience);
  };
  auto async = [&](CheckpointOp op) { return std::async(std::launch::async, ask, op); };

  auto lock = async(CheckpointOp::kLock);
  ASSERT_EQ(log.Next(), "checkpoint 0");
  EXPECT_EQ(log.checkpoint().timeout_ms, 77u);
  EXPECT_EQ(log.checkpoint().args.size(), 2u);
  ASSERT_TRUE(target->CheckpointReply(log.checkpoint().token, {0, ProcessState::kLocked, 5}).ok());
  Result<CheckpointResult> locked = lock.get();
  ASSERT_TRUE(locked.ok()) << locked.status().ToString();
  EXPECT_EQ(locked->value, 5u);
  EXPECT_EQ(tool_->GetInventory()->processes[0].state, ProcessState::kLocked);

  auto checkpoint = async(CheckpointOp::kCheckpoint);
  ASSERT_EQ(log.Next(), "checkpoint 1");
  ASSERT_TRUE(target->CheckpointReply(log.checkpoint().token, {0, ProcessState::kCheckpointed, 0}).ok());
  // GetState is answered although the operation is under way: once the reply is in, it is "checkpointed".
  ASSERT_TRUE(
      WithinAMinute([&] { return ask(CheckpointOp::kGetState)->state == ProcessState::kCheckpointed; }));
  EXPECT_EQ(checkpoint.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
      << "the connection still stands, so the process could not be dumped";
  target->Close();
  ASSERT_TRUE(checkpoint.get().ok());
  EXPECT_EQ(ask(CheckpointOp::kGetState)->state, ProcessState::kCheckpointed);
  EXPECT_EQ(ask(CheckpointOp::kLock).status().code(), StatusCode::kUnavailable);

  auto restore = async(CheckpointOp::kRestore);
  ConnectOptions options = daemon_.Options();
  options.resumed = true;
  auto back = DeviceClient::Connect(options, &log);
  ASSERT_TRUE(back.ok());
  ASSERT_EQ(log.Next(), "checkpoint 2");
  ASSERT_TRUE((*back)->CheckpointReply(log.checkpoint().token, {0, ProcessState::kLocked, 0}).ok());
  ASSERT_TRUE(restore.get().ok());
}

TEST_F(DaemonTest, CheckpointRequestsHaveDeadlinesAndLimits) {
  EventLog log;
  auto target = daemon_.Connect(&log);
  auto ask = [&](pid_t pid, stasis::Duration wait) {
    return tool_->CheckpointRequest(pid, CheckpointOp::kLock, 0, {}, wait).status().code();
  };
  EXPECT_EQ(ask(getpid(), std::chrono::milliseconds(20)), StatusCode::kTimeout);
  EXPECT_EQ(ask(1, kPatience), StatusCode::kNotFound);
  std::vector<std::byte> huge(64 << 10);
  EXPECT_EQ(tool_->CheckpointRequest(getpid(), CheckpointOp::kLock, 0, huge, kPatience).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(DaemonTest, CheckpointOfAKilledProcessIsAnswered) {
  auto peer = Peer({"hold", "0", "1"});
  ASSERT_EQ(peer->ReadLine(), "ready");
  auto waiting = std::async(std::launch::async, [&] {
    return tool_->CheckpointRequest(peer->pid(), CheckpointOp::kLock, 0, {}, kPatience).status().code();
  });
  ASSERT_EQ(peer->ReadLine(), "checkpoint");
  peer->Kill(SIGKILL);
  EXPECT_EQ(waiting.get(), StatusCode::kPeerDied);
}

}  // namespace
}  // namespace softgpu

#include "softgpu/device/rendezvous.h"

#include <gtest/gtest.h>

#include "softgpu/device/fake_environment.h"

namespace softgpu {
namespace {

using stasis::StatusCode;
using std::chrono::milliseconds;
using Output = Rendezvous::Output;

constexpr pid_t kPid = 100;
constexpr ClientId kTarget = 1;
constexpr ClientId kCaller = 2;

class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousTest() { environment_.users[kPid] = 1000; }
  ~RendezvousTest() override {
    // Whatever happened, the end of the process must leave nothing behind.
    (void)rendezvous_.ProcessExited(kPid);
    EXPECT_TRUE(rendezvous_.empty());
    EXPECT_TRUE(environment_.watched.empty());
  }

  Output Connect(bool resumed = false, ClientId client = kTarget) {
    auto output = rendezvous_.Connected(kPid, 1000, client, "job", resumed);
    EXPECT_TRUE(output.ok());
    return std::move(output).value();
  }
  Output Ask(CheckpointOp op, uint32_t wait_ms = 1000, uid_t uid = 1000) {
    return rendezvous_.Request({kCaller, ++request_, uid}, {kPid, op, 7, wait_ms, {std::byte{42}}});
  }
  // The operation must have been forwarded to the target; returns its token.
  uint64_t Forwarded(const Output& output, CheckpointOp op, ClientId client = kTarget) {
    EXPECT_EQ(output.answers.size(), 0u);
    EXPECT_EQ(output.forwards.size(), 1u);
    if (output.forwards.size() != 1) return 0;
    EXPECT_EQ(output.forwards[0].client, client);
    EXPECT_EQ(output.forwards[0].event.op, op);
    EXPECT_EQ(output.forwards[0].event.timeout_ms, 7u);
    EXPECT_EQ(output.forwards[0].event.args, std::vector<std::byte>{std::byte{42}});
    return output.forwards[0].event.token;
  }
  void ExpectAnswer(const Output& output, StatusCode code, uint64_t request) {
    EXPECT_EQ(output.forwards.size(), 0u);
    ASSERT_EQ(output.answers.size(), 1u);
    EXPECT_EQ(output.answers[0].client, kCaller);
    EXPECT_EQ(output.answers[0].request_id, request);
    EXPECT_EQ(output.answers[0].result.status().code(), code) << output.answers[0].result.status().ToString();
  }
  void ExpectAnswer(const Output& output, StatusCode code) { ExpectAnswer(output, code, request_); }
  void ExpectState(const Output& output, ProcessState state) {
    ASSERT_NO_FATAL_FAILURE(ExpectAnswer(output, StatusCode::kOk));
    EXPECT_EQ(output.answers[0].result->state, state);
  }
  static void ExpectNothing(const Output& output) {
    EXPECT_EQ(output.answers.size() + output.forwards.size(), 0u);
  }
  // Brings the target into the state "checkpointed, connection closed".
  void Checkpoint() {
    (void)Connect();
    uint64_t token = Forwarded(Ask(CheckpointOp::kCheckpoint), CheckpointOp::kCheckpoint);
    ExpectNothing(rendezvous_.Reply(kTarget, token, {0, ProcessState::kCheckpointed, 0}));
    ExpectState(rendezvous_.Disconnected(kTarget), ProcessState::kCheckpointed);
  }

  FakeEnvironment environment_;
  Rendezvous rendezvous_{&environment_};
  uint64_t request_ = 0;
};

TEST_F(RendezvousTest, OperationGoesThereAndTheAnswerComesBack) {
  (void)Connect();
  uint64_t token = Forwarded(Ask(CheckpointOp::kLock), CheckpointOp::kLock);
  Output output = rendezvous_.Reply(kTarget, token, {0, ProcessState::kLocked, 55});
  ExpectState(output, ProcessState::kLocked);
  EXPECT_EQ(output.answers[0].result->value, 55u);
  EXPECT_EQ(rendezvous_.StateOf(kPid), ProcessState::kLocked);
  ExpectNothing(rendezvous_.Reply(kTarget, token, {0, ProcessState::kLocked, 0}));
}

TEST_F(RendezvousTest, DriverErrorsAreHandedOn) {
  (void)Connect();
  uint64_t token = Forwarded(Ask(CheckpointOp::kCheckpoint), CheckpointOp::kCheckpoint);
  Output output = rendezvous_.Reply(kTarget, token, {401, ProcessState::kRunning, 0});
  ExpectState(output, ProcessState::kRunning);
  EXPECT_EQ(output.answers[0].result->result, 401);
}

TEST_F(RendezvousTest, UnknownProcessIsNotFound) {
  for (CheckpointOp op :
       {CheckpointOp::kLock, CheckpointOp::kCheckpoint, CheckpointOp::kUnlock, CheckpointOp::kGetState}) {
    ExpectAnswer(Ask(op), StatusCode::kNotFound);
  }
  environment_.users.clear();
  ExpectAnswer(Ask(CheckpointOp::kRestore), StatusCode::kNotFound);
}

TEST_F(RendezvousTest, OnlyTheSameUserOrRoot) {
  (void)Connect();
  ExpectAnswer(Ask(CheckpointOp::kLock, 1000, 1001), StatusCode::kPermissionDenied);
  ExpectAnswer(Ask(CheckpointOp::kGetState, 1000, 1001), StatusCode::kPermissionDenied);
  (void)Forwarded(Ask(CheckpointOp::kLock, 1000, 0), CheckpointOp::kLock);
}

TEST_F(RendezvousTest, StrangerCannotMakeUsWatchAProcess) {
  ExpectAnswer(Ask(CheckpointOp::kRestore, 1000, 1001), StatusCode::kPermissionDenied);
  EXPECT_TRUE(rendezvous_.empty());
}

TEST_F(RendezvousTest, OneOperationAtATime) {
  (void)Connect();
  uint64_t first_request = 1;
  uint64_t token = Forwarded(Ask(CheckpointOp::kLock), CheckpointOp::kLock);
  ExpectAnswer(Ask(CheckpointOp::kUnlock), StatusCode::kFailedPrecondition);
  ExpectState(Ask(CheckpointOp::kGetState), ProcessState::kRunning);
  ExpectAnswer(rendezvous_.Reply(kTarget, token, {0, ProcessState::kLocked, 0}), StatusCode::kOk,
               first_request);
  (void)Forwarded(Ask(CheckpointOp::kUnlock), CheckpointOp::kUnlock);
}

TEST_F(RendezvousTest, CheckpointIsAnsweredWhenTheConnectionIsClosed) {
  Checkpoint();
  EXPECT_EQ(rendezvous_.Absent().size(), 1u);
  EXPECT_EQ(rendezvous_.Absent()[0].name, "job");
  ExpectState(Ask(CheckpointOp::kGetState), ProcessState::kCheckpointed);
  ExpectAnswer(Ask(CheckpointOp::kLock), StatusCode::kUnavailable);
  ExpectAnswer(Ask(CheckpointOp::kUnlock), StatusCode::kUnavailable);
}

TEST_F(RendezvousTest, RestoreWaitsForTheProcess) {
  Checkpoint();
  ExpectNothing(Ask(CheckpointOp::kRestore));
  uint64_t token = Forwarded(Connect(true, 9), CheckpointOp::kRestore, 9);
  EXPECT_EQ(rendezvous_.StateOf(kPid), ProcessState::kCheckpointed);
  ExpectState(rendezvous_.Reply(9, token, {0, ProcessState::kLocked, 0}), ProcessState::kLocked);
  EXPECT_TRUE(rendezvous_.Absent().empty());
}

TEST_F(RendezvousTest, FailedRestoreIsAnsweredWhenTheConnectionIsClosedAgain) {
  Checkpoint();
  ExpectNothing(Ask(CheckpointOp::kRestore));
  uint64_t restore = request_;
  uint64_t token = Forwarded(Connect(true, 9), CheckpointOp::kRestore, 9);
  ExpectNothing(rendezvous_.Reply(9, token, {2, ProcessState::kCheckpointed, 0}));
  ExpectState(Ask(CheckpointOp::kGetState), ProcessState::kCheckpointed);
  ExpectAnswer(rendezvous_.Disconnected(9), StatusCode::kOk, restore);
  EXPECT_EQ(rendezvous_.Absent().size(), 1u);
}

TEST_F(RendezvousTest, RestoreOfAProcessThatIsAlreadyBack) {
  Checkpoint();
  ExpectNothing(Connect(true, 9));
  (void)Forwarded(Ask(CheckpointOp::kRestore), CheckpointOp::kRestore, 9);
}

// As after CRIU restored it, perhaps on another node: this daemon has never seen the process.
TEST_F(RendezvousTest, RestoreOfAProcessNeverSeen) {
  ExpectNothing(Ask(CheckpointOp::kRestore));
  ExpectAnswer(Ask(CheckpointOp::kGetState), StatusCode::kNotFound);
  uint64_t token = Forwarded(Connect(true), CheckpointOp::kRestore);
  ExpectAnswer(rendezvous_.Reply(kTarget, token, {0, ProcessState::kLocked, 0}), StatusCode::kOk, 1);
}

TEST_F(RendezvousTest, ComingBackEmptyHandedFailsTheRestore) {
  Checkpoint();
  ExpectNothing(Ask(CheckpointOp::kRestore));
  ExpectAnswer(Connect(false, 9), StatusCode::kFailedPrecondition);
}

TEST_F(RendezvousTest, TimeoutsInEveryPhase) {
  (void)Connect();
  uint64_t token = Forwarded(Ask(CheckpointOp::kCheckpoint, 50), CheckpointOp::kCheckpoint);
  environment_.manual_clock.Advance(milliseconds(49));
  ExpectNothing(rendezvous_.Tick());
  environment_.manual_clock.Advance(milliseconds(1));
  EXPECT_LE(rendezvous_.NextTick(), environment_.clock().Now());
  ExpectAnswer(rendezvous_.Tick(), StatusCode::kTimeout);
  EXPECT_EQ(rendezvous_.NextTick(), stasis::MonotonicTime::max());
  // The late answer reaches nobody, but the state is remembered.
  ExpectNothing(rendezvous_.Reply(kTarget, token, {0, ProcessState::kCheckpointed, 0}));
  ExpectNothing(rendezvous_.Disconnected(kTarget));
  ExpectState(Ask(CheckpointOp::kGetState), ProcessState::kCheckpointed);
  ExpectNothing(Ask(CheckpointOp::kRestore, 50));
  environment_.manual_clock.Advance(milliseconds(50));
  ExpectAnswer(rendezvous_.Tick(), StatusCode::kTimeout);
  ExpectState(Ask(CheckpointOp::kGetState), ProcessState::kCheckpointed);
}

TEST_F(RendezvousTest, TimeoutWhileTheConnectionStaysOpen) {
  (void)Connect();
  uint64_t token = Forwarded(Ask(CheckpointOp::kCheckpoint, 50), CheckpointOp::kCheckpoint);
  ExpectNothing(rendezvous_.Reply(kTarget, token, {0, ProcessState::kCheckpointed, 0}));
  environment_.manual_clock.Advance(milliseconds(50));
  ExpectAnswer(rendezvous_.Tick(), StatusCode::kTimeout);
}

TEST_F(RendezvousTest, DeathOfTheTargetAnswersTheCaller) {
  (void)Connect();
  (void)Forwarded(Ask(CheckpointOp::kLock), CheckpointOp::kLock);
  ExpectAnswer(rendezvous_.ProcessExited(kPid), StatusCode::kPeerDied);
  EXPECT_TRUE(rendezvous_.empty());
}

TEST_F(RendezvousTest, ClosingWithoutAnAnswerIsDeathToo) {
  (void)Connect();
  (void)Forwarded(Ask(CheckpointOp::kLock), CheckpointOp::kLock);
  ExpectAnswer(rendezvous_.Disconnected(kTarget), StatusCode::kPeerDied);
  EXPECT_TRUE(rendezvous_.empty());
}

TEST_F(RendezvousTest, DeathOfACheckpointedProcessIsForgotten) {
  Checkpoint();
  ExpectNothing(rendezvous_.ProcessExited(kPid));
  ExpectAnswer(Ask(CheckpointOp::kGetState), StatusCode::kNotFound);
}

TEST_F(RendezvousTest, DeathOfTheCallerWhileWaitingForTheProcess) {
  Checkpoint();
  ExpectNothing(Ask(CheckpointOp::kRestore));
  ExpectNothing(rendezvous_.Disconnected(kCaller));
  ExpectNothing(Connect(true, 9));
}

TEST_F(RendezvousTest, DeathOfTheCallerWhileTheProcessIsAtIt) {
  (void)Connect();
  uint64_t token = Forwarded(Ask(CheckpointOp::kLock), CheckpointOp::kLock);
  ExpectNothing(rendezvous_.Disconnected(kCaller));
  ExpectAnswer(Ask(CheckpointOp::kUnlock), StatusCode::kFailedPrecondition);
  ExpectNothing(rendezvous_.Reply(kTarget, token, {0, ProcessState::kLocked, 0}));
  EXPECT_EQ(rendezvous_.StateOf(kPid), ProcessState::kLocked);
  (void)Forwarded(Ask(CheckpointOp::kUnlock), CheckpointOp::kUnlock);
}

TEST_F(RendezvousTest, AnswerWithAWrongTokenOrFromAStrangerIsIgnored) {
  (void)Connect();
  uint64_t token = Forwarded(Ask(CheckpointOp::kLock), CheckpointOp::kLock);
  ExpectNothing(rendezvous_.Reply(kTarget, token + 1, {0, ProcessState::kRunning, 0}));
  ExpectNothing(rendezvous_.Reply(kCaller, token, {0, ProcessState::kLocked, 0}));
  ExpectState(rendezvous_.Reply(kTarget, token, {0, ProcessState::kLocked, 0}), ProcessState::kLocked);
}

}  // namespace
}  // namespace softgpu

#include "intercept/gate.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "intercept/futex.h"

namespace stasis {
namespace {

using std::chrono::milliseconds;

// A flag to wait for.
class Event {
 public:
  void Set() {
    set_.store(1, std::memory_order_release);
    FutexWakeAll(set_);
  }
  bool Wait(Duration limit = std::chrono::seconds(30)) {
    const Deadline deadline = Deadline::After(limit);
    while (set_.load(std::memory_order_acquire) == 0) {
      if (deadline.Expired()) return false;
      FutexWait(set_, 0, deadline);
    }
    return true;
  }

 private:
  std::atomic<uint32_t> set_{0};
};

Status Close(Duration limit = std::chrono::seconds(30)) {
  std::vector<TaskBlocker> blockers;
  return CloseGate(Deadline::After(limit), &blockers);
}

// Threads that call without end, each touching plain memory that the pauser changes while the gate is closed.
class Callers {
 public:
  explicit Callers(size_t threads) {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Call(); });
  }
  ~Callers() {
    stop_.store(true);
    OpenGate();
    for (std::thread& thread : threads_) thread.join();
  }
  void Change() { first_ = ++second_; }
  uint64_t calls() const { return calls_.load(); }
  uint64_t torn() const { return torn_.load(); }

 private:
  void Call() {
    while (!stop_.load(std::memory_order_relaxed)) {
      const GateScope gate(Fn::cuStreamQuery);
      if (first_ != second_) torn_.fetch_add(1);
      calls_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  uint64_t first_ = 0, second_ = 0;  // equal whenever a thread looks
  std::atomic<uint64_t> calls_{0}, torn_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

void PauseOftenWhileThreadsCall() {
  Callers callers(4);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Close().ok());
    const uint64_t before = callers.calls();
    callers.Change();
    ASSERT_EQ(callers.calls(), before);
    OpenGate();
  }
  EXPECT_EQ(callers.torn(), 0u);
}

TEST(Gate, KeepsEveryThreadOutWhileClosed) {
  RegisterGateBarrier();
  PauseOftenWhileThreadsCall();
}

TEST(Gate, IsShutByAThreadThatIsInside) {
  RegisterGateBarrier();
  Event shut, leave;
  std::thread thread([&] {
    const GateScope gate(Fn::cuMemFree_v2);
    EXPECT_TRUE(InsideGate());
    ShutGate();
    shut.Set();
    leave.Wait();
    const GateScope inner(Fn::cuStreamQuery);  // part of the outer call, and so let through
  });
  ASSERT_TRUE(shut.Wait());
  EXPECT_TRUE(GateIsClosed());
  EXPECT_EQ(Close(milliseconds(1)).code(), StatusCode::kTimeout);
  leave.Set();
  EXPECT_TRUE(Close().ok());
  thread.join();
  EXPECT_FALSE(InsideGate());
  OpenGate();
}

TEST(Gate, NamesTheCallThatDoesNotReturn) {
  RegisterGateBarrier();
  Event inside, leave;
  std::atomic<pid_t> tid{0};
  std::thread thread([&] {
    const GateScope gate(Fn::cuStreamSynchronize_ptsz);
    tid = gettid();
    inside.Set();
    leave.Wait();
  });
  ASSERT_TRUE(inside.Wait());
  std::vector<TaskBlocker> blockers;
  const Status status = CloseGate(Deadline::After(milliseconds(20)), &blockers);
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  ASSERT_EQ(blockers.size(), 1u);
  EXPECT_EQ(blockers[0].tid, tid.load());
  EXPECT_EQ(blockers[0].call, "cuStreamSynchronize_ptsz");
  EXPECT_TRUE(GateIsClosed());
  leave.Set();
  EXPECT_TRUE(Close().ok());
  OpenGate();
  thread.join();
}

TEST(Gate, ClosesAsSoonAsTheLastCallReturns) {
  RegisterGateBarrier();
  Event inside, leave;
  std::thread thread([&] {
    const GateScope gate(Fn::cuCtxSynchronize);
    inside.Set();
    leave.Wait();
  });
  ASSERT_TRUE(inside.Wait());
  std::thread closer([] { EXPECT_TRUE(Close().ok()); });
  leave.Set();
  closer.join();  // far from its deadline, or the test is too
  OpenGate();
  thread.join();
}

TEST(Gate, NewThreadsWaitWhileClosed) {
  ASSERT_TRUE(Close().ok());
  Event started, entered;
  std::thread thread([&] {
    started.Set();
    const GateScope gate(Fn::cuInit);
    entered.Set();
  });
  ASSERT_TRUE(started.Wait());
  EXPECT_FALSE(entered.Wait(milliseconds(50)));
  OpenGate();
  EXPECT_TRUE(entered.Wait());
  thread.join();
}

TEST(Gate, CallsInsideOfCallsArePartOfTheOuterOne) {
  RegisterGateBarrier();
  Event inside, closing, done;
  std::thread thread([&] {
    const GateScope outer(Fn::cuOccupancyMaxPotentialBlockSize);
    inside.Set();
    closing.Wait();
    { const GateScope inner(Fn::cuFuncGetAttribute); }  // does not wait for the gate
    const std::vector<TaskBlocker> calls = CallsInside();
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].call, "cuOccupancyMaxPotentialBlockSize");
    done.Set();
  });
  ASSERT_TRUE(inside.Wait());
  std::vector<TaskBlocker> blockers;
  EXPECT_EQ(CloseGate(Deadline::After(milliseconds(1)), &blockers).code(), StatusCode::kTimeout);
  closing.Set();
  EXPECT_TRUE(done.Wait());
  EXPECT_TRUE(Close().ok());
  OpenGate();
  thread.join();
}

TEST(Gate, KeepsErrno) {
  std::thread thread([] {
    errno = 1234;
    { const GateScope gate(Fn::cuInit); }  // the first call of a thread does most
    EXPECT_EQ(errno, 1234);
  });
  thread.join();
}

TEST(Gate, ForgetsThreadsThatEnd) {
  { const GateScope gate(Fn::cuInit); }
  const uint32_t before = GateThreadCount();
  std::thread([&] {
    const GateScope gate(Fn::cuInit);
    EXPECT_EQ(GateThreadCount(), before + 1);
    EXPECT_EQ(AllThreadObjects().size(), before + 1);
  }).join();
  EXPECT_EQ(GateThreadCount(), before);
}

pthread_key_t late_key;
std::atomic<int> late_calls{0};

// Comes once more, so after the gate's own destructor and again after that of its second record.
void CallLate(void* value) {
  { const GateScope gate(Fn::cuMemFree_v2); }
  if (++late_calls == 1) pthread_setspecific(late_key, value);
}

TEST(Gate, ServesThreadsThatAreEnding) {
  RegisterGateBarrier();
  ASSERT_EQ(pthread_key_create(&late_key, CallLate), 0);
  std::thread([] {
    { const GateScope gate(Fn::cuInit); }
    pthread_setspecific(late_key, &late_key);
  }).join();
  EXPECT_EQ(late_calls, 2);
  pthread_key_delete(late_key);
  EXPECT_TRUE(Close().ok());
  OpenGate();
}

int StatusOfChild(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Gate, ChildOfAPausedProcessIsNotPaused) {
  RegisterGateBarrier();
  { const GateScope gate(Fn::cuInit); }  // from now on forks are handled
  ASSERT_TRUE(Close().ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    { const GateScope gate(Fn::cuInit); }
    _exit(GateThreadCount() == 1 && !GateIsClosed() ? 0 : 1);
  }
  EXPECT_EQ(StatusOfChild(child), 0);
  EXPECT_TRUE(GateIsClosed());
  OpenGate();
}

// What a kernel without membarrier answers.
bool RefuseMembarrier() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof code / sizeof *code, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

TEST(Gate, WorksWithoutMembarrier) {
  { const GateScope gate(Fn::cuInit); }
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (!RefuseMembarrier()) _exit(2);
    RegisterGateBarrier();
    PauseOftenWhileThreadsCall();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  EXPECT_EQ(StatusOfChild(child), 0);
}

TEST(Launches, OfAllThreadsAlsoOfThoseThatHaveEnded) {
  const uint64_t before = LaunchCount();
  constexpr uint64_t kEach = 1000;
  Event counted, end;
  auto launch = [] {
    for (uint64_t i = 0; i < kEach; ++i) {
      const GateScope gate(Fn::cuLaunchKernel);
      CountLaunch();
    }
  };
  std::thread lives([&] {
    launch();
    counted.Set();
    end.Wait();
  });
  std::thread(launch).join();
  std::thread(launch).join();
  EXPECT_TRUE(counted.Wait());
  EXPECT_EQ(LaunchCount() - before, 3 * kEach);
  end.Set();
  lives.join();
  EXPECT_EQ(LaunchCount() - before, 3 * kEach);
}

}  // namespace
}  // namespace stasis

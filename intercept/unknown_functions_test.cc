#include "intercept/unknown_functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "intercept/gate.h"
#include "intercept/taint.h"

namespace stasis {
namespace {

bool Refused(TaskStrategy strategy, const std::string& name) {
  return CheckTaints(strategy).message().find(name) != std::string::npos;
}

// Taints are the process's: none is left to other tests.
class UnknownFunctions : public testing::Test {
 protected:
  void TearDown() override { ResetTaintsAfterFork(); }
};

struct Large {
  double values[5];
};

double AddAll(int a, double b, long c, float d, const char* e, double f, int g, double h, short i, Large j,
              double k, long l, double m, double n, double o) {
  return a + b + static_cast<double>(c) + d + e[0] + f + g + h + i + j.values[4] + k +
         static_cast<double>(l) + m + n + o;
}

TEST_F(UnknownFunctions, AreCalledWithTheArgumentsAsTheyAre) {
  const auto add =
      reinterpret_cast<decltype(&AddAll)>(UnknownFunction("cuAddAll", reinterpret_cast<void*>(&AddAll)));
  EXPECT_NE(add, &AddAll);
  const Large large = {{0, 0, 0, 0, 1e9}};
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(add(1, 0.5, -7, 0.25f, "A", 1e3, 11, 1e4, 3, large, 1e5, 1L << 40, 1e6, 1e7, 1e8),
              AddAll(1, 0.5, -7, 0.25f, "A", 1e3, 11, 1e4, 3, large, 1e5, 1L << 40, 1e6, 1e7, 1e8));
  }
}

CUresult Nothing() { return CUDA_ERROR_NOT_READY; }
CUresult NothingElse() { return CUDA_ERROR_TIMEOUT; }

TEST_F(UnknownFunctions, AreATaintForEveryStrategyOnceTheyAreCalled) {
  const auto call =
      reinterpret_cast<decltype(&Nothing)>(UnknownFunction("cuNothing", reinterpret_cast<void*>(&Nothing)));
  EXPECT_EQ(UnknownFunction("cuNothing", reinterpret_cast<void*>(&Nothing)), reinterpret_cast<void*>(call))
      << "asked again";
  EXPECT_NE(UnknownFunction("cuNothing", reinterpret_cast<void*>(&NothingElse)),
            reinterpret_cast<void*>(call))
      << "another version";
  EXPECT_FALSE(Refused(TaskStrategy::kDriverCheckpoint, "cuNothing"));
  EXPECT_EQ(call(), CUDA_ERROR_NOT_READY);
  EXPECT_TRUE(Refused(TaskStrategy::kDriverCheckpoint, "cuNothing"));
}

std::atomic<bool> g_reached{false};
CUresult Reach() {
  g_reached.store(true);
  return CUDA_SUCCESS;
}

TEST_F(UnknownFunctions, WaitAtTheGateAndAreKnownAsTaintsByThen) {
  const auto call =
      reinterpret_cast<decltype(&Reach)>(UnknownFunction("cuReach", reinterpret_cast<void*>(&Reach)));
  RegisterGateBarrier();
  std::vector<TaskBlocker> blockers;
  ASSERT_TRUE(CloseGate(Deadline::After(std::chrono::seconds(30)), &blockers).ok());
  std::thread caller([&] { EXPECT_EQ(call(), CUDA_SUCCESS); });
  while (!Refused(TaskStrategy::kDriverCheckpoint, "cuReach")) std::this_thread::yield();
  EXPECT_FALSE(g_reached.load());
  OpenGate();
  caller.join();
  EXPECT_TRUE(g_reached.load());
}

TEST_F(UnknownFunctions, WithoutRoomAreATaintAtOnce) {
  std::vector<std::string> names;
  for (int i = 0; i < 400; ++i) names.push_back("cuMany" + std::to_string(i));
  std::vector<void*> given;
  for (const std::string& name : names)
    given.push_back(UnknownFunction(name.c_str(), reinterpret_cast<void*>(&Nothing)));
  EXPECT_NE(given.front(), reinterpret_cast<void*>(&Nothing));
  EXPECT_EQ(given.back(), reinterpret_cast<void*>(&Nothing));
  EXPECT_TRUE(Refused(TaskStrategy::kDriverCheckpoint, names.back()));
  for (void* address : given)
    EXPECT_EQ(reinterpret_cast<decltype(&Nothing)>(address)(), CUDA_ERROR_NOT_READY);
  std::sort(given.begin(), given.end());
  EXPECT_GT(std::unique(given.begin(), given.end()) - given.begin(), 200);
}

}  // namespace
}  // namespace stasis

// ResetTaintsAfterFork() lets go of what another thread may have been changing, and each test calls it.
extern "C" const char* __lsan_default_suppressions() { return "leak:stasis::Taint"; }

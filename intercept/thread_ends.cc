#include "intercept/thread_ends.h"

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "intercept/futex.h"

namespace stasis {
namespace {

constexpr std::chrono::seconds kLongestWait(2);

// The seq_cst order of these two is what lets one side see the other: each sets its own before it looks.
constinit std::atomic<uint32_t> g_held{0};
constinit std::atomic<uint32_t> g_ending{0};  // threads

__thread bool t_ending __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

ThreadEndHold::ThreadEndHold() {
  const Deadline deadline = Deadline::After(kLongestWait);
  g_held.store(1);
  for (uint32_t ending; (ending = g_ending.load()) != 0 && !deadline.Expired();)
    FutexWait(g_ending, ending, deadline);
}

ThreadEndHold::~ThreadEndHold() {
  g_held.store(0);
  FutexWakeAll(g_held);
}

void EnterThreadEnd() {
  const Deadline deadline = Deadline::After(kLongestWait);
  t_ending = true;
  g_ending.fetch_add(1);
  while (g_held.load() != 0 && !deadline.Expired()) {
    LeaveThreadEnd();
    FutexWait(g_held, 1, deadline);
    t_ending = true;
    g_ending.fetch_add(1);
  }
}

void LeaveThreadEnd() {
  if (!t_ending) return;
  t_ending = false;
  g_ending.fetch_sub(1);
  if (g_held.load() != 0) FutexWakeAll(g_ending);
}

void ResetThreadEndsAfterFork() {
  g_held.store(0);
  g_ending.store(0);
  t_ending = false;
}

}  // namespace stasis

#include "intercept/gate.h"

#include <cerrno>

#include "intercept/gate_threads.h"
#include "intercept/libraries/real_functions.h"
#include "intercept/process.h"
#include "replay/pause.h"

namespace stasis {

namespace internal {

constinit std::atomic<uint32_t> g_gate_word{0};

}  // namespace internal

namespace {

using internal::driver_stage;
using internal::g_gate_word;
using internal::kGateClosed;
using internal::kGateGenerationShift;
using internal::kGateLibrariesPass;
using internal::t_gate;

constinit std::atomic<bool> g_bypass{false};

uint32_t GenerationOf(uint32_t word) { return word >> kGateGenerationShift; }
uint32_t OpenWord() { return replay::Generation() << kGateGenerationShift; }

// See LetLibrariesPass().
bool IsOfALibrary(const void* caller) {
  return t_gate.library.inside.load(std::memory_order_relaxed) != 0 || libraries::IsLibraryCode(caller);
}

void RebuildIfStale(uint32_t word) {
  replay::ThreadObjects& objects = t_gate.record->objects;
  if (objects.generation == GenerationOf(word)) return;
  replay::RebuildThread(objects);
  objects.generation = GenerationOf(word);
}

}  // namespace

namespace internal {

bool EnterGateSlowly(Fn function, const void* caller) {
  const int saved_errno = errno;
  if (g_bypass.load(std::memory_order_relaxed)) return true;
  StartProcess();
  RegisterThread();
  const uint32_t word = driver_stage.Enter(static_cast<uint32_t>(function), [caller](uint32_t now) {
    if ((now & kGateClosed) == 0) return true;
    return (now & kGateLibrariesPass) != 0 && IsOfALibrary(caller);
  });
  RebuildIfStale(word);
  errno = saved_errno;
  return false;
}

void LeaveGateSlowly() {
  const int saved_errno = errno;
  if (!g_bypass.load(std::memory_order_relaxed)) driver_stage.Leave();
  errno = saved_errno;
}

}  // namespace internal

replay::ThreadObjects& CurrentThreadObjects() { return t_gate.record->objects; }

bool GateIsClosed() { return driver_stage.Closed(); }

std::vector<TaskBlocker> CallsInside() { return driver_stage.CallsInside(); }

void ShutGate() { g_gate_word.fetch_or(kGateClosed, std::memory_order_seq_cst); }

Status CloseGate(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  ShutGate();
  RETURN_IF_ERROR(internal::WaitForGateBarrier());
  return driver_stage.AwaitEmpty(deadline, blockers);
}

void LetLibrariesPass(bool pass) {
  if (!GateIsClosed()) return;
  driver_stage.Publish(OpenWord() | kGateClosed | (pass ? kGateLibrariesPass : 0));
}

void OpenGate() { driver_stage.Publish(OpenWord()); }

void ResetGateAfterFork(bool bypass) {
  g_bypass.store(bypass, std::memory_order_relaxed);
  ResetGateThreadsAfterFork();
}

}  // namespace stasis

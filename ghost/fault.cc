#include "ghost/fault.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace stasis {
namespace {

enum Action : int { kNone, kFail, kKill, kStop };

// Written once before any other thread runs; the action is taken by whoever comes first.
FaultPoint g_point = FaultPoint::kQuiesceBefore;
std::atomic<int> g_action{kNone};

}  // namespace

const char* FaultName(FaultPoint point) {
  switch (point) {
#define STASIS_FAULT(id, name) \
  case FaultPoint::id:         \
    return name;
    STASIS_GHOST_FAULTS(STASIS_FAULT)
#undef STASIS_FAULT
  }
  return "unknown";
}

bool FindFault(const std::string& name, FaultPoint* point) {
#define STASIS_FAULT(id, text) \
  if (name == text) {          \
    *point = FaultPoint::id;   \
    return true;               \
  }
  STASIS_GHOST_FAULTS(STASIS_FAULT)
#undef STASIS_FAULT
  return false;
}

Status SetFault(const std::string& text) {
  g_action = kNone;
  if (text.empty()) return Status();
  size_t colon = text.find(':');
  std::string action = colon == std::string::npos ? "fail" : text.substr(colon + 1);
  bool known = action == "fail" || action == "kill" || action == "stop";
  if (!FindFault(text.substr(0, colon), &g_point) || !known) {
    return Status(StatusCode::kInvalidArgument, "STASIS_GHOST_FAULT=" + text + ": no such fault point");
  }
  g_action = action == "kill" ? kKill : action == "stop" ? kStop : kFail;
  return Status();
}

Status Fault(FaultPoint point) {
  if (g_action.load(std::memory_order_relaxed) == kNone || point != g_point) return Status();
  int action = g_action.exchange(kNone);
  if (action == kNone) return Status();
  if (action == kKill) kill(getpid(), SIGKILL);
  // To the thread itself: what is sent to the process stops this thread some time after its return from here.
  if (action == kStop) return raise(SIGSTOP) == 0 ? Status() : ErrnoStatus(errno, "stop");
  return Errorf(StatusCode::kInternal, "fault point %s", FaultName(point));
}

}  // namespace stasis

#include "intercept/taint.h"

#include <atomic>
#include <mutex>
#include <new>
#include <string>

namespace stasis {
namespace {

constinit std::mutex g_mutex;
constinit std::vector<TaskTaint>* g_taints = nullptr;  // guarded by g_mutex; outlives every destructor
constinit std::atomic<bool> g_noted[kFnCount] = {};

}  // namespace

void Taint(const char* call, bool both) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_taints == nullptr) g_taints = new std::vector<TaskTaint>;
  for (TaskTaint& taint : *g_taints) {
    if (taint.call != call) continue;
    taint.both |= both;
    return;
  }
  g_taints->push_back({call, both});
}

void TaintOnce(Fn function, bool both) {
  std::atomic<bool>& noted = g_noted[static_cast<size_t>(function)];
  if (noted.load(std::memory_order_relaxed)) return;
  Taint(FnName(function), both);
  noted.store(true, std::memory_order_relaxed);
}

std::vector<TaskTaint> Taints() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_taints == nullptr ? std::vector<TaskTaint>() : *g_taints;
}

Status CheckTaints(TaskStrategy strategy) {
  std::string calls;
  for (const TaskTaint& taint : Taints())
    if (taint.both || strategy == TaskStrategy::kReconstruct)
      calls += (calls.empty() ? "" : ", ") + taint.call;
  if (calls.empty()) return {};
  return Errorf(StatusCode::kUnsupported, "the program has made calls that strategy %s cannot carry: %s",
                TaskStrategyName(strategy), calls.c_str());
}

void ResetTaintsAfterFork() {
  new (&g_mutex) std::mutex;
  g_taints = nullptr;  // another thread may have been changing it
  for (std::atomic<bool>& noted : g_noted) noted.store(false, std::memory_order_relaxed);
}

}  // namespace stasis

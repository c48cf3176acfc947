#include "intercept/process.h"

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/task_protocol.h"
#include "intercept/driver_path.h"
#include "intercept/gate.h"
#include "vmm/real_driver.h"

namespace stasis {
namespace {

constinit std::mutex g_mutex;
constinit std::atomic<bool> g_started{false};
constinit std::string* g_task_folder = nullptr;  // outlives every destructor

void Start() {
  const char* folder = getenv(kTaskFolderVariable);
  g_task_folder = new std::string(folder == nullptr ? "" : folder);
  Status status = OpenDriver(FindDriverPath());
  (void)status;  // the program sees a machine without a driver, as it would without us
  if (g_task_folder->empty()) return;
  RegisterGateBarrier();
}

}  // namespace

void StartProcess() {
  if (g_started.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_started.load(std::memory_order_relaxed)) return;
  Start();
  g_started.store(true, std::memory_order_release);
}

const std::string& TaskFolder() { return *g_task_folder; }

}  // namespace stasis

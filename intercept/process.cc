#include "intercept/process.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/files.h"
#include "base/raw_log.h"
#include "intercept/control.h"
#include "intercept/device_files.h"
#include "intercept/driver_path.h"
#include "intercept/gate.h"
#include "intercept/libraries/handle_library.h"
#include "intercept/libraries/handles.h"
#include "intercept/libraries/library.h"
#include "intercept/libraries/library_gate.h"
#include "intercept/memory_notes.h"
#include "intercept/own_descriptors.h"
#include "intercept/share_server.h"
#include "intercept/taint.h"
#include "intercept/task_placements.h"
#include "intercept/unknown_functions.h"
#include "intercept/visible_devices.h"
#include "replay/graph_records.h"
#include "vmm/real_driver.h"

namespace stasis {
namespace {

constinit std::mutex g_start_mutex;
constinit std::atomic<bool> g_started{false};
constinit bool g_fork_handled = false;  // guarded by g_start_mutex
// Never freed: whoever reads it may do so at any time, destructors of the program included.
constinit std::atomic<const std::string*> g_task_folder{nullptr};
constinit std::atomic<bool> g_initialised{false};  // a cuInit has succeeded
// Held during a cuInit until one has succeeded. What the driver loads meanwhile may call it in the same
// thread.
constinit std::recursive_mutex g_init_mutex;

struct HiddenVariables {
  HiddenVariable visible{"CUDA_VISIBLE_DEVICES"};
  HiddenVariable order{"CUDA_DEVICE_ORDER"};
};
// The environment with what the driver is shown, in the place of what that was found by.
struct View {
  explicit View(const ShownDevices* what) : shown(what) {}
  const ShownDevices* const shown;
  const HiddenVariable visible{"CUDA_VISIBLE_DEVICES"};
  const HiddenVariable instead{kTaskDevicesVariable, shown->variable.c_str()};
};

constexpr size_t kMaxPlacements = 1 << 16;

constinit std::mutex g_hide_mutex;
constinit int g_hiders = 0;                     // guarded by g_hide_mutex
constinit HiddenVariables* g_hidden = nullptr;  // guarded by g_hide_mutex
constinit int g_viewers = 0;                    // guarded by g_hide_mutex
constinit View* g_view = nullptr;               // guarded by g_hide_mutex
// What the driver was initialised with; stored before g_initialised. Never freed.
constinit std::atomic<const ShownDevices*> g_shown{nullptr};

View* MakeView() {
  Result<std::string> placements = ReadFile(TaskFolder() + "/" + kPlacementsFile, kMaxPlacements);
  std::optional<ShownDevices> shown = DevicesToShow(getenv(kTaskDevicesVariable), SelectionOfEnvironment(),
                                                    placements.ok() ? *placements : std::string());
  // Never freed: others may have read the environment while its string was there.
  return shown ? new View(new ShownDevices(*std::move(shown))) : nullptr;
}

// While one lives, the driver finds in the environment what it is to be shown, where that is known.
class DriverView {
 public:
  DriverView() {
    std::lock_guard<std::mutex> lock(g_hide_mutex);
    if (g_viewers++ == 0) g_view = MakeView();
    shown_ = g_view == nullptr ? nullptr : g_view->shown;
  }
  ~DriverView() {
    std::lock_guard<std::mutex> lock(g_hide_mutex);
    if (--g_viewers > 0) return;
    delete g_view;
    g_view = nullptr;
  }
  DriverView(const DriverView&) = delete;
  DriverView& operator=(const DriverView&) = delete;
  const ShownDevices* shown() const { return shown_; }

 private:
  const ShownDevices* shown_;
};

// A child finds the environment, and what is known of it, as one.
void BeforeFork() { g_hide_mutex.lock(); }
void AfterFork() { g_hide_mutex.unlock(); }

// The threads that would put the variables back are not in the child.
void PutVariablesBackInChild() {
  delete g_view;
  delete g_hidden;
  g_view = nullptr;
  g_hidden = nullptr;
  g_viewers = 0;
  g_hiders = 0;
  new (&g_hide_mutex) std::mutex;
  new (&g_init_mutex) std::recursive_mutex;
}

// What a child may keep of its parent depends on the driver: once initialised it is of no use to children.
void ResetInChild() {
  const bool driver_used = g_initialised.load(std::memory_order_relaxed);
  new (&g_start_mutex) std::mutex;
  PutVariablesBackInChild();
  if (!driver_used) g_shown.store(nullptr, std::memory_order_relaxed);
  CloseOwnFdsAfterFork();
  const std::string* folder = g_task_folder.load(std::memory_order_relaxed);
  if (driver_used && folder != nullptr && !folder->empty()) DropDeviceFiles();
  ResetMemoryNotesAfterFork();
  ResetSharingAfterFork();
  ResetTaintsAfterFork();
  ResetUnknownFunctionsAfterFork();
  ResetGateAfterFork(driver_used);
  libraries::ResetLibraryGateAfterFork();
  libraries::ResetLibrariesAfterFork();
  libraries::ResetHandleLibrariesAfterFork();
  libraries::ResetHandlesAfterFork();
  g_started.store(driver_used, std::memory_order_relaxed);
}

void LogFailure(LogLevel level, const char* what, const Status& status) {
  RawLog(level, "%s: %.*s", what, static_cast<int>(status.message().size()), status.message().data());
}

void OpenRealDriver() {
  if (DriverIsOpen()) return;
  // Without one the program sees a machine without a driver, as it would without us: no word on its stderr.
  const Status status = OpenDriver(FindDriverPath());
  if (!status.ok()) LogFailure(LogLevel::kInfo, "no CUDA driver", status);
}

void Start() {
  if (g_task_folder.load(std::memory_order_relaxed) == nullptr) {
    const char* folder = getenv(kTaskFolderVariable);
    g_task_folder.store(new std::string(folder == nullptr ? "" : folder), std::memory_order_release);
  }
  OpenRealDriver();
  if (!g_fork_handled) pthread_atfork(BeforeFork, AfterFork, ResetInChild);
  g_fork_handled = true;
  // Copies of graphs are for a rebuild alone.
  replay::KeepGraphSnapshots(!TaskFolder().empty() && ChosenStrategy() == TaskStrategy::kReconstruct);
  if (TaskFolder().empty()) return;
  RegisterGateBarrier();
  TakeMemoryNotes();
  const Status status = StartControlThread(TaskFolder());
  if (!status.ok()) LogFailure(LogLevel::kWarning, "this process cannot be managed", status);
}

}  // namespace

void StartProcess() {
  if (g_started.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> lock(g_start_mutex);
  if (g_started.load(std::memory_order_relaxed)) return;
  Start();
  g_started.store(true, std::memory_order_release);
}

const std::string& TaskFolder() { return *g_task_folder.load(std::memory_order_acquire); }

void MoveTaskFolder(const std::string& folder) {
  g_task_folder.store(new std::string(folder), std::memory_order_release);
}

TaskStrategy ChosenStrategy() {
  const char* wanted = getenv(kTaskStrategyVariable);
  for (const TaskStrategy strategy : {TaskStrategy::kReconstruct, TaskStrategy::kDriverCheckpoint})
    if (wanted != nullptr && std::strcmp(wanted, TaskStrategyName(strategy)) == 0) return strategy;
  const bool offered = DriverIsOpen() && DriverAddress(Fn::cuCheckpointProcessLock) != nullptr;
  return offered && IsNvidiaDriver(DriverPath()) ? TaskStrategy::kDriverCheckpoint
                                                 : TaskStrategy::kReconstruct;
}

AllDevicesVisible::AllDevicesVisible() {
  std::lock_guard<std::mutex> lock(g_hide_mutex);
  if (g_hiders++ == 0) g_hidden = new HiddenVariables;
}

AllDevicesVisible::~AllDevicesVisible() {
  std::lock_guard<std::mutex> lock(g_hide_mutex);
  if (--g_hiders > 0) return;
  delete g_hidden;
  g_hidden = nullptr;
}

CUresult InitialiseDriver(CUresult (*init)(unsigned int), unsigned int flags) {
  const auto initialise = [&](const ShownDevices* shown = nullptr) {
    const CUresult result = init(flags);
    if (result != CUDA_SUCCESS) return result;
    if (shown != nullptr) g_shown.store(shown, std::memory_order_release);
    g_initialised.store(true, std::memory_order_release);
    return result;
  };
  std::unique_lock<std::recursive_mutex> lock(g_init_mutex);
  const bool first = !g_initialised.load(std::memory_order_acquire);
  if (!first) lock.unlock();
  if (TaskFolder().empty() || NamesDevicePart(getenv("CUDA_VISIBLE_DEVICES"))) return initialise();
  if (first && ChosenStrategy() == TaskStrategy::kDriverCheckpoint) {
    const DriverView view;
    const CUresult result = view.shown() == nullptr ? CUDA_ERROR_NO_DEVICE : initialise(view.shown());
    // The environment of a task that has come here may still be that of another machine, with other devices.
    if (result != CUDA_ERROR_NO_DEVICE) return result;
  }
  const AllDevicesVisible hidden;
  return initialise();
}

const ShownDevices* DevicesShown() { return g_shown.load(std::memory_order_acquire); }

}  // namespace stasis

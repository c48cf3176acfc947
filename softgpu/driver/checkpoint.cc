#include "softgpu/driver/checkpoint.h"

#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/raw_log.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/sm_pool.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/workers.h"

namespace softgpu {
namespace {

using stasis::Deadline;
using stasis::LogLevel;
using stasis::RawLog;

constexpr char kThreadName[] = "softgpu-restore";
// How long a process that was woken waits for the operation it was woken for.
constexpr std::chrono::seconds kWakeTimeout(10);

// Any number that programs are unlikely to use; it is blocked everywhere in the thread and only ever waited
// for.
int WakeSignal() { return SIGRTMAX - 2; }

sigset_t WakeSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, WakeSignal());
  return set;
}

// Signals that were sent while nobody waited for them mean nothing.
void DropPendingWakes() {
  sigset_t set = WakeSet();
  timespec now{0, 0};
  while (sigtimedwait(&set, nullptr, &now) > 0) {
  }
}

void WaitForWake() {
  sigset_t set = WakeSet();
  // Not the program's timers, should they use the same signal. (glibc shows tgkill's SI_TKILL as SI_USER.)
  siginfo_t info{};
  do {
    info.si_code = SI_KERNEL;
  } while (sigwaitinfo(&set, &info) < 0 || info.si_code != SI_USER);
}

bool SendWake(pid_t pid, pid_t tid) { return syscall(SYS_tgkill, pid, tid, WakeSignal()) == 0; }

std::vector<CUcheckpointGpuPair> ReadPairs(const std::vector<std::byte>& args) {
  std::vector<CUcheckpointGpuPair> pairs(args.size() / sizeof(CUcheckpointGpuPair));
  if (!pairs.empty()) memcpy(pairs.data(), args.data(), pairs.size() * sizeof(CUcheckpointGpuPair));
  return pairs;
}

bool SameUuid(const CUuuid& a, const CUuuid& b) { return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0; }

CUuuid UuidOf(const Device& device) {
  CUuuid uuid{};
  memcpy(uuid.bytes, device.info().uuid.data(), sizeof uuid.bytes);
  return uuid;
}

}  // namespace

std::unique_ptr<Checkpointer> Checkpointer::Start(State& state) {
  std::unique_ptr<Checkpointer> self(new Checkpointer(state));
  Checkpointer* raw = self.get();
  if (!self->thread_.Start(kThreadName, [raw] { raw->Loop(); })) return nullptr;
  state.SetCheckpointHandler([raw](const CheckpointEvent& event) { raw->OnEvent(event); });
  return self;
}

Checkpointer::~Checkpointer() {
  state_.SetCheckpointHandler(nullptr);
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    WakeIfWaiting();
  }
  thread_.Join(Deadline::Never());
}

void Checkpointer::OnEvent(const CheckpointEvent& event) {
  Push({.op = event.op,
        .timeout_ms = event.timeout_ms,
        .args = event.args,
        .token = event.token,
        .answer = nullptr});
}

void Checkpointer::Push(Request request) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(request));
  changed_.notify_all();
}

void Checkpointer::WakeIfWaiting() {
  if (!waits_for_wake_) return;
  waits_for_wake_ = false;
  SendWake(getpid(), tid_.load());
}

CheckpointResult Checkpointer::Run(CheckpointOp op, uint32_t timeout_ms, std::vector<std::byte> args) {
  auto answer = std::make_shared<CheckpointResult>();
  answer->result = -1;
  std::unique_lock lock(mutex_);
  queue_.push_back(
      {.op = op, .timeout_ms = timeout_ms, .args = std::move(args), .token = 0, .answer = answer});
  changed_.notify_all();
  WakeIfWaiting();
  changed_.wait(lock, [&] { return answer->result != -1; });
  return *answer;
}

std::optional<Checkpointer::Request> Checkpointer::Next(bool* woken) {
  *woken = false;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    if (!queue_.empty()) {
      Request request = std::move(queue_.front());
      queue_.pop_front();
      return request;
    }
    if (*woken) return std::nullopt;
    if (!detached_) {
      changed_.wait(lock);
      continue;
    }
    waits_for_wake_ = true;
    lock.unlock();
    WaitForWake();
    lock.lock();
    waits_for_wake_ = false;
    *woken = true;
  }
}

std::optional<Checkpointer::Request> Checkpointer::NextRestore() {
  Deadline deadline = Deadline::After(kWakeTimeout);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, deadline.Remaining(), [this] { return !queue_.empty() || stopping_; });
  if (queue_.empty() || queue_.front().op != CheckpointOp::kRestore) return std::nullopt;
  Request request = std::move(queue_.front());
  queue_.pop_front();
  return request;
}

void Checkpointer::Loop() {
  tid_.store(static_cast<pid_t>(syscall(SYS_gettid)));
  for (;;) {
    bool woken = false;
    std::optional<Request> request = Next(&woken);
    if (request) {
      Perform(*request);
    } else if (woken) {
      std::unique_lock lock(mutex_);
      if (stopping_) return;
      lock.unlock();
      ComeBack(std::nullopt);
    } else {
      return;
    }
  }
}

void Checkpointer::Perform(const Request& request) {
  switch (request.op) {
    case CheckpointOp::kLock:
      return Answer(request, Lock(request));
    case CheckpointOp::kUnlock:
      return Answer(request, Unlock());
    case CheckpointOp::kGetState:
      return Answer(request, CUDA_SUCCESS);
    case CheckpointOp::kCheckpoint: {
      CUresult result = Checkpoint(request);
      // The daemon takes the answer for the truth only once the connection is closed; a call of this process
      // has no such patience.
      bool local = request.answer != nullptr;
      if (result == CUDA_SUCCESS && local) LetGo();
      Answer(request, result);
      if (result == CUDA_SUCCESS && !local) LetGo();
      return;
    }
    case CheckpointOp::kRestore:
      if (process_ == ProcessState::kCheckpointed && state_.client() == nullptr) return ComeBack(request);
      return Answer(request, CUDA_ERROR_ILLEGAL_STATE);
  }
}

void Checkpointer::Answer(const Request& request, CUresult result) {
  CheckpointResult answer{.result = result, .state = process_, .value = 0};
  if (request.answer == nullptr) {
    // Fails only when the connection is gone, and the one who asked has been told.
    if (state_.client() != nullptr)
      static_cast<void>(state_.client()->CheckpointReply(request.token, answer));
    return;
  }
  std::lock_guard lock(mutex_);
  *request.answer = answer;
  changed_.notify_all();
}

bool Checkpointer::DrainAll(const Deadline& deadline) {
  for (const std::shared_ptr<Context>& context : state_.Contexts()) {
    if (!context->DrainUntil(deadline)) return false;
    context->print().Show();
  }
  return true;
}

CUresult Checkpointer::Lock(const Request& request) {
  if (process_ != ProcessState::kRunning) return CUDA_ERROR_ILLEGAL_STATE;
  Deadline deadline = request.timeout_ms == 0
                          ? Deadline::Never()
                          : Deadline::After(std::chrono::milliseconds(request.timeout_ms));
  if (!CallGate().Close(deadline)) return CUDA_ERROR_NOT_READY;
  if (!DrainAll(deadline)) {
    CallGate().Open();
    return CUDA_ERROR_NOT_READY;
  }
  process_ = ProcessState::kLocked;
  return CUDA_SUCCESS;
}

CUresult Checkpointer::Unlock() {
  if (process_ != ProcessState::kLocked) return CUDA_ERROR_ILLEGAL_STATE;
  process_ = ProcessState::kRunning;
  CallGate().Open();
  return CUDA_SUCCESS;
}

CUresult Checkpointer::Checkpoint(const Request&) {
  if (process_ != ProcessState::kLocked) return CUDA_ERROR_ILLEGAL_STATE;
  MemoryManager& memory = state_.memory().manager();
  const char* obstacle = memory.CheckpointObstacle();
  for (const std::shared_ptr<Context>& context : state_.Contexts()) {
    if (context->error() != CUDA_SUCCESS) obstacle = "a context that has failed";
    if (!context->captures().empty()) obstacle = "a stream capture under way";
  }
  if (obstacle != nullptr) {
    RawLog(LogLevel::kWarning, "checkpoint refused: %s", obstacle);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  stasis::Status saved = memory.SaveAndDetach();
  if (!saved.ok()) {
    RawLog(LogLevel::kError, "checkpoint: %s", saved.ToString().c_str());
    return MemoryError(saved);
  }
  for (const std::shared_ptr<Context>& context : state_.Contexts()) context->Rest();
  process_ = ProcessState::kCheckpointed;
  return CUDA_SUCCESS;
}

void Checkpointer::LetGo() {
  // Before the connection closes: whoever waits for that may wake us at once.
  DropPendingWakes();
  state_.memory().manager().source().Disconnect();
  state_.Disconnect();
  std::lock_guard lock(mutex_);
  detached_ = true;
}

// All devices of this process are named, each once, and no place twice.
bool Checkpointer::CoversDevices(const Request& request) const {
  const std::vector<CUcheckpointGpuPair> pairs = ReadPairs(request.args);
  if (pairs.empty()) return true;
  const auto count = [&](CUuuid CUcheckpointGpuPair::*side, const CUuuid& uuid) {
    return std::count_if(pairs.begin(), pairs.end(),
                         [&](const auto& pair) { return SameUuid(pair.*side, uuid); });
  };
  const auto& devices = state_.devices();
  return std::all_of(devices.begin(), devices.end(),
                     [&](const auto& device) {
                       return count(&CUcheckpointGpuPair::oldUuid, UuidOf(*device)) == 1;
                     }) &&
         std::all_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
           return count(&CUcheckpointGpuPair::newUuid, pair.newUuid) == 1;
         });
}

void Checkpointer::ComeBack(std::optional<Request> request) {
  {
    std::lock_guard lock(mutex_);
    detached_ = false;
  }
  bool covered = !request || CoversDevices(*request), asked = request.has_value();
  auto new_uuid = [&](const CUuuid& old) {
    if (!asked) {
      asked = true;
      request = NextRestore();
      covered = !request || CoversDevices(*request);
    }
    if (!request || !covered) return old;
    for (const CUcheckpointGpuPair& pair : ReadPairs(request->args)) {
      if (SameUuid(pair.oldUuid, old)) return pair.newUuid;
    }
    return old;
  };
  stasis::Status connected = state_.Reconnect(new_uuid);
  CUresult result = covered ? MemoryError(connected) : CUDA_ERROR_INVALID_VALUE;
  if (!connected.ok()) RawLog(LogLevel::kError, "restore: %s", connected.ToString().c_str());
  if (request && result == CUDA_SUCCESS) result = TakeBack(*request);
  if (request) Answer(*request, result);
  if (process_ != ProcessState::kCheckpointed) return;
  // Nobody asked, or it failed: back to where we were.
  if (state_.client() != nullptr) return LetGo();
  std::lock_guard lock(mutex_);
  detached_ = true;
}

CUresult Checkpointer::TakeBack(const Request&) {
  stasis::Status loaded = state_.memory().manager().AttachAndLoad();
  if (!loaded.ok()) {
    RawLog(LogLevel::kError, "restore: %s", loaded.ToString().c_str());
    return MemoryError(loaded);
  }
  process_ = ProcessState::kLocked;
  return CUDA_SUCCESS;
}

pid_t Checkpointer::FindRestoreThread(pid_t pid) {
  std::string folder = "/proc/" + std::to_string(pid) + "/task";
  DIR* tasks = opendir(folder.c_str());
  if (tasks == nullptr) return -1;
  pid_t found = -1;
  while (const dirent* entry = readdir(tasks)) {
    std::string name;
    std::ifstream comm(folder + "/" + entry->d_name + "/comm");
    if (std::getline(comm, name) && name == kThreadName) found = static_cast<pid_t>(atoi(entry->d_name));
  }
  closedir(tasks);
  return found;
}

bool Checkpointer::Wake(pid_t pid) {
  pid_t tid = FindRestoreThread(pid);
  return tid > 0 && SendWake(pid, tid);
}

}  // namespace softgpu

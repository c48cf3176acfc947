#include "replay/context_record.h"

#include <map>
#include <mutex>

#include "replay/current_context.h"
#include "replay/id_series.h"
#include "vmm/device_map.h"

namespace stasis::replay {

namespace {

constexpr CUlimit kLimits[] = {
    CU_LIMIT_STACK_SIZE,
    CU_LIMIT_PRINTF_FIFO_SIZE,
    CU_LIMIT_MALLOC_HEAP_SIZE,
    CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
    CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
    CU_LIMIT_MAX_L2_FETCH_GRANULARITY,
    CU_LIMIT_PERSISTING_L2_CACHE_SIZE,
};

constinit IdSeries g_ids;

struct PrimaryState {
  std::shared_ptr<PrimaryContext> record;  // null: never retained
  int retains = 0;
  std::optional<unsigned> flags;  // as the program set them
};

struct Primaries {
  std::mutex mutex;  // a leaf but for the object table's
  std::map<int, PrimaryState> by_device;
};

Primaries& All() {
  static Primaries* const primaries = new Primaries;
  return *primaries;
}

int RetainsOf(int device) {
  std::lock_guard lock(All().mutex);
  return All().by_device[device].retains;
}

}  // namespace

std::string ContextRecord::Name() const { return Record::Name() + " of device " + std::to_string(device_); }

Status ContextRecord::Save() {
  const CurrentContext current(real_context());
  RETURN_IF_ERROR(current.status());
  limits_.clear();
  for (CUlimit limit : kLimits) {
    size_t value = 0;
    if (Driver().cuCtxGetLimit(&value, limit) == CUDA_SUCCESS) limits_.emplace_back(limit, value);
  }
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
  cache_config_.reset();
  if (Driver().cuCtxGetCacheConfig(&config) == CUDA_SUCCESS) cache_config_ = config;
  unsigned long long id = 0;
  if (id_ == 0 && Driver().cuCtxGetId(real_context(), &id) == CUDA_SUCCESS) id_ = g_ids.Show(id);
  g_ids.Note(id_);
  return {};
}

// A limit is set only where the new context differs: some devices let a program read what it cannot set.
Status ContextRecord::RestoreLimits() {
  for (const auto& [limit, wanted] : limits_) {
    size_t value = 0;
    if (Driver().cuCtxGetLimit(&value, limit) == CUDA_SUCCESS && value == wanted) continue;
    RETURN_IF_ERROR(DriverStatus(Driver().cuCtxSetLimit(limit, wanted), "cuCtxSetLimit"));
  }
  return {};
}

Status ContextRecord::Restore(CUcontext real) {
  const CurrentContext current(real);
  RETURN_IF_ERROR(current.status());
  RETURN_IF_ERROR(RestoreLimits());
  if (!cache_config_.has_value()) return {};
  return DriverStatus(Driver().cuCtxSetCacheConfig(*cache_config_), "cuCtxSetCacheConfig");
}

void ContextRecord::EndEvents() {
  const CurrentContext current(real_context());
  events_.End();
}

bool PrimaryContext::active() const { return RetainsOf(device()) > 0; }

Status PrimaryContext::Save() {
  if (!active()) return {};
  int exists = 0;
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuDevicePrimaryCtxGetState(ToPhysicalDevice(device()), &flags_, &exists),
                   "cuDevicePrimaryCtxGetState"));
  return ContextRecord::Save();
}

Status PrimaryContext::Destroy() {
  if (!active()) return {};
  EndEvents();
  return DriverStatus(Driver().cuDevicePrimaryCtxReset_v2(ToPhysicalDevice(device())),
                      "cuDevicePrimaryCtxReset");
}

// Retained as often as the program did, so that as many releases end it.
Result<uint64_t> PrimaryContext::Rebuild() {
  const int retains = RetainsOf(device());
  const CUdevice physical = ToPhysicalDevice(device());
  CUcontext real = nullptr;
  if (retains > 0)
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuDevicePrimaryCtxSetFlags_v2(physical, flags_), "cuDevicePrimaryCtxSetFlags"));
  for (int i = 0; i < retains; ++i)
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuDevicePrimaryCtxRetain(&real, physical), "cuDevicePrimaryCtxRetain"));
  if (real != nullptr) RETURN_IF_ERROR(Restore(real));
  return reinterpret_cast<uint64_t>(real);
}

Status CreatedContext::Save() {
  RETURN_IF_ERROR(ContextRecord::Save());
  const CurrentContext current(real_context());
  RETURN_IF_ERROR(current.status());
  return DriverStatus(Driver().cuCtxGetFlags(&flags_), "cuCtxGetFlags");
}

Status CreatedContext::Destroy() {
  EndEvents();
  return DriverStatus(Driver().cuCtxDestroy_v2(real_context()), "cuCtxDestroy");
}

Result<uint64_t> CreatedContext::Rebuild() {
  const CUdevice physical = ToPhysicalDevice(device());
  CUcontext real = nullptr, popped = nullptr;
  const CUresult made = create_ == Fn::cuCtxCreate ? Driver().cuCtxCreate(&real, flags_, physical)
                                                   : Driver().cuCtxCreate_v2(&real, flags_, physical);
  RETURN_IF_ERROR(DriverStatus(made, FnName(create_)));
  (void)Driver().cuCtxPopCurrent_v2(&popped);
  RETURN_IF_ERROR(Restore(real));
  return reinterpret_cast<uint64_t>(real);
}

CUcontext PrimaryRetained(int device, CUcontext real) {
  const uint64_t value = reinterpret_cast<uint64_t>(real);
  std::lock_guard lock(All().mutex);
  PrimaryState& primary = All().by_device[device];
  ++primary.retains;
  if (primary.record != nullptr && primary.record->real() == 0) {
    ObjectTable::Get().SetReal(*primary.record, value);
  } else if (primary.record == nullptr || primary.record->real() != value) {
    if (primary.record != nullptr) ObjectTable::Get().Remove(primary.record);
    primary.record = std::make_shared<PrimaryContext>(device);
    ObjectTable::Get().Add(primary.record, value);
  }
  return reinterpret_cast<CUcontext>(primary.record->visible());
}

namespace {

// What was in the context is gone; the handle stays.
CUcontext Emptied(const PrimaryState& primary) {
  if (primary.record == nullptr) return nullptr;
  ObjectTable::Get().RemoveDependents(*primary.record);
  return reinterpret_cast<CUcontext>(primary.record->visible());
}

}  // namespace

CUcontext PrimaryReleased(int device) {
  std::lock_guard lock(All().mutex);
  PrimaryState& primary = All().by_device[device];
  const bool last = primary.retains > 0 && --primary.retains == 0;
  return last ? Emptied(primary) : nullptr;
}

CUcontext PrimaryReset(int device) {
  int exists = 0;
  unsigned flags = 0;
  (void)Driver().cuDevicePrimaryCtxGetState(ToPhysicalDevice(device), &flags, &exists);
  std::lock_guard lock(All().mutex);
  PrimaryState& primary = All().by_device[device];
  if (!exists) primary.retains = 0;
  return Emptied(primary);
}

void PrimaryFlagsSet(int device, unsigned flags) {
  std::lock_guard lock(All().mutex);
  All().by_device[device].flags = flags;
}

ContextPtr CurrentContextRecord() {
  CUcontext real = nullptr;
  if (Driver().cuCtxGetCurrent(&real) != CUDA_SUCCESS || real == nullptr) return nullptr;
  return std::dynamic_pointer_cast<ContextRecord>(
      ObjectTable::Get().FindReal(reinterpret_cast<uint64_t>(real)));
}

std::vector<ContextPtr> ActiveContexts() {
  std::vector<ContextPtr> active;
  for (const RecordPtr& record : ObjectTable::Get().InOrder()) {
    if (record->kind() > ObjectKind::kContext) break;
    ContextPtr context = std::static_pointer_cast<ContextRecord>(record);
    if (context->active()) active.push_back(std::move(context));
  }
  return active;
}

unsigned long long VisibleContextId(unsigned long long real) { return g_ids.Show(real); }

void RestartContextIds() { g_ids.Restart(); }

Status RestorePrimaryFlags() {
  std::map<int, PrimaryState> primaries;
  {
    std::lock_guard lock(All().mutex);
    primaries = All().by_device;
  }
  for (const auto& [device, primary] : primaries) {
    if (primary.retains > 0 || !primary.flags.has_value()) continue;
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuDevicePrimaryCtxSetFlags_v2(ToPhysicalDevice(device), *primary.flags),
                     "cuDevicePrimaryCtxSetFlags"));
  }
  return {};
}

}  // namespace stasis::replay

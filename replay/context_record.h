// Contexts: the primary one of each device, and those the program creates.
#ifndef REPLAY_CONTEXT_RECORD_H_
#define REPLAY_CONTEXT_RECORD_H_

#include <cuda.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "replay/event_clock.h"
#include "replay/object_table.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

class ContextRecord : public Record {
 public:
  ContextRecord(ObjectKind kind, int device) : Record(kind), device_(device) {}

  int device() const { return device_; }  // virtual ordinal
  CUcontext real_context() const { return reinterpret_cast<CUcontext>(real()); }
  // False for a primary context that nobody retains: there is a handle, and no context.
  virtual bool active() const { return true; }
  // What cuCtxGetId says for ever; 0 until the first Save().
  unsigned long long id() const { return id_; }
  EventClock& events() { return events_; }

  std::string Name() const override;
  Status Save() override;

 protected:
  // Gives a context that was just made again the settings of the old one.
  Status Restore(CUcontext real);
  void EndEvents();

 private:
  Status RestoreLimits();

  const int device_;
  unsigned long long id_ = 0;
  std::vector<std::pair<CUlimit, size_t>> limits_;
  std::optional<CUfunc_cache> cache_config_;
  EventClock events_;
};
using ContextPtr = std::shared_ptr<ContextRecord>;

class PrimaryContext final : public ContextRecord {
 public:
  explicit PrimaryContext(int device) : ContextRecord(ObjectKind::kPrimaryContext, device) {}
  bool active() const override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;

 private:
  unsigned flags_ = 0;
};

class CreatedContext final : public ContextRecord {
 public:
  // `create`: the exact function that made it, as it decides on the API version.
  CreatedContext(int device, Fn create, unsigned flags)
      : ContextRecord(ObjectKind::kContext, device), create_(create), flags_(flags) {}
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;

 private:
  const Fn create_;
  unsigned flags_;
};

// ---- For the hooks. `device` is a virtual ordinal.

// The driver's primary context of the device was retained as `real`; returns the visible handle.
CUcontext PrimaryRetained(int device, CUcontext real);
// Returns the visible handle of the context if that was its end, else null.
CUcontext PrimaryReleased(int device);
// Everything in the context is gone. Returns its visible handle; null when there was none.
CUcontext PrimaryReset(int device);
// Flags of a primary context that may not exist yet were set.
void PrimaryFlagsSet(int device, unsigned flags);

// The context that is current in the calling thread; null when there is none, or none of ours.
ContextPtr CurrentContextRecord();
// Primary contexts that are retained and created ones, in order.
std::vector<ContextPtr> ActiveContexts();
// The id to show for a context without one of its own: numbers start again in each driver.
unsigned long long VisibleContextId(unsigned long long real);
// A new driver is in place.
void RestartContextIds();
// Sets the flags of primary contexts that the program chose and never used. After the driver was opened
// again.
Status RestorePrimaryFlags();

}  // namespace stasis::replay

#endif  // REPLAY_CONTEXT_RECORD_H_

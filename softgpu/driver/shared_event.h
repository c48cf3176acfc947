// What processes know together of an event that they share (CU_EVENT_INTERPROCESS): a page of memory that all
// of them map. Each recording takes the next number; the event is complete when the latest number is.
//
// The process that made the event keeps the page's descriptor open, and a handle says where: process and
// descriptor number, by which the importer takes it, and the inode, which it compares.
#ifndef SOFTGPU_DRIVER_SHARED_EVENT_H_
#define SOFTGPU_DRIVER_SHARED_EVENT_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/status.h"

namespace softgpu {

// Thread-safe.
class SharedEvent {
 public:
  static stasis::Result<std::shared_ptr<SharedEvent>> Create();
  // INVALID_VALUE: no handle of an event; INVALID_CONTEXT: of this process; MAP_FAILED: it is gone.
  static CUresult Open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* event);
  // False when another process made it.
  bool GetHandle(CUipcEventHandle* handle) const;

  // A recording begins, and has been reached.
  uint64_t Begin();
  void Complete(uint64_t number);
  uint64_t latest() const;
  bool IsComplete(uint64_t number) const;
  // Until it is, or `stop` says so, which is asked now and then.
  void Wait(uint64_t number, const std::function<bool()>& stop) const;

 private:
  struct Page;
  struct Wire;
  explicit SharedEvent(stasis::Mapping page, stasis::Fd fd) : page_(std::move(page)), fd_(std::move(fd)) {}
  Page& page() const;

  const stasis::Mapping page_;
  const stasis::Fd fd_;  // invalid when another process made it
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_SHARED_EVENT_H_

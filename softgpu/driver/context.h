// One context: what the work of a program on one device shares.
//
// A Context is one incarnation; the primary context's handle may have several, one after the other.
// Everything that refers to its Context by plain pointer is gone, or has ended its work, before the Context
// is.
#ifndef SOFTGPU_DRIVER_CONTEXT_H_
#define SOFTGPU_DRIVER_CONTEXT_H_

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "softgpu/driver/device.h"
#include "softgpu/driver/stream.h"
#include "softgpu/driver/work.h"

// What a CUcontext points to.
struct CUctx_st {
  int device = 0;
  bool primary = false;
};

namespace softgpu {

class Capture;
class DeviceHeap;
class PrintFifo;
class SmPool;
class WorkerPool;

struct ContextLimits {
  size_t stack_size = 1024;
  size_t printf_fifo_size = 1 << 20;
  size_t malloc_heap_size = 8 << 20;
  size_t sync_depth = 2;
  size_t pending_launches = 2048;
  size_t l2_fetch_granularity = 64;
  size_t persisting_l2 = 0;
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  Context(CUcontext handle, Device* device, unsigned flags, unsigned api_version, uint64_t id);
  // Work has ended: Close() was called.
  ~Context();

  CUcontext handle() const { return handle_; }
  // Of a context that is not primary: what the handle points to lives as long as the context.
  void OwnHandle(std::unique_ptr<CUctx_st> handle) { owned_handle_ = std::move(handle); }
  Device& device() const { return *device_; }
  int ordinal() const { return device_->ordinal(); }
  bool primary() const { return handle_->primary; }
  uint64_t id() const { return id_; }
  unsigned api_version() const { return api_version_; }
  std::atomic<unsigned>& flags() { return flags_; }

  // --- Errors. The first sticky error stays for the life of the context; every later call returns it.
  CUresult error() const { return error_.load(std::memory_order_acquire); }
  // Sets the sticky error unless there is one, stops what runs and skips what waits.
  void Break(CUresult error);

  // --- Order of work.
  Stream& legacy_stream() { return *legacy_; }
  std::shared_ptr<Stream> legacy_stream_ptr() { return legacy_; }
  // The calling thread's; made when first asked for.
  std::shared_ptr<Stream> PerThreadStream();
  std::shared_ptr<Stream> CreateStream(Stream::Kind kind, int priority);
  // The handle is dead; work under way goes on.
  void ForgetStream(Stream* stream);
  // The thread has ended; its stream goes, work under way goes on.
  void ForgetThread(uint64_t thread);
  // Waits for all work of the context that was given so far. No capture rules, no printf.
  void Drain();
  // The same; false when work is still going on at the deadline.
  bool DrainUntil(const stasis::Deadline& deadline);
  // Ends all threads of the context until there is work again. Nothing runs.
  void Rest();
  // The synchronising call: Drain(), device printf, captures that forbid it. Returns the sticky error.
  CUresult Synchronize();
  // What follows a wait for work: device printf, and pools give memory back.
  void Synchronized();
  std::mutex& order_mutex() { return order_mutex_; }

  // --- Captures of streams of this context.
  void AddCapture(std::shared_ptr<Capture> capture);
  void RemoveCapture(const Capture* capture);
  std::vector<std::shared_ptr<Capture>> captures() const;

  // --- Where work is done. Threads are made when first needed.
  SmPool& sms() { return *sms_; }
  WorkerPool& workers() { return *workers_; }
  PrintFifo& print() { return *print_; }
  DeviceHeap& heap() { return *heap_; }

  // --- Settings, guarded by settings_mutex().
  std::mutex& settings_mutex() { return settings_mutex_; }
  ContextLimits limits;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;

  // Ends all work and threads. With `cancel`, kernels are stopped where they are, and a function of the
  // program that does not return is left behind: false. Once.
  bool Close(bool cancel);

 private:
  friend class Stream;
  std::vector<OpPtr> PendingOfAll();
  void OrphanLocked(Stream* stream);

  const CUcontext handle_;
  std::unique_ptr<CUctx_st> owned_handle_;
  Device* const device_;
  const uint64_t id_;
  const unsigned api_version_;
  std::atomic<unsigned> flags_;
  std::atomic<CUresult> error_{CUDA_SUCCESS};

  mutable std::mutex order_mutex_;
  std::shared_ptr<Stream> legacy_;
  std::unordered_map<uint64_t, std::shared_ptr<Stream>>
      per_thread_;  // by thread number; guarded by order_mutex_
  struct Orphan {
    OpPtr tail;
    bool blocking;
  };
  std::vector<Stream*> streams_;  // all but the legacy one; guarded by order_mutex_
  std::vector<Orphan> orphans_;   // tails of destroyed streams; guarded by order_mutex_

  mutable std::mutex capture_mutex_;
  std::vector<std::shared_ptr<Capture>> captures_;
  std::mutex settings_mutex_;

  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<SmPool> sms_;
  std::unique_ptr<PrintFifo> print_;
  std::unique_ptr<DeviceHeap> heap_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_CONTEXT_H_

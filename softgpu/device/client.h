// DeviceClient: a process's connection to softgpud, the owner of the devices.
//
// Linked into libcuda.so.1 and so into strangers' processes: no global constructors, no signal handlers, no
// child that the host program could reap by accident. One thread of its own ("softgpu-client", all signals
// blocked) receives.
//
// Thread-safety: all methods may be called from any thread at any time, except that Close(),
// AbandonAfterFork() and the destructor must not race with each other. Methods that wait for an answer
// ("RPC") return kFailedPrecondition on the receiving thread, that is inside an EventHandler; RequestSlice,
// ReleaseSlice and CheckpointReply only send and may be called there.
//
// Errors of every method: kPeerDied = the connection is closed or the daemon is gone (at once, for ever);
// kUnavailable = the device fell off the bus; kTimeout = no answer in ConnectOptions::rpc_timeout;
// kFailedPrecondition = called in a forked child. Others are named at the method.
#ifndef SOFTGPU_DEVICE_CLIENT_H_
#define SOFTGPU_DEVICE_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "softgpu/device/types.h"

namespace softgpu {

// A checkpoint operation that another process asks of this one. Answer with DeviceClient::CheckpointReply.
struct CheckpointEvent {
  uint64_t token = 0;
  CheckpointOp op = CheckpointOp::kLock;
  uint32_t timeout_ms = 0;      // as the caller gave it; 0 = none
  std::vector<std::byte> args;  // as the caller gave them, e.g. pairs of device uuids
};

// Called on the receiving thread, one call at a time. Must not block for long: nothing else is received
// meanwhile.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  // The compute of `device` is this process's until it releases it.
  virtual void OnSliceGranted(uint32_t device) = 0;
  // Somebody else wants the device and the slice is over: call ReleaseSlice as soon as the device is between
  // kernels.
  virtual void OnSliceRevoke(uint32_t device) = 0;
  // Something happened to `device`, on which this process has a context; also kNone and kReset when it was
  // healed.
  virtual void OnDeviceFault(uint32_t device, const Fault& fault) = 0;
  virtual void OnCheckpointOp(const CheckpointEvent& event) = 0;
  // The daemon is gone or the connection broke. The last call; not made after Close().
  virtual void OnDisconnected(const stasis::Status& why) = 0;
};

struct ConnectOptions {
  std::string socket_path;  // empty = DefaultSocketPath()
  bool autostart = false;   // start softgpud when nobody listens (FindDaemon); it ends by itself when unused
  uint32_t idle_exit_s = 10;  // of a daemon started this way
  stasis::Duration connect_timeout = std::chrono::seconds(10);
  stasis::Duration rpc_timeout = std::chrono::seconds(10);
  std::string process_name;  // shown by softgpu-smi; empty = /proc/self/comm
  bool observer = false;     // a tool: not listed as a process, does not keep the daemon from its idle exit
  bool resumed = false;  // this process was checkpointed and comes back: its state starts as kCheckpointed
};

struct Allocation {
  uint64_t id = 0;
  uint32_t device = 0;
  uint64_t size = 0;  // bytes
  stasis::Fd memory;  // a memfd of exactly `size` bytes, sealed against resizing; map it shared
};

// $SOFTGPU_SOCKET, else $XDG_RUNTIME_DIR/softgpu/softgpud.sock, else /tmp/softgpu-<uid>/softgpud.sock.
std::string DefaultSocketPath();

class DeviceClient {
 public:
  // Connects and says hello. `handler` may be null; it must outlive the client, and may be called before this
  // returns. kUnavailable: nobody listens at the path and autostart was off, or the daemon did not start (the
  // message has the daemon's own line). kPermissionDenied: the daemon there belongs to another user.
  static stasis::Result<std::unique_ptr<DeviceClient>> Connect(const ConnectOptions& options,
                                                               EventHandler* handler);
  ~DeviceClient();
  DeviceClient(const DeviceClient&) = delete;
  DeviceClient& operator=(const DeviceClient&) = delete;

  // The devices as they were when the connection was made. Never fails; health and slow_factor may have
  // changed since.
  const std::vector<DeviceInfo>& devices() const;
  // The devices as they are now. RPC.
  stasis::Result<std::vector<DeviceInfo>> Devices();
  // Whether the connection stands. Never waits.
  bool connected() const;

  // Says that this process has one more (one less) context on `device`: it is listed, and told of faults.
  // RPC. kInvalidArgument: no such device. CtxDestroy, kFailedPrecondition: there is none.
  stasis::Status CtxCreate(uint32_t device);
  stasis::Status CtxDestroy(uint32_t device);

  // Physical memory. Each success is one reference of this process, given back by MemRelease or by its end;
  // the memory lives until the last reference of any process and the last exported descriptor are gone. RPC.
  // MemCreate: `size` in bytes, a multiple of kMemoryGranularity, else kInvalidArgument; kResourceExhausted:
  // the device has not that much left.
  stasis::Result<Allocation> MemCreate(uint32_t device, uint64_t size);
  // kNotFound: this process holds no reference to `id`.
  stasis::Status MemRelease(uint64_t id);
  // A descriptor that stands for the memory: it may be sent to other processes, duplicated and closed at
  // will, and keeps the memory alive while any copy of it is open anywhere. It is no file to map: give it to
  // MemImport.
  stasis::Result<stasis::Fd> MemExport(uint64_t id);
  // `fd` stays the caller's. kInvalidArgument: it is no descriptor that this daemon exported.
  stasis::Result<Allocation> MemImport(int fd);
  stasis::Result<MemoryInfo> MemInfo(uint32_t device);

  // Time slices: one process at a time computes on a device. RequestSlice is answered by OnSliceGranted (at
  // once if nobody has the device; a request while one is pending or held does nothing), or by OnDeviceFault
  // if the device is lost. ReleaseSlice gives the device back, or withdraws a pending request. Both only
  // send.
  stasis::Status RequestSlice(uint32_t device);
  stasis::Status ReleaseSlice(uint32_t device);

  // Asks process `pid` for a checkpoint operation and waits for its answer, at most until `timeout` (0 or
  // less = ten minutes). timeout_ms and args are handed to that process as they are. Restore waits for a
  // process that is not connected to come back (ConnectOptions::resumed); Checkpoint is answered after that
  // process closed its connection. kNotFound: no such process has a connection, nor was one checkpointed.
  // kPermissionDenied: another user's process. kPeerDied with a standing connection: the process ended before
  // it answered. kUnavailable: it is checkpointed and the operation needs it here. kFailedPrecondition:
  // another operation on it is under way.
  stasis::Result<CheckpointResult> CheckpointRequest(pid_t pid, CheckpointOp op, uint32_t timeout_ms,
                                                     std::span<const std::byte> args,
                                                     stasis::Duration timeout);
  // Answers an OnCheckpointOp. Only sends. After a Checkpoint answered with kCheckpointed, call Close() soon
  // (not on the receiving thread): the caller of Checkpoint is answered when the connection is closed.
  stasis::Status CheckpointReply(uint64_t token, const CheckpointResult& result);

  // For tools. RPC.
  stasis::Result<Inventory> GetInventory();
  stasis::Status InjectFault(uint32_t device, const Fault& fault);

  // Ends the thread and closes the socket: afterwards nothing of the connection is left in this process, and
  // all that it held at the daemon is given back. Calls that wait in other threads return kPeerDied.
  // Idempotent. Not on the receiving thread.
  void Close();
  // For the child after fork: closes its copies of the descriptors and touches nothing else (locks of other
  // threads may be held, the receiving thread does not exist). Async-signal-safe. Afterwards all methods
  // fail.
  void AbandonAfterFork();

 private:
  class Impl;
  explicit DeviceClient(std::unique_ptr<Impl> impl);
  static stasis::Result<std::unique_ptr<DeviceClient>> ConnectOnce(const std::string& path,
                                                                   const ConnectOptions& options,
                                                                   EventHandler* handler,
                                                                   const stasis::Deadline& deadline);
  std::unique_ptr<Impl> impl_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_CLIENT_H_

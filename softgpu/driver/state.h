// State: what the driver is between cuInit and its end. One a process.
//
// Locks, outermost first; a thread that holds one takes only later ones. None is held while the program's
// functions run or while anything is waited for, except a primary context's lock, which is held while that
// context is made or torn down.
//   Device::Primary::mutex, State::mutex_, module locks, Context::order_mutex_, graph and capture locks,
//   Op::mutex_, pools' and tables' own locks (leaves).
#ifndef SOFTGPU_DRIVER_STATE_H_
#define SOFTGPU_DRIVER_STATE_H_

#include <cuda.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "softgpu/device/client.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/device.h"
#include "softgpu/driver/handle_table.h"
#include "softgpu/driver/settings.h"

namespace softgpu {

class Event;
class Graph;
class GraphExec;
class Kernel;
class Library;
class LinkState;
class MemoryParts;
class Module;
class Node;
class Function;
class UserObject;

class State final : public EventHandler {
 public:
  ~State() override;

  // cuInit: connects and finds the devices. CUDA_SUCCESS also when done before.
  static CUresult Initialize();
  // Null before Initialize() has succeeded; never null again after that.
  static State* Get();

  const Settings& settings() const { return settings_; }
  // Null while disconnected by a checkpoint.
  DeviceClient* client() const { return client_.get(); }
  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
  // Null when there is no such device.
  Device* FindDevice(CUdevice ordinal) const;
  // Memory, arrays, textures, pools (memory_parts.h).
  MemoryParts& memory() const { return *memory_; }

  // --- Contexts.
  CUresult CreateContext(Device& device, CUcontext handle, unsigned flags, unsigned api_version,
                         std::shared_ptr<Context>* out);
  // Takes the context out of service: work ended, objects freed, memory returned.
  void DestroyContext(const std::shared_ptr<Context>& context, bool cancel);
  // Null when the handle is no live context.
  std::shared_ptr<Context> FindContext(CUcontext handle) const;
  std::vector<std::shared_ptr<Context>> Contexts() const;

  // --- Checkpoint support. Nothing runs and no call is inside.
  // Gives back slices and contexts and closes the connection.
  void Disconnect();
  // Connects again and finds each device by its uuid, or by `new_uuid(old)`.
  stasis::Status Reconnect(const std::function<CUuuid(const CUuuid&)>& new_uuid);
  // Called on the receiving thread.
  void SetCheckpointHandler(std::function<void(const CheckpointEvent&)> handler);

  // --- Handles.
  HandleTable<CUstream, Stream> streams;
  HandleTable<CUevent, Event> events;
  HandleTable<CUmodule, Module> modules;
  HandleTable<CUfunction, Function> functions;
  HandleTable<CUlibrary, Library> libraries;
  HandleTable<CUkernel, Kernel> kernels;
  HandleTable<CUlinkState, LinkState> links;
  HandleTable<CUgraph, Graph> graphs;
  HandleTable<CUgraphNode, Node> nodes;
  HandleTable<CUgraphExec, GraphExec> graph_execs;
  HandleTable<CUuserObject, UserObject> user_objects;

  // EventHandler:
  void OnSliceGranted(uint32_t device) override;
  void OnSliceRevoke(uint32_t device) override;
  void OnDeviceFault(uint32_t device, const Fault& fault) override;
  void OnCheckpointOp(const CheckpointEvent& event) override;
  void OnDisconnected(const stasis::Status& why) override;

  // Ends everything: at exit, or when the library is unloaded. The phase is kClosed. False: a call of another
  // thread did not return, or a function of the program's, and the state is still there for it.
  bool Shutdown();
  // In the child after fork; async-signal-safe.
  void AbandonAfterFork();

 private:
  State();
  CUresult Start();
  stasis::Status Connect(bool resumed);
  CUresult MakeDevices();
  Device* FindDaemonDevice(uint32_t daemon_ordinal) const;
  void RemoveObjectsOf(const Context& context);

  Settings settings_;
  std::unique_ptr<DeviceClient> client_;
  std::vector<std::unique_ptr<Device>> devices_;  // constant after Start()
  std::unique_ptr<MemoryParts> memory_;
  mutable std::mutex mutex_;
  std::unordered_map<CUcontext, std::shared_ptr<Context>> contexts_;
  // Contexts that are over. Objects that another thread still uses may point to them, so they stay; they are
  // small.
  std::vector<std::shared_ptr<Context>> over_;
  std::atomic<bool> left_behind_{false};  // a function that a context could not wait for still runs
  std::function<void(const CheckpointEvent&)> checkpoint_handler_;
  std::atomic<uint64_t> next_context_id_{1};
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_STATE_H_

// MemoryParts: the memory side of the driver's state, owned by State.
#ifndef SOFTGPU_DRIVER_MEMORY_PARTS_H_
#define SOFTGPU_DRIVER_MEMORY_PARTS_H_

#include <memory>

#include "base/status.h"
#include "softgpu/driver/array.h"
#include "softgpu/driver/ipc.h"
#include "softgpu/driver/memory_manager.h"
#include "softgpu/driver/pool.h"
#include "softgpu/driver/texture.h"

namespace softgpu {

class Checkpointer;
class Context;
class State;

class MemoryParts {
 public:
  // `state` has its client and devices. Runs inside cuInit.
  static stasis::Result<std::unique_ptr<MemoryParts>> Create(State& state);
  ~MemoryParts();

  // A context came into being, before any other use of it.
  void ContextCreated(Context& context);
  // Its work has ended and its threads are gone: forget and free all that it owns.
  void ContextDestroyed(Context& context);
  // A stream, event or context was synchronised with: pools give back what is above their thresholds.
  void Synchronized();
  // The state was connected again, perhaps to other devices.
  void Reconnected(State& state);

  MemoryManager& manager() { return *manager_; }
  ArrayTable& arrays() { return *arrays_; }
  TextureTable& textures() { return *textures_; }
  PoolTable& pools() { return *pools_; }
  IpcTable& ipc() { return *ipc_; }
  Checkpointer& checkpointer() { return *checkpointer_; }
  // Ends the thread that restores. No call is inside.
  void StopCheckpoints();

 private:
  MemoryParts();
  // In this order: the later ones refer to the earlier ones.
  std::unique_ptr<MemoryManager> manager_;
  std::unique_ptr<ArrayTable> arrays_;
  std::unique_ptr<TextureTable> textures_;
  std::unique_ptr<PoolTable> pools_;
  std::unique_ptr<IpcTable> ipc_;
  std::unique_ptr<Checkpointer> checkpointer_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_PARTS_H_

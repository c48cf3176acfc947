#include "softgpu/driver/memory_parts.h"

#include <utility>
#include <vector>

#include "softgpu/driver/checkpoint.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/state.h"

namespace softgpu {

stasis::Result<std::unique_ptr<MemoryParts>> MemoryParts::Create(State& state) {
  std::unique_ptr<MemoryParts> parts(new MemoryParts);
  ASSIGN_OR_RETURN(parts->manager_,
                   MemoryManager::Create(state.client(), static_cast<int>(state.devices().size())));
  parts->Reconnected(state);
  parts->arrays_ = std::make_unique<ArrayTable>(*parts->manager_);
  parts->textures_ = std::make_unique<TextureTable>(*parts->manager_, *parts->arrays_);
  parts->pools_ = std::make_unique<PoolTable>(*parts->manager_);
  parts->ipc_ = std::make_unique<IpcTable>(*parts->manager_);
  parts->checkpointer_ = Checkpointer::Start(state);
  if (parts->checkpointer_ == nullptr) {
    return stasis::Errorf(stasis::StatusCode::kResourceExhausted, "no thread for restoring");
  }
  return parts;
}

MemoryParts::MemoryParts() = default;

void MemoryParts::StopCheckpoints() { checkpointer_.reset(); }

MemoryParts::~MemoryParts() {
  // At the end of the process the connection is closed, and the daemon has taken the memory back.
  manager_->source().Disconnect();
}

void MemoryParts::Reconnected(State& state) {
  std::vector<uint32_t> daemon_devices;
  for (const auto& device : state.devices()) daemon_devices.push_back(device->daemon_ordinal());
  manager_->source().Connect(state.client(), daemon_devices);
}

void MemoryParts::ContextCreated(Context& context) {
  manager_->AddContext(context.handle(), context.ordinal());
}

void MemoryParts::ContextDestroyed(Context& context) {
  textures_->RemoveContext(context.handle());
  arrays_->RemoveContext(context.handle());
  pools_->RemoveContext(context.handle());
  ipc_->RemoveContext(context.handle());
  manager_->RemoveContext(context.handle());
}

void MemoryParts::Synchronized() { pools_->OnSynchronize(); }

}  // namespace softgpu

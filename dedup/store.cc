#include "dedup/store.h"

#include <utility>

#include "dedup/store_core.h"

namespace stasis {

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}
Store::~Store() = default;

Result<std::shared_ptr<Store>> Store::Open(const std::string& root, StoreOptions options) {
  auto state = std::make_unique<State>();
  state->core = std::make_shared<StoreCore>(root, options);
  RETURN_IF_ERROR(state->core->Open().WithContext("open store"));
  return std::shared_ptr<Store>(new Store(std::move(state)));
}

const std::string& Store::root() const { return state_->core->root(); }
const StoreOptions& Store::options() const { return state_->core->options(); }
FileSystem& Store::files() const { return state_->core->files(); }
Keyring& Store::keyring() const { return state_->core->keyring(); }
std::vector<std::string> Store::notes() const { return state_->core->notes(); }
Status Store::Refresh() { return state_->core->Refresh(); }
StoreCounts Store::counts() const { return state_->core->counts(); }

uint64_t Store::StoredBytes(const Hash128& hash) const {
  std::vector<ChunkPlace> places = state_->core->FindAny(hash);
  return places.empty() ? 0 : kRecordHeaderBytes + places.front().entry.stored_size;
}

}  // namespace stasis

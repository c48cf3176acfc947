#include "intercept/libraries/nccl_comms.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "intercept/libraries/handles.h"

namespace stasis::nccl {
namespace {

// FNV-1a.
class Hash {
 public:
  void Add(const void* bytes, size_t size) {
    for (size_t i = 0; i < size; ++i)
      value_ = (value_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001B3u;
  }
  // 0 stands for no key.
  uint64_t value() const { return value_ == 0 ? 1 : value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

std::optional<std::string> Copy(const char* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

}  // namespace

KeptConfig::KeptConfig(const ncclConfig_t* config) : given_(config != nullptr) {
  if (!given_) return;
  unknown_ = config->size > sizeof config_;
  // Programs of an earlier NCCL have a shorter one, and the library is told so by its size.
  std::memcpy(&config_, config, std::min(config->size, sizeof config_));
  net_name_ = Copy(config_.netName);
  comm_name_ = Copy(config_.commName);
}

ncclConfig_t* KeptConfig::Fill(ncclConfig_t* storage) const {
  *storage = config_;
  if (net_name_) storage->netName = net_name_->c_str();
  if (comm_name_) storage->commName = comm_name_->c_str();
  return storage;
}

CommBook& CommBook::Get() {
  static CommBook* const book = new CommBook;  // programs call in from exit handlers
  return *book;
}

CommPtr CommBook::Find(ncclComm_t visible) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = comms_.find(visible);
  return found == comms_.end() ? nullptr : found->second;
}

void CommBook::Add(const CommPtr& comm, ncclComm_t real) {
  comm->visible = libraries::AddHandle(real);
  std::lock_guard<std::mutex> lock(mutex);
  comm->real = real;
  comm->sequence = next_sequence_++;
  comms_[comm->visible] = comm;
}

void CommBook::Remove(const CommPtr& comm) {
  std::lock_guard<std::mutex> lock(mutex);
  comms_.erase(comm->visible);
  const bool last = std::none_of(comms_.begin(), comms_.end(), [&comm](const auto& entry) {
    return entry.second->clique_key == comm->clique_key;
  });
  if (last) ranks_.erase(comm->clique_key);
}

std::vector<CommPtr> CommBook::All() {
  std::vector<CommPtr> all;
  std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [visible, comm] : comms_) all.push_back(comm);
  std::sort(all.begin(), all.end(),
            [](const CommPtr& a, const CommPtr& b) { return a->sequence < b->sequence; });
  return all;
}

int CommBook::RanksEver(uint64_t clique_key) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = ranks_.find(clique_key);
  return found == ranks_.end() ? 0 : static_cast<int>(found->second.size());
}

void CommBook::NoteRank(const CommPtr& comm) {
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<int>& ranks = ranks_[comm->clique_key];
  if (std::find(ranks.begin(), ranks.end(), comm->rank) == ranks.end()) ranks.push_back(comm->rank);
}

uint64_t CliqueKey(const ncclUniqueId* ids, int count) {
  Hash hash;
  hash.Add(ids, sizeof *ids * static_cast<size_t>(count));
  return hash.value();
}

uint64_t CliqueKey(uint64_t parent, const char* how, uint32_t number, int color) {
  return CliqueKey(parent, how, number, std::vector<int>{color});
}

uint64_t CliqueKey(uint64_t parent, const char* how, uint32_t number, const std::vector<int>& ranks) {
  Hash hash;
  hash.Add(&parent, sizeof parent);
  hash.Add(how, std::strlen(how));
  hash.Add(&number, sizeof number);
  hash.Add(ranks.data(), ranks.size() * sizeof(int));
  return hash.value();
}

}  // namespace stasis::nccl

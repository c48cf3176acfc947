#include "dedup/store_index.h"

#include <bit>
#include <utility>

namespace stasis {

void StoreIndex::Add(uint64_t pack, std::vector<PackEntry> entries) {
  if (Has(pack)) return;
  for (const PackEntry& entry : entries) {
    ++counts_.chunks;
    counts_.raw_bytes += entry.raw_size;
    counts_.stored_bytes += kRecordHeaderBytes + entry.stored_size;
  }
  const size_t need = used_ + entries.size();
  by_id_[pack] = static_cast<uint32_t>(packs_.size());
  packs_.push_back({pack, true, std::move(entries)});
  if (need * 4 > slots_.size() * 3) {
    Rebuild(need);
  } else {
    Insert(static_cast<uint32_t>(packs_.size() - 1));
  }
}

void StoreIndex::Remove(uint64_t pack) {
  auto found = by_id_.find(pack);
  if (found == by_id_.end()) return;
  Pack& gone = packs_[found->second];
  for (const PackEntry& entry : gone.entries) {
    --counts_.chunks;
    counts_.raw_bytes -= entry.raw_size;
    counts_.stored_bytes -= kRecordHeaderBytes + entry.stored_size;
  }
  // Its slots stay as stones that a search steps over until the table is built again.
  gone.present = false;
  gone.entries = {};
  by_id_.erase(found);
}

std::vector<uint64_t> StoreIndex::Packs() const {
  std::vector<uint64_t> ids;
  for (const auto& [id, at] : by_id_) ids.push_back(id);
  return ids;
}

std::span<const PackEntry> StoreIndex::Entries(uint64_t pack) const {
  auto found = by_id_.find(pack);
  if (found == by_id_.end()) return {};
  return packs_[found->second].entries;
}

std::vector<ChunkPlace> StoreIndex::Find(const Hash128& hash) const {
  std::vector<ChunkPlace> places;
  if (slots_.empty()) return places;
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash.low & mask; slots_[at].pack != kFree; at = (at + 1) & mask) {
    const Pack& pack = packs_[slots_[at].pack];
    if (!pack.present) continue;
    const PackEntry& entry = pack.entries[slots_[at].entry];
    if (entry.hash == hash) places.push_back({pack.id, entry});
  }
  return places;
}

void StoreIndex::Insert(uint32_t pack) {
  const size_t mask = slots_.size() - 1;
  const std::vector<PackEntry>& entries = packs_[pack].entries;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    size_t at = entries[i].hash.low & mask;
    while (slots_[at].pack != kFree) at = (at + 1) & mask;
    slots_[at] = {pack, i};
  }
  used_ += entries.size();
}

void StoreIndex::Rebuild(size_t entries) {
  std::erase_if(packs_, [](const Pack& pack) { return !pack.present; });
  slots_.assign(std::bit_ceil(entries * 2 + 16), Slot());
  used_ = 0;
  for (uint32_t pack = 0; pack < packs_.size(); ++pack) {
    by_id_[packs_[pack].id] = pack;
    Insert(pack);
  }
}

}  // namespace stasis

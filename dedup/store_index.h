// Where each chunk is: hash -> places in packs, in memory. A chunk may be in several packs. Some 45 bytes for
// each: what the packs' indexes say, as it is, and a hash table of positions in them.
// Not thread-safe.
#ifndef DEDUP_STORE_INDEX_H_
#define DEDUP_STORE_INDEX_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "dedup/pack.h"
#include "dedup/store.h"

namespace stasis {

struct ChunkPlace {
  uint64_t pack = 0;
  PackEntry entry;
};

class StoreIndex {
 public:
  // A pack that is there already stays as it is.
  void Add(uint64_t pack, std::vector<PackEntry> entries);
  void Remove(uint64_t pack);
  bool Has(uint64_t pack) const { return by_id_.contains(pack); }
  std::vector<uint64_t> Packs() const;
  // Empty for a pack that is not there. Valid until the next change.
  std::span<const PackEntry> Entries(uint64_t pack) const;
  std::vector<ChunkPlace> Find(const Hash128& hash) const;
  StoreCounts counts() const { return counts_; }

 private:
  struct Pack {
    uint64_t id = 0;
    bool present = false;
    std::vector<PackEntry> entries;
  };
  struct Slot {
    uint32_t pack = kFree;  // in packs_
    uint32_t entry = 0;
  };
  static constexpr uint32_t kFree = UINT32_MAX;

  void Insert(uint32_t pack);
  void Rebuild(size_t entries);

  std::vector<Pack> packs_;
  std::map<uint64_t, uint32_t> by_id_;  // those that are present
  std::vector<Slot> slots_;             // a power of two of them; linear probing
  size_t used_ = 0;                     // slots, those of packs that went included
  StoreCounts counts_;
};

}  // namespace stasis

#endif  // DEDUP_STORE_INDEX_H_

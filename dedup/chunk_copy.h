// Reading one copy of a chunk, wherever it lies, and believing nothing unchecked.
#ifndef DEDUP_CHUNK_COPY_H_
#define DEDUP_CHUNK_COPY_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "dedup/pack.h"
#include "dedup/store_core.h"
#include "dedup/store_index.h"

namespace stasis {

// The key of the pack, asked for when a chunk is encrypted; null: it has none.
using KeySource = std::function<Result<std::shared_ptr<const DataKey>>()>;

// `record` is what a pack holds at `place`, header and bytes; `out` is as long as the chunk, and gets it.
// kCorrupt names file and offset.
Status CheckRecord(const ChunkPlace& place, const Hash128& hash, std::span<const std::byte> record,
                   const KeySource& key, std::span<std::byte> out);
// The same of what is at `place` in `pack`.
Status ReadChunk(const StoreFile& pack, const ChunkPlace& place, const Hash128& hash, const KeySource& key,
                 std::span<std::byte> out);
// The record itself, without what it may be encrypted with. `out` gets the chunk.
Result<std::vector<std::byte>> ReadRecord(const StoreFile& pack, const ChunkPlace& place, const Hash128& hash,
                                          const KeySource& key, std::span<std::byte> out);
// The record as it is, checked as far as it can be without a key.
Result<std::vector<std::byte>> ReadStored(const StoreFile& pack, const ChunkPlace& place);

}  // namespace stasis

#endif  // DEDUP_CHUNK_COPY_H_

// Reading one copy of a chunk, wherever it lies, and believing nothing unchecked.
#ifndef DEDUP_CHUNK_COPY_H_
#define DEDUP_CHUNK_COPY_H_

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "dedup/pack.h"
#include "dedup/store_core.h"
#include "dedup/store_index.h"

namespace stasis {

// `record` is what a pack holds at `place`, header and bytes; `out` is as long as the chunk. kCorrupt names
// file and offset.
Status CheckRecord(const ChunkPlace& place, const Hash128& hash, std::span<const std::byte> record,
                   std::span<std::byte> out);
// What is at `place` in `pack`, header and bytes, checked; `out` gets the chunk.
Result<std::vector<std::byte>> ReadRecord(const StoreFile& pack, const ChunkPlace& place, const Hash128& hash,
                                          std::span<std::byte> out);

}  // namespace stasis

#endif  // DEDUP_CHUNK_COPY_H_

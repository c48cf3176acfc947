// Unique ids that the program has got and no communicator was made of yet. A pause waits for them to be used,
// here or in another process: the library's side of an id (a listening socket, a thread) cannot be made again
// under the same number.
// Thread-safe.
#ifndef INTERCEPT_LIBRARIES_NCCL_IDS_H_
#define INTERCEPT_LIBRARIES_NCCL_IDS_H_

#include <nccl.h>

#include <cstdint>
#include <vector>

namespace stasis::nccl {

void NoteIdMade(const ncclUniqueId& id);
// A communicator was made of them, or not: they are of no use any more.
void NoteIdsUsed(const ncclUniqueId* ids, int count);
// Of `keys`, those of ids that other processes have given out and a communicator was made of here.
std::vector<uint64_t> UsedAmong(const std::vector<uint64_t>& keys);
// Communicators were made of these in other processes.
void NoteUsedElsewhere(const std::vector<uint64_t>& keys);
// In the child, where another thread may have held the lock.
void ResetIdsAfterFork();
// The key of a communicator that has no id.
uint64_t LocalKey();

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_IDS_H_

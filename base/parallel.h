// The same work on many pieces, on a few threads.
#ifndef BASE_PARALLEL_H_
#define BASE_PARALLEL_H_

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace stasis {

// Threads worth using for work that copies and hashes memory on this machine.
size_t CopyThreads();
// Calls work(index, worker) once for each index below `count`, on at most `threads` threads, the caller's
// among them; worker is below `threads`. After the first error no further index is started; that error is
// returned.
Status ParallelFor(size_t count, size_t threads, const std::function<Status(size_t, size_t)>& work);

}  // namespace stasis

#endif  // BASE_PARALLEL_H_

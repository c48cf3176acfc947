// NCCL's part of a pause (library.h): the cut (nccl_ledger.h) and the communicators (nccl_cliques.h).
#ifndef INTERCEPT_LIBRARIES_NCCL_LIBRARY_H_
#define INTERCEPT_LIBRARIES_NCCL_LIBRARY_H_

namespace stasis::nccl {

// Makes NCCL known to the pause; free after its first time. Any thread.
void EnsureRegistered();

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_LIBRARY_H_

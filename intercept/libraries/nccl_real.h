// NCCL's own functions, for what the interposer asks of the library itself.
#ifndef INTERCEPT_LIBRARIES_NCCL_REAL_H_
#define INTERCEPT_LIBRARIES_NCCL_REAL_H_

#include <nccl.h>

#include "intercept/libraries/real_functions.h"

namespace stasis::nccl {

#define STASIS_NCCL_FUNCTIONS(X) \
  X(ncclCommAbort)               \
  X(ncclCommCount)               \
  X(ncclCommCuDevice)            \
  X(ncclCommDestroy)             \
  X(ncclCommFinalize)            \
  X(ncclCommGetAsyncError)       \
  X(ncclCommInitRank)            \
  X(ncclCommInitRankConfig)      \
  X(ncclCommRegister)            \
  X(ncclCommUserRank)            \
  X(ncclCommWindowRegister)      \
  X(ncclGetLastError)            \
  X(ncclGetUniqueId)             \
  X(ncclGroupEnd)                \
  X(ncclGroupStart)              \
  X(ncclRedOpCreatePreMulSum)

// Never null once the program has made a communicator.
struct RealNccl {
#define STASIS_NCCL_MEMBER(name) decltype(&::name) name;
  STASIS_NCCL_FUNCTIONS(STASIS_NCCL_MEMBER)
#undef STASIS_NCCL_MEMBER
};

inline const RealNccl& Real() {
  static const RealNccl* const real = new RealNccl{
#define STASIS_NCCL_ADDRESS(name) libraries::RealFunction<decltype(::name)>(libraries::LibraryFn::name),
      STASIS_NCCL_FUNCTIONS(STASIS_NCCL_ADDRESS)
#undef STASIS_NCCL_ADDRESS
  };
  return *real;
}

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_REAL_H_

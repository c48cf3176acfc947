// From the real driver's function pointers to our own wrappers, for cuGetProcAddress.
#ifndef INTERCEPT_PROC_ADDRESS_H_
#define INTERCEPT_PROC_ADDRESS_H_

#include "vmm/real_driver.h"

namespace stasis {

// The wrapper of exactly the variant that the real driver answered `real` for. Several names may share one
// address in a driver, and a driver may answer with an address that it exports under no name: then `symbol`,
// the CUDA version and the default-stream flavour decide. Null: no driver function of the headers that this
// library was built from.
void* WrapperFor(void* real, const char* symbol, int cuda_version, bool per_thread);
void* WrapperOf(Fn function);

// What the generated table says of a function.
struct FunctionInfo {
  const char* name;
  const char* base;     // what cuGetProcAddress calls it
  const char* variant;  // "", "_ptsz" or "_ptds"
  const char* how;      // the class of its row in a table
  int version;          // of CUDA, that introduced it
};
const FunctionInfo& InfoOf(Fn function);

}  // namespace stasis

#endif  // INTERCEPT_PROC_ADDRESS_H_

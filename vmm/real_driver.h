// The real CUDA driver below us: opened by its absolute path, reached through a table of typed pointers.
//
// One driver a process. Open() and Close() are for one thread at a time, while no other thread is inside a
// driver function (the gate of the interposer sees to that); calls through Driver() need no lock. A function
// that this driver lacks answers CUDA_ERROR_NOT_FOUND, so a pointer in the table is never null once Open()
// has been called.
#ifndef VMM_REAL_DRIVER_H_
#define VMM_REAL_DRIVER_H_

#include <cuda.h>
#include <cudaProfiler.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace stasis {

struct DriverFunctions {
#define STASIS_DRIVER_FUNCTION(name) decltype(&::name) name;
#include "driver_functions.inc"
#undef STASIS_DRIVER_FUNCTION
};

// Every driver function of the toolkit's headers, by its exact exported name (Fn::cuMemAlloc_v2).
enum class Fn : uint16_t {
#define STASIS_DRIVER_FUNCTION(name) name,
#include "driver_functions.inc"
#undef STASIS_DRIVER_FUNCTION
};
inline constexpr size_t kFnCount = sizeof(DriverFunctions) / sizeof(void*);

// The exported name, e.g. "cuMemAlloc_v2". Valid for the life of the process.
const char* FnName(Fn function);
// The function of that exact name in the table's order; false when there is none.
bool FindFn(const char* name, Fn* function);

namespace internal {
extern DriverFunctions g_driver;
}  // namespace internal

// The real driver's functions. Every pointer is valid from the first OpenDriver() on, also after a failed one
// and after CloseDriver(), when all of them answer CUDA_ERROR_NOT_FOUND.
inline const DriverFunctions& Driver() { return internal::g_driver; }
// The entry of `function` in the table, untyped; null when the open driver lacks it, or none is open.
void* DriverAddress(Fn function);

// Opens the library at the absolute path `path`. kNotFound: no such file, or not a CUDA driver; the message
// has the loader's text. The library's own calls are not bound to our exports.
Status OpenDriver(const std::string& path);
// Closes it. NVIDIA's library stays in memory nevertheless: threads of its own run in it once it was
// initialised. What is left behind in the process is the business of the residue check.
void CloseDriver();
// Whether the file at `path` is NVIDIA's driver, which is named after its version: libcuda.so.580.65.06.
bool IsNvidiaDriver(const std::string& path);
bool DriverIsOpen();
// The path it was opened by; empty when none is open.
const std::string& DriverPath();

// "cuMemMap: CUDA_ERROR_INVALID_VALUE (1)"; OK for CUDA_SUCCESS. kResourceExhausted for
// CUDA_ERROR_OUT_OF_MEMORY, kFailedPrecondition for CUDA_ERROR_DEINITIALIZED (the process is ending), else
// kDriver. Falls back on the bare number when the driver has no name for it.
Status DriverStatus(CUresult result, const char* what);

}  // namespace stasis

#endif  // VMM_REAL_DRIVER_H_

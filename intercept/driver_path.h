// Where the real libcuda.so.1 is.
#ifndef INTERCEPT_DRIVER_PATH_H_
#define INTERCEPT_DRIVER_PATH_H_

#include <string>

namespace stasis {

// What the launcher says; else the first libcuda.so.1 of LD_LIBRARY_PATH and of the system's usual folders
// that is not this library itself. Empty: there is none.
std::string FindDriverPath();

}  // namespace stasis

#endif  // INTERCEPT_DRIVER_PATH_H_

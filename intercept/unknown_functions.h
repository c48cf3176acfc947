// Functions of a driver that is newer than this library: there is no wrapper of them, and nobody here knows
// their arguments.
#ifndef INTERCEPT_UNKNOWN_FUNCTIONS_H_
#define INTERCEPT_UNKNOWN_FUNCTIONS_H_

namespace stasis {

// The address to give the program for `real`, the driver's function of that name: code that notes the first
// call as a taint for every strategy, waits where the gate is closed, and goes on to `real` with the
// arguments as they are. Runtimes ask for the addresses of all functions that they know and call few of them.
// `real` itself, and the taint, when there is no room for one more. Thread-safe.
void* UnknownFunction(const char* name, void* real);

// For a child after fork(2): it has called none.
void ResetUnknownFunctionsAfterFork();

}  // namespace stasis

#endif  // INTERCEPT_UNKNOWN_FUNCTIONS_H_

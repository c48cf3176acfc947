// NVML, which a program may use to watch its devices: it holds the driver's device files open, and no dump
// can carry those. A driver with a checkpoint of its own closes them by itself; where they are open still,
// NVML is shut down for the dump as often as the program has initialised it, and initialised as often again
// afterwards. NVML keeps its handles of devices; what else it gave out (sets of events) ends.
// Control thread only.
#ifndef INTERCEPT_NVML_H_
#define INTERCEPT_NVML_H_

namespace stasis {

// Shuts NVML down if the process has it loaded and initialised. Between the two calls of this header the
// program's own calls are answered NVML_ERROR_UNINITIALIZED.
void LetGoOfNvml();
// Undoes LetGoOfNvml(). What fails is in the log: the program finds NVML as on a machine without a driver.
void TakeUpNvml();

}  // namespace stasis

#endif  // INTERCEPT_NVML_H_

// The driver's device files in a forked child, to which they are of no use: the driver does not work there,
// and no dump can carry them.
#ifndef INTERCEPT_DEVICE_FILES_H_
#define INTERCEPT_DEVICE_FILES_H_

namespace stasis {

inline constexpr char kDeviceFiles[] = "/dev/nvidia";

// For a child after fork(2), while it has one thread: every mapping of a file whose path begins with `prefix`
// becomes memory of its own, with the same access, and every descriptor of one becomes one of /dev/null. So
// the exit handlers of the driver, which run in the child too, find their numbers and addresses as they left
// them, and reach no device. Async-signal-safe.
void DropDeviceFiles(const char* prefix = kDeviceFiles);

}  // namespace stasis

#endif  // INTERCEPT_DEVICE_FILES_H_

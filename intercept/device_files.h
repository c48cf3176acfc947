// The driver's device files, which no dump can carry: in a process that is to be dumped, and in a forked
// child, to which they are of no use as the driver does not work there.
#ifndef INTERCEPT_DEVICE_FILES_H_
#define INTERCEPT_DEVICE_FILES_H_

namespace stasis {

inline constexpr char kDeviceFiles[] = "/dev/nvidia";

// For a child after fork(2), while it has one thread: every mapping of a file whose path begins with `prefix`
// becomes memory of its own, with the same access, and every descriptor of one becomes one of /dev/null. So
// the exit handlers of the driver, which run in the child too, find their numbers and addresses as they left
// them, and reach no device. Async-signal-safe.
void DropDeviceFiles(const char* prefix = kDeviceFiles);
// Whether this process has such a file open or mapped.
bool HoldsDeviceFiles(const char* prefix = kDeviceFiles);

}  // namespace stasis

#endif  // INTERCEPT_DEVICE_FILES_H_

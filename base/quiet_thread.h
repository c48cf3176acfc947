// Threads beside those of the program's own business.
#ifndef BASE_QUIET_THREAD_H_
#define BASE_QUIET_THREAD_H_

#include <functional>
#include <thread>

namespace stasis {

// A thread that takes no signals of the process's: they are for those who wait for them.
std::thread StartQuietThread(std::function<void()> work);

}  // namespace stasis

#endif  // BASE_QUIET_THREAD_H_

// What a daemon tells the service manager that has started it (sd_notify(3)).
#ifndef BASE_SERVICE_MANAGER_H_
#define BASE_SERVICE_MANAGER_H_

#include <string_view>

namespace stasis {

// "READY=1", "STOPPING=1". Nothing happens where nobody listens ($NOTIFY_SOCKET).
void TellServiceManager(std::string_view state);

}  // namespace stasis

#endif  // BASE_SERVICE_MANAGER_H_

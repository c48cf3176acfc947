// Whether this process is in a user namespace other than the machine's first one: its root is not that of the
// machine then (user_namespaces(7)).
#ifndef BASE_USER_NAMESPACE_H_
#define BASE_USER_NAMESPACE_H_

#include <string>

namespace stasis {

// Whether a /proc/PID/uid_map is that of the first one.
bool IsWholeIdMap(const std::string& map);
// No where the kernel does not tell.
bool InUserNamespace();

}  // namespace stasis

#endif  // BASE_USER_NAMESPACE_H_

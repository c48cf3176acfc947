// Lists of KEY=VALUE, as execve(2) takes them. Thread-safe as long as nobody changes this process's
// environment.
#ifndef BASE_ENVIRONMENT_H_
#define BASE_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace stasis {

// This process's environment.
std::vector<std::string> OwnEnvironment();

// `base` with `changes` (KEY=VALUE) replacing or adding; a bare KEY removes.
std::vector<std::string> ChangeEnvironment(std::vector<std::string> base,
                                           const std::vector<std::string>& changes);

// This process's environment without LD_* (what steers a user's loader is not for our helpers), with
// `changes` on top.
std::vector<std::string> EnvironmentWithoutLoader(const std::vector<std::string>& changes);

// The value of `key` in a list of KEY=VALUE, or "".
std::string EnvironmentValue(const std::vector<std::string>& environment, const std::string& key);

// For execve: pointers into `texts`, then null.
std::vector<char*> PointersOf(const std::vector<std::string>& texts);

}  // namespace stasis

#endif  // BASE_ENVIRONMENT_H_

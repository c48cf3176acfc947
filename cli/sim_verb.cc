#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace stasis {

int SimVerb(const Options& options, Context& context) {
  const std::string& simulator = context.files.simulator;
  const Status there = RequireFile(simulator, X_OK, "the simulator");
  if (!there.ok()) return context.reporter.Fail(there);
  std::vector<char*> argv = {const_cast<char*>(simulator.c_str())};
  for (const std::string& argument : options.program) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(simulator.c_str(), argv.data());
  return context.reporter.Fail(ErrnoStatus(errno, "execute " + simulator));
}

}  // namespace stasis

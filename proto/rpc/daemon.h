// How a daemon of ours begins and ends, whichever it is: its command line, its log, the signals that end it.
#ifndef PROTO_RPC_DAEMON_H_
#define PROTO_RPC_DAEMON_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/log/log.h"
#include "base/status.h"

namespace CLI {
class App;
}

namespace stasis {

// What came of a command line.
struct ConfigOutcome {
  bool done = false;  // nothing is to be started
  int exit_code = 0;
  std::string text;  // to be printed: help, or what is wrong
};
// `interpret` looks at what the options have filled; its error is one of usage.
ConfigOutcome ParseCommandLine(CLI::App& app, const std::vector<std::string>& arguments,
                               const std::function<Status()>& interpret);
// Prints an outcome that is done; its exit code.
int PrintOutcome(const ConfigOutcome& outcome);

// Serves with everything in one log, gRPC's words included, and says there why it cannot go on.
Status RunDaemon(const char* component, LogLevel level, const std::function<Status()>& serve);

// SIGTERM and SIGINT, which end a daemon, and SIGHUP, which does not, taken by a descriptor from here on, in
// all threads made later, too: ignored they would be by the programs that it starts as well. SIGPIPE is
// ignored.
class EndSignals {
 public:
  static Result<EndSignals> Take();
  int fd() const { return fd_.get(); }  // readable when one has come
  // Waits for one: its number, 0 when it ends nothing.
  int Read() const;

 private:
  explicit EndSignals(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace stasis

#endif  // PROTO_RPC_DAEMON_H_

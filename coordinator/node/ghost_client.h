// The client's side of docs/ghost-protocol.md.
#ifndef COORDINATOR_NODE_GHOST_CLIENT_H_
#define COORDINATOR_NODE_GHOST_CLIENT_H_

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/message.h"
#include "base/status.h"
#include "coordinator/interrupt.h"
#include "coordinator/node/site.h"

namespace stasis {

class GhostClient {
 public:
  // Connects to the task's ghost, and starts one when nobody answers. kPermissionDenied: the ghost is
  // somebody else's.
  static Result<GhostClient> Connect(const TaskPaths& paths, const Site& site);

  using EventHandler = std::function<void(const Json&)>;
  // Sends the request and waits for its result, whether success or failure; see the protocol for both. While
  // waiting, a first interrupt asks the ghost to undo the operation, a second one is kCancelled:
  // the ghost goes on by itself. Any other error means that no result came.
  Result<Json> Call(const Json& request, Interrupt& interrupt, const EventHandler& on_event);

  // The ghost has taken the last Call()'s request; until it says so it has done nothing for it.
  bool taken() const { return taken_; }

  // Sends a request whose result nobody awaits.
  Status Send(const Json& request);

 private:
  explicit GhostClient(Fd socket) : socket_(std::move(socket)) {}
  Result<bool> TakeMessages(uint64_t id, const EventHandler& on_event, Json* result);

  Fd socket_;
  MessageDecoder decoder_;
  uint64_t next_id_ = 1;
  bool taken_ = false;
};

// Connect() and Call(). A ghost that ends before it has taken the request (it was killed, and its socket not
// yet gone) is no answer: the next one is asked.
Result<Json> AskGhost(const TaskPaths& paths, const Site& site, const Json& request, Interrupt& interrupt,
                      const GhostClient::EventHandler& on_event);

}  // namespace stasis

#endif  // COORDINATOR_NODE_GHOST_CLIENT_H_

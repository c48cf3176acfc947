// The connection to the ghost of one rank: requests and answers go out, what it tells comes in. Never blocks
// but in Connect().
//
// Not thread-safe.
#ifndef COORDINATOR_RANK_LINK_H_
#define COORDINATOR_RANK_LINK_H_

#include <cstdint>
#include <deque>
#include <optional>

#include "base/fd.h"
#include "base/message.h"
#include "base/status.h"
#include "coordinator/ghost_start.h"
#include "dedup/json.h"
#include "ghost/meet.h"

namespace stasis {

class RankLink {
 public:
  // Starts the ghost when none answers.
  static Result<RankLink> Connect(const GhostPlace& place);
  explicit RankLink(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  // Something waits for the socket to become writable.
  bool sending() const { return !outbox_.empty(); }

  // What a request asks for comes back in Arrival::request.
  Result<uint64_t> Ask(const Json& request);
  // To a question of request `request`.
  Status Answer(uint64_t request, const QuestionAnswer& answer);
  // Sends what the socket takes. kPeerDied: nobody is there.
  Status Flush();

  enum class Kind { kEvent, kQuestion, kResult };
  struct Arrival {
    Kind kind = Kind::kEvent;
    uint64_t request = 0;
    Json json;          // of an event or a result
    Question question;  // of a question
  };
  // The next message; nothing when none has come. kPeerDied: the connection has ended; kCorrupt: it has sent
  // what the protocol does not know.
  Result<std::optional<Arrival>> Next();

 private:
  Status Send(uint32_t type, uint64_t request, std::vector<std::byte> payload);

  Fd socket_;
  MessageDecoder decoder_;
  std::deque<MessageEncoder> outbox_;
  uint64_t next_request_ = 1;
};

}  // namespace stasis

#endif  // COORDINATOR_RANK_LINK_H_

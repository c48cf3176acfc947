// The decisions of a job as the ghost of one rank takes part in them: each question goes to the coordinator
// of the job, over the connection that the request came by (docs/ghost-protocol.md, "Jobs").
#ifndef GHOST_COORDINATION_REMOTE_H_
#define GHOST_COORDINATION_REMOTE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "ghost/coordination.h"
#include "ghost/meet.h"

namespace stasis {

// One operation's. Any thread may call anything.
class RemoteCoordination final : public Coordination {
 public:
  // Hands an encoded question to whoever sends it. Sent(number) or Lost() follows.
  using Send = std::function<void(uint32_t number, std::vector<std::byte> question)>;
  // What an answer may take beyond the deadline of its question.
  static constexpr std::chrono::seconds kGrace{10};
  // `patience`: with questions that have no deadline of their own.
  RemoteCoordination(Send send, Duration patience, Duration grace = kGrace)
      : send_(std::move(send)), patience_(patience), grace_(grace) {}

  Result<CutAnswer> Cut(const std::vector<CutReport>& mine, const Deadline& deadline) override;
  Status Vote(VotePoint point, const Deadline& deadline) override;
  Result<std::vector<CommId>> Join(const std::vector<CommReport>& mine, const Deadline& deadline) override;
  Result<std::vector<bool>> Claim(std::span<const Hash128> chunks) override;
  void Fail(const Status& status) override;
  bool lost() const override;

  // Called now and then by the thread that waits for the answer to a vote or a join. Before the first
  // question.
  void WhileWaiting(std::function<void()> often) { often_ = std::move(often); }

  // From whoever has the connection. The question is wholly on its way: it may be acted upon.
  void Sent(uint32_t number);
  // kCorrupt: no answer to any question that waits for one.
  Status Answered(QuestionAnswer answer);
  // The connection has ended.
  void Lost();
  // The operation is given up on request: tells so, once, and not on the way back. A question that waits goes
  // on waiting, since the coordinator may have answered it already.
  void Cancel();
  // The processes of this rank are gone: no question is asked for them any more, and the others hear of it.
  void TaskEnded();

 private:
  struct Waiting {
    QuestionKind kind = QuestionKind::kVote;
    bool sent = false;
    std::optional<QuestionAnswer> answer;
  };

  Result<QuestionAnswer> Ask(Question question, const Deadline& deadline);
  Result<std::vector<bool>> ClaimSome(std::span<const Hash128> chunks);
  Status AwaitAnswer(std::unique_lock<std::mutex>& lock, uint32_t number, const Deadline& deadline);
  void WaitSome(std::unique_lock<std::mutex>& lock, QuestionKind kind, Duration left);
  void Tell(std::unique_lock<std::mutex> lock, const Status& failure);

  const Send send_;
  const Duration patience_, grace_;
  std::function<void()> often_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t next_ = 1;
  std::map<uint32_t, Waiting> waiting_;
  bool lost_ = false;
  // The coordinator knows why this rank goes back: it has said so itself, or was told.
  bool known_ = false;
  bool going_back_ = false;
  bool ended_ = false;
};

}  // namespace stasis

#endif  // GHOST_COORDINATION_REMOTE_H_

// Questions of a rank's ghost to the coordinator of its job, and the answers: the payloads of messages 4 and
// 5 on the ghost's socket (docs/ghost-protocol.md, "Jobs"). message.request_id is that of the request.
#ifndef GHOST_MEET_H_
#define GHOST_MEET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rank_protocol.h"
#include "base/status.h"
#include "dedup/hash.h"
#include "ghost/coordination.h"

namespace stasis {

inline constexpr uint32_t kGhostQuestion = 4, kGhostAnswer = 5;
// Bytes of the payload of such a message.
inline constexpr uint32_t kMaxMeetPayload = 16u << 20;
// Chunks in one kClaim.
inline constexpr size_t kMaxClaim = 32768;

enum class QuestionKind : uint8_t { kCut = 0, kVote, kJoin, kClaim, kFail };

struct Question {
  uint32_t number = 0;  // the answer carries it back; kFail gets none
  QuestionKind kind = QuestionKind::kVote;
  std::vector<CutReport> cut;
  VotePoint point = VotePoint::kDrained;
  std::vector<CommReport> comms;
  std::vector<Hash128> chunks;
  Status failure;
};

struct QuestionAnswer {
  uint32_t number = 0;
  QuestionKind kind = QuestionKind::kVote;
  Status status;  // not OK: nothing else is set
  Coordination::CutAnswer cut;
  std::vector<CommId> ids;
  std::vector<bool> mine;  // as many as chunks
};

std::vector<std::byte> Encode(const Question& question);
std::vector<std::byte> Encode(const QuestionAnswer& answer);
// kCorrupt for anything that Encode() does not write.
Result<Question> DecodeQuestion(std::span<const std::byte> payload);
Result<QuestionAnswer> DecodeQuestionAnswer(std::span<const std::byte> payload);

}  // namespace stasis

#endif  // GHOST_MEET_H_

#include "ghost/meet.h"

#include "base/payload.h"

namespace stasis {
namespace {

// A report of thousands of communicators.
constexpr size_t kMaxReport = 8u << 20;
constexpr size_t kMaxText = 64u << 10;
constexpr uint8_t kLastKind = static_cast<uint8_t>(QuestionKind::kFail);
constexpr uint8_t kLastPoint = static_cast<uint8_t>(VotePoint::kJoined);
constexpr int32_t kLastCode = static_cast<int32_t>(StatusCode::kInternal);

// What cannot be said within the limit is cut off, not refused: a failure has to be told.
void WriteStatus(PayloadWriter& out, const Status& status) {
  out.I32(static_cast<int32_t>(status.code()));
  out.String(status.message().substr(0, kMaxText));
}

Status ReadStatus(PayloadReader& in, bool* sane) {
  const int32_t code = in.I32();
  std::string message = in.String(kMaxText);
  *sane = *sane && code >= 0 && code <= kLastCode && (code != 0 || message.empty());
  if (code <= 0 || code > kLastCode) return Status();
  return Status(static_cast<StatusCode>(code), std::move(message));
}

// The inner encoding of base/rank_protocol.h is its own business; what it would not have written is found by
// writing it again.
template <typename T>
void ReadInner(PayloadReader& in, Result<T> (*decode)(std::span<const std::byte>), T* value, bool* sane) {
  const std::vector<std::byte> bytes = in.Bytes(kMaxReport);
  if (!in.ok()) return;
  Result<T> decoded = decode(bytes);
  *sane = *sane && decoded.ok() && Encode(*decoded) == bytes;
  if (decoded.ok()) *value = *std::move(decoded);
}

void WriteIds(PayloadWriter& out, const std::vector<CommId>& ids) { out.Bytes(Encode(CommRejoin{0, ids})); }

void ReadIds(PayloadReader& in, std::vector<CommId>* ids, bool* sane) {
  CommRejoin rejoin;
  ReadInner(in, DecodeCommRejoin, &rejoin, sane);
  *sane = *sane && rejoin.deadline_ms == 0;
  *ids = std::move(rejoin.ids);
}

QuestionKind ReadKind(PayloadReader& in, bool* sane) {
  const uint8_t kind = in.U8();
  *sane = *sane && kind <= kLastKind;
  return static_cast<QuestionKind>(kind);
}

void ReadBody(PayloadReader& in, Question* question, bool* sane) {
  switch (question->kind) {
    case QuestionKind::kCut:
      question->cut.resize(in.Count(4));
      for (CutReport& report : question->cut) ReadInner(in, DecodeCutReport, &report, sane);
      return;
    case QuestionKind::kVote: {
      const uint8_t point = in.U8();
      *sane = *sane && point <= kLastPoint;
      question->point = static_cast<VotePoint>(point);
      return;
    }
    case QuestionKind::kJoin:
      return ReadInner(in, DecodeCommReports, &question->comms, sane);
    case QuestionKind::kClaim:
      question->chunks.resize(in.Count(16));
      *sane = *sane && question->chunks.size() <= kMaxClaim;
      for (Hash128& chunk : question->chunks) {
        chunk.high = in.U64();
        chunk.low = in.U64();
      }
      return;
    case QuestionKind::kFail:
      question->failure = ReadStatus(in, sane);
      *sane = *sane && !question->failure.ok();
      return;
  }
}

void ReadBody(PayloadReader& in, QuestionAnswer* answer, bool* sane) {
  switch (answer->kind) {
    case QuestionKind::kCut: {
      const uint8_t settled = in.U8();
      *sane = *sane && settled <= 1;
      answer->cut.settled = settled != 0;
      return ReadInner(in, DecodeCutTargets, &answer->cut.targets, sane);
    }
    case QuestionKind::kVote:
      return;
    case QuestionKind::kJoin:
      return ReadIds(in, &answer->ids, sane);
    case QuestionKind::kClaim:
      for (uint32_t n = in.Count(1); n > 0; --n) {
        const uint8_t mine = in.U8();
        *sane = *sane && mine <= 1;
        answer->mine.push_back(mine != 0);
      }
      *sane = *sane && answer->mine.size() <= kMaxClaim;
      return;
    case QuestionKind::kFail:
      *sane = false;  // nobody is answered that he has failed
      return;
  }
}

Status Finish(const PayloadReader& in, bool sane, const char* what) {
  RETURN_IF_ERROR(in.Finish().WithContext(what));
  return sane ? Status() : Status(StatusCode::kCorrupt, what + std::string(" that nobody can have written"));
}

}  // namespace

std::vector<std::byte> Encode(const Question& question) {
  PayloadWriter out;
  out.U32(question.number);
  out.U8(static_cast<uint8_t>(question.kind));
  switch (question.kind) {
    case QuestionKind::kCut:
      out.U32(static_cast<uint32_t>(question.cut.size()));
      for (const CutReport& report : question.cut) out.Bytes(Encode(report));
      break;
    case QuestionKind::kVote:
      out.U8(static_cast<uint8_t>(question.point));
      break;
    case QuestionKind::kJoin:
      out.Bytes(Encode(question.comms));
      break;
    case QuestionKind::kClaim:
      out.U32(static_cast<uint32_t>(question.chunks.size()));
      for (const Hash128& chunk : question.chunks) {
        out.U64(chunk.high);
        out.U64(chunk.low);
      }
      break;
    case QuestionKind::kFail:
      WriteStatus(out, question.failure);
      break;
  }
  return out.Take();
}

std::vector<std::byte> Encode(const QuestionAnswer& answer) {
  PayloadWriter out;
  out.U32(answer.number);
  out.U8(static_cast<uint8_t>(answer.kind));
  WriteStatus(out, answer.status);
  if (!answer.status.ok()) return out.Take();
  switch (answer.kind) {
    case QuestionKind::kCut:
      out.U8(answer.cut.settled);
      out.Bytes(Encode(answer.cut.targets));
      break;
    case QuestionKind::kJoin:
      WriteIds(out, answer.ids);
      break;
    case QuestionKind::kClaim:
      out.U32(static_cast<uint32_t>(answer.mine.size()));
      for (bool mine : answer.mine) out.U8(mine);
      break;
    case QuestionKind::kVote:
    case QuestionKind::kFail:
      break;
  }
  return out.Take();
}

Result<Question> DecodeQuestion(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  Question question;
  bool sane = true;
  question.number = in.U32();
  question.kind = ReadKind(in, &sane);
  if (sane && in.ok()) ReadBody(in, &question, &sane);
  RETURN_IF_ERROR(Finish(in, sane, "a rank's question"));
  return question;
}

Result<QuestionAnswer> DecodeQuestionAnswer(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  QuestionAnswer answer;
  bool sane = true;
  answer.number = in.U32();
  answer.kind = ReadKind(in, &sane);
  answer.status = ReadStatus(in, &sane);
  const bool fails = answer.kind == QuestionKind::kFail;
  if (sane && in.ok() && (answer.status.ok() || fails)) ReadBody(in, &answer, &sane);
  RETURN_IF_ERROR(Finish(in, sane, "an answer to a rank's question"));
  return answer;
}

}  // namespace stasis

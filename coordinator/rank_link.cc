#include "coordinator/rank_link.h"

namespace stasis {
namespace {

constexpr uint32_t kRequest = 1, kEvent = 2, kResult = 3;

Result<RankLink::Arrival> Understand(Message message) {
  RankLink::Arrival arrival;
  arrival.request = message.request_id;
  if (message.type == kGhostQuestion) {
    arrival.kind = RankLink::Kind::kQuestion;
    ASSIGN_OR_RETURN(arrival.question, DecodeQuestion(message.payload));
    return arrival;
  }
  if (message.type != kEvent && message.type != kResult) {
    return Errorf(StatusCode::kCorrupt, "a ghost has sent a message of the unknown type %u", message.type);
  }
  arrival.kind = message.type == kEvent ? RankLink::Kind::kEvent : RankLink::Kind::kResult;
  auto* text = reinterpret_cast<const char*>(message.payload.data());
  ASSIGN_OR_RETURN(arrival.json, ParseJsonObject(std::string_view(text, message.payload.size())));
  return arrival;
}

}  // namespace

Result<RankLink> RankLink::Connect(const GhostPlace& place) {
  ASSIGN_OR_RETURN(Fd socket, ReachGhost(place));
  return RankLink(std::move(socket));
}

Status RankLink::Send(uint32_t type, uint64_t request, std::vector<std::byte> payload) {
  Message message;
  message.type = type;
  message.request_id = request;
  message.payload = std::move(payload);
  ASSIGN_OR_RETURN(MessageEncoder encoder, MessageEncoder::Create(std::move(message)));
  outbox_.push_back(std::move(encoder));
  return Flush();
}

Result<uint64_t> RankLink::Ask(const Json& request) {
  std::string text = JsonText(request);
  auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  RETURN_IF_ERROR(Send(kRequest, next_request_, std::vector<std::byte>(bytes, bytes + text.size())));
  return next_request_++;
}

Status RankLink::Answer(uint64_t request, const QuestionAnswer& answer) {
  return Send(kGhostAnswer, request, Encode(answer));
}

Status RankLink::Flush() {
  while (!outbox_.empty()) {
    ASSIGN_OR_RETURN(bool sent, outbox_.front().Send(socket_.get()));
    if (!sent) return Status();
    outbox_.pop_front();
  }
  return Status();
}

Result<std::optional<RankLink::Arrival>> RankLink::Next() {
  ASSIGN_OR_RETURN(bool complete, ReceiveSome(socket_.get(), decoder_));
  if (!complete) return std::optional<Arrival>();
  ASSIGN_OR_RETURN(Arrival arrival, Understand(decoder_.Take()));
  return std::optional<Arrival>(std::move(arrival));
}

}  // namespace stasis

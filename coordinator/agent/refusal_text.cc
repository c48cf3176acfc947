#include "coordinator/agent/refusal_text.h"

namespace stasis {

std::string RefusalText(const v1::OfferReply& reply) {
  std::string text;
  for (const v1::Refusal& refusal : reply.refused()) {
    if (!text.empty()) text += "; ";
    text += refusal.what() + ": " + refusal.needed() + " is needed";
    if (!refusal.here().empty()) text += ", and there is: " + refusal.here();
  }
  return text;
}

}  // namespace stasis

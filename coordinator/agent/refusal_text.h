// Why a target does not take what it was offered, for people.
#ifndef COORDINATOR_AGENT_REFUSAL_TEXT_H_
#define COORDINATOR_AGENT_REFUSAL_TEXT_H_

#include <string>

#include "stasis/v1/peer.pb.h"

namespace stasis {

// All reasons of it.
std::string RefusalText(const v1::OfferReply& reply);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_REFUSAL_TEXT_H_

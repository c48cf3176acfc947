// Rules of the kernel's packet filter, by libnftables, which CRIU needs for the same purpose. It is opened
// when it is first used, so that a ghost that never meets a TCP connection does without. Thread-safe.
#ifndef GHOST_NFTABLES_H_
#define GHOST_NFTABLES_H_

#include <string>

#include "base/status.h"

namespace stasis {

// Runs commands of nft(8), one a line, all or none of them, in the network namespace of the caller.
// kUnsupported when the library is missing; else kInternal with what nft says.
Status RunNftables(const std::string& commands);

}  // namespace stasis

#endif  // GHOST_NFTABLES_H_

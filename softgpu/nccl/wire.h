// What ranks say to each other while a communicator is made. Fixed structures of one byte order: all ranks
// run the same library on machines of the same kind. Everything that arrives is checked before it is used.
#ifndef SOFTGPU_NCCL_WIRE_H_
#define SOFTGPU_NCCL_WIRE_H_

#include <nccl.h>

#include <cstdint>
#include <type_traits>

namespace softgpu::nccl {

inline constexpr uint64_t kMagic = 0x3143434e47464f53;  // "SOFGNCC1"
inline constexpr int kMaxRanks = 4096;

// An IPv4 address and port, both in network order.
struct Address {
  uint32_t ip = 0;
  uint16_t port = 0;
  uint16_t unused = 0;
};

// The contents of a ncclUniqueId: where the ranks meet, and the number that shows they were invited.
struct MeetingId {
  uint64_t magic = kMagic;
  uint64_t secret = 0;
  Address address;
};
static_assert(sizeof(MeetingId) <= NCCL_UNIQUE_ID_BYTES && std::is_trivially_copyable_v<MeetingId>);

// What a rank tells the others of itself.
struct PeerInfo {
  uint64_t process[2] = {};  // the same for ranks of one process
  uint64_t node = 0;         // the same for ranks of one softgpu node
  uint8_t device[16] = {};   // the device's UUID
  Address address;           // where it listens for TCP
  char local_name[24] = {};  // and its abstract unix socket, without the leading NUL
  int32_t ordinal = 0;       // of the device in its process, for messages
  int32_t color = 0;         // of a split
  int32_t key = 0;
  int32_t unused = 0;
};

enum class GreetingKind : uint32_t {
  kJoin = 1,  // to the meeting: here is a rank
  kLink,      // from a rank to a lower one: the connection for `channel`
};

// What a connection is for: link channels are Channel, and this one.
inline constexpr uint32_t kControlChannel = 2;
inline constexpr uint32_t kLinkChannels = 3;

// The first bytes of every connection.
struct Greeting {
  uint64_t magic = kMagic;
  uint64_t secret = 0;
  GreetingKind kind = GreetingKind::kJoin;
  uint32_t ranks = 0;
  uint32_t rank = 0;
  uint32_t channel = 0;
  PeerInfo info;
};
static_assert(std::is_trivially_copyable_v<Greeting>);

// The answer to kJoin; `ranks` PeerInfo follow when the result is ncclSuccess.
struct Table {
  uint64_t magic = kMagic;
  uint64_t secret = 0;  // of the new communicator
  uint32_t ranks = 0;
  int32_t result = ncclSuccess;
};

// The answer to kLink; on a unix socket the inbox' descriptor comes with it.
struct Welcome {
  uint64_t magic = kMagic;
  uint64_t secret = 0;
};

// Bytes on the control connection of a link.
inline constexpr char kGoodbye = 'G';  // destroyed in good order; nothing follows
inline constexpr char kFailed = 'F';   // the rank found an error and does no more

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_WIRE_H_

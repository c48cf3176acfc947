// What the processes of a job tell each other, through their ghosts and the job's coordinator, about the NCCL
// communicators that they have in common.
//
// A rank that stands still in front of a collective that another rank has issued keeps the device of that one
// busy for ever. So a pause looks for the cut: a place in every rank's program where, for each communicator,
// all ranks have issued the same number of collectives and each send has its receive. CutReports go up,
// CutTargets come down, in rounds, until nothing is missing; then the devices drain. The communicators are
// given up and later made again with unique ids that the process of rank 0 has made.
//
// Communicators whose ranks are all in one process are that process's own business and are in none of this.
#ifndef BASE_RANK_PROTOCOL_H_
#define BASE_RANK_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis {

// The key of a communicator: the same in every process that has a rank of it.
using CommKey = uint64_t;

// What one rank has issued, or has to issue, since its communicator was made. The keys of the maps are the
// peers' ranks.
struct RankCounts {
  uint64_t collectives = 0;
  std::map<int32_t, uint64_t> sends;
  std::map<int32_t, uint64_t> receives;
  bool operator==(const RankCounts&) const = default;
};

struct RankReport {
  CommKey comm = 0;
  int32_t size = 0;  // ranks of the communicator, wherever they are
  int32_t rank = 0;
  std::string made_by;  // the call, for messages
  RankCounts issued;
  // It has ended, failed or was aborted: nobody waits for it any more. Reported once CutTargets have named
  // the communicator.
  bool over = false;
  uint32_t windows = 0;  // registered now; a communicator whose ranks differ in that cannot be made again
};

struct CutReport {
  // Nobody is inside of NCCL, no group is open, and every rank here has issued what the targets ask for.
  bool settled = false;
  // Differs from the last report's when anything has moved in the process.
  uint32_t events = 0;
  std::vector<RankReport> ranks;
  // Communicators that calls of this process are making or ending, or whose unique id it has given out.
  std::vector<CommKey> meetings;
  // A call of this process makes a communicator whose key cannot be told yet.
  bool making = false;
  // Of the meetings in the targets: unique ids of other processes that this one has made a communicator of.
  std::vector<CommKey> used;
  // What this process waits for, in words.
  std::vector<TaskBlocker> missing;
};

struct RankTarget {
  CommKey comm = 0;
  int32_t rank = 0;
  RankCounts issued;
};

struct CutTargets {
  std::vector<RankTarget> ranks;  // of any process; those of others are passed over
  // What the other processes have open: held calls that take part in it go on.
  std::vector<CommKey> meetings;
  bool making = false;
  // Unique ids that were given out and have been used: their meetings are over.
  std::vector<CommKey> used;
  // Some ranks of these have ended theirs: the other ranks' calls that end it go on, and what is left of it
  // is not made again.
  std::vector<CommKey> ended;
  // Nothing has moved anywhere for a while: every held call goes on once, as one may wait for another.
  bool admit_all = false;
};

// kCut: one round.
struct TaskCut {
  uint32_t deadline_ms = 0;
  uint32_t quiet_ms = 0;  // without movement; then it comes back before the deadline
  CutTargets targets;
};

// The communicators that have to be made again.
struct CommReport {
  CommKey comm = 0;
  int32_t size = 0;
  std::string made_by;
  std::vector<int32_t> ranks;  // here, ascending
  std::string id;              // 128 bytes, fresh, from the process of rank 0; elsewhere empty
};

struct CommId {
  CommKey comm = 0;
  std::string id;  // 128 bytes
};
inline constexpr size_t kCommIdBytes = 128;

// kRejoin: communicators without an id here are not made again.
struct CommRejoin {
  uint32_t deadline_ms = 0;  // for making all of them
  std::vector<CommId> ids;
};

// Encoding; each Decode checks every bound and fails with kCorrupt.
std::vector<std::byte> Encode(const CutReport& report);
std::vector<std::byte> Encode(const CutTargets& targets);
std::vector<std::byte> Encode(const TaskCut& cut);
std::vector<std::byte> Encode(const std::vector<CommReport>& comms);
std::vector<std::byte> Encode(const CommRejoin& rejoin);
Result<CutReport> DecodeCutReport(std::span<const std::byte> payload);
Result<CutTargets> DecodeCutTargets(std::span<const std::byte> payload);
Result<TaskCut> DecodeTaskCut(std::span<const std::byte> payload);
Result<std::vector<CommReport>> DecodeCommReports(std::span<const std::byte> payload);
Result<CommRejoin> DecodeCommRejoin(std::span<const std::byte> payload);

}  // namespace stasis

#endif  // BASE_RANK_PROTOCOL_H_

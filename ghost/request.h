// What a client may ask for (docs/ghost-protocol.md), and the answer.
#ifndef GHOST_REQUEST_H_
#define GHOST_REQUEST_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "dedup/json.h"
#include "ghost/blockers.h"
#include "ghost/device_hash.h"
#include "ghost/holdings.h"
#include "ghost/snapshot.h"
#include "ghost/task_config.h"

namespace stasis {

enum class Verb : int { kStatus = 0, kPause, kResume, kCheckpoint, kRestore, kMigrate, kCancel };
const char* VerbName(Verb verb);

// A rank of a job that is restored on this node: its task, and the image of it.
struct RestorePeer {
  std::string task;
  std::string image;
  bool operator==(const RestorePeer&) const = default;
};
inline constexpr size_t kMaxPeers = 256;

// How the ranks of a job come to rest: at a cut that they agree on, or wherever each is by the deadline.
enum class PauseProtocol : int { kCut = 0, kTimeout };
// What becomes of a rank that does not know what the others were told.
enum class InDoubt : int { kNone = 0, kGoOn, kGiveUp };

struct Request {
  Verb verb = Verb::kStatus;
  Duration deadline = std::chrono::seconds(30);
  Residency residency = Residency::kDevice;
  bool freeze = true;
  bool stop = false;
  Duration wait_low{};  // how long the lowest point of active memory may be waited for
  SnapshotMode snapshot = SnapshotMode::kAuto;
  unsigned snapshot_host_percent = 50;  // of this machine's free memory
  DeviceHashMode device_hash = DeviceHashMode::kAuto;
  std::string image;
  std::vector<RestorePeer> peers;  // of kRestore: all of this node, this task among them, or none
  std::vector<int> gpus;
  bool whole_task = true;  // of kCancel
  Duration grace = std::chrono::seconds(5);
  std::string operation;       // what the sender knows this by; empty: nothing
  std::optional<JobRank> job;  // set: the sender is the job's coordinator and answers questions
  PauseProtocol pause_protocol = PauseProtocol::kCut;
  Duration patience = std::chrono::minutes(10);  // with questions that have no deadline of their own
  InDoubt in_doubt = InDoubt::kNone;             // of kResume
};
// kInvalidArgument for anything that the protocol does not name.
Result<Request> ParseRequest(std::string_view text);

// What is collected while an operation runs, beside its status.
struct Answer {
  std::string remedy;
  std::string left;
  std::vector<Blocker> blockers;
  std::vector<std::string> notes;
  Json fields = Json::object();
};
Json ResultJson(const std::string& verb, const Status& status, const Answer& answer);

}  // namespace stasis

#endif  // GHOST_REQUEST_H_

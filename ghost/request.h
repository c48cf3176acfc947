// What a client may ask for (docs/ghost-protocol.md), and the answer.
#ifndef GHOST_REQUEST_H_
#define GHOST_REQUEST_H_

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

namespace stasis {

enum class Verb : int { kStatus = 0, kPause, kResume, kCheckpoint, kRestore, kMigrate, kCancel };
const char* VerbName(Verb verb);

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
  std::vector<int> gpus;
  bool whole_task = true;  // of kCancel
  Duration grace = std::chrono::seconds(5);
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

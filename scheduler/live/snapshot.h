// A cluster on stable storage in place of the facts that led to it.
#ifndef SCHEDULER_LIVE_SNAPSHOT_H_
#define SCHEDULER_LIVE_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/types.h"

namespace stasis::scheduler {

// Texts are JSON objects that Cluster::Save() writes and Cluster::Restore() reads.
struct Snapshot {
  uint64_t number = 0;  // of the last fact that is in it
  std::string cluster;  // all but its jobs
  struct Job {
    uint64_t number = 0;  // of the fact of its submission
    Time ended = 0;       // 0: it lives
    std::string request;  // never changes; "": as in the snapshot before
    std::string state;
    bool operator==(const Job&) const = default;
  };
  std::vector<Job> jobs;  // by number
  Time forgotten = 0;     // jobs that ended before then are not in it any more
  bool operator==(const Snapshot&) const = default;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_LIVE_SNAPSHOT_H_

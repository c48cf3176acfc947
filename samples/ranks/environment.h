// What a launcher (torchrun and the like) tells the processes of a job, and how they find each other.
#pragma once

#include <nccl.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "../common/options.h"
#include "../common/pace.h"

namespace ranks {

struct Environment {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  std::string address = "127.0.0.1";
  int port = 29500;
};

// From RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; without RANK this process is the only one.
// Ends the program when they make no sense.
Environment ReadEnvironment();

// Unique ids that the process of rank 0 has made, the same in every process. Rank 0 gives them out at
// MASTER_ADDR:MASTER_PORT, or the next port where torchrun has that one itself; no socket is open afterwards.
std::vector<ncclUniqueId> ShareIds(const Environment& environment, int count);

// Rests between two pieces of work of a rank; each has its own.
inline sample::Pace PaceOf(int milliseconds, uint64_t seed, int rank) {
  return sample::Pace(milliseconds, seed * 7919 + static_cast<uint64_t>(rank));
}

// The device of the first rank of this process: `chosen`, or by LOCAL_RANK; `count` of them follow each
// other.
int ChooseDevice(int chosen, const Environment& environment, int count);

}  // namespace ranks

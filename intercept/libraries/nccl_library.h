// NCCL's part of a pause (library.h), for communicators whose ranks are all in this process. One that reaches
// other processes is refused by the name of the call that made it; what a coordinator of several processes
// needs for taking it over is here, too.
#ifndef INTERCEPT_LIBRARIES_NCCL_LIBRARY_H_
#define INTERCEPT_LIBRARIES_NCCL_LIBRARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "intercept/libraries/nccl_cut.h"

namespace stasis::nccl {

// Makes NCCL known to the pause; free after its first time. Any thread.
void EnsureRegistered();

// A communicator's rank in this process and how far it has come.
struct CommReport {
  uint64_t key = 0;  // of the communicator: the same in every process
  std::string made_by;
  int size = 0;
  int rank = 0;
  int local_ranks = 0;  // of the communicator, in this process
  Counters issued;
};
// Of all living communicators, oldest first. For the control thread.
std::vector<CommReport> ReportComms();
// The cut: before Settle() ends, this rank has to issue that much. False: there is no such rank.
bool SetCommTarget(uint64_t key, int rank, const Counters& target);

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_LIBRARY_H_

// Stops a whole tree of processes, so that a paused task burns no CPU.
//
// A child cgroup of the one that the task is in takes the tree and is frozen: limits and accounting stay
// those of the parent. Version 2 first: there a fatal signal ends a frozen process. Where no cgroup can be
// made, SIGSTOP.
#ifndef GHOST_FREEZER_H_
#define GHOST_FREEZER_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace stasis {

enum class FreezeKind : int { kNone = 0, kCgroupV2, kCgroupV1, kSigstop };
const char* FreezeKindName(FreezeKind kind);  // "none", "cgroup-v2", "cgroup-v1", "sigstop"
bool FindFreezeKind(const std::string& name, FreezeKind* kind);

// What holds a frozen tree. A value that can be written down and used by another process.
struct Frozen {
  FreezeKind kind = FreezeKind::kNone;
  std::string folder;  // our cgroup
  std::string home;    // the cgroup the processes came from
  pid_t root = 0;
  bool thawed = false;  // it runs already, and only what held it is left to be removed
};

struct CgroupMounts {
  std::string v2;  // mount point, empty: none
  std::string v1;  // of the freezer hierarchy
};
CgroupMounts FindCgroupMounts();

// Freezes `root` and its descendants. `name` makes the cgroup's name unique. `kinds`: what to try, in order.
Result<Frozen> FreezeTree(pid_t root, const std::string& name, const Deadline& deadline,
                          const std::vector<FreezeKind>& kinds = {
                              FreezeKind::kCgroupV2, FreezeKind::kCgroupV1, FreezeKind::kSigstop});
// Whether `root` is in a cgroup in which FreezeTree() with that name has frozen it, whoever called it. Not
// known, and so false, of one that was stopped by signals.
bool IsFrozenTree(pid_t root, const std::string& name);
// The cgroup that `root` is in by a FreezeTree() with that name, whoever called it and whether it is frozen
// now; kNone: none.
Frozen FindFrozenTree(pid_t root, const std::string& name);
// Sets it free and puts every process back where it was. OK when the tree is gone. Idempotent.
Status ThawTree(const Frozen& frozen, const Deadline& deadline);
// Removes the cgroup of a tree that has ended, also one that does not thaw as a cgroup around it is frozen.
void RemoveFreezer(const Frozen& frozen);
// Removes the cgroup of a FreezeTree() with that name that was killed before it had put anything of the tree
// into it.
void RemoveUnusedFreezer(pid_t root, const std::string& name);

}  // namespace stasis

#endif  // GHOST_FREEZER_H_

// A job of several ranks as its files tell it: <state dir>/jobs/NAME/job.json and images/ID.json. Each rank
// is a task of its own, NAME.RANK, whose task.json names the job.
//
// job.json is written once, by `stasis run`, and the placement anew by a restore. An image of a job is a list
// of its ranks' images, written, by one rename, when all of those are on stable storage: it is there as a
// whole or not at all.
#ifndef COORDINATOR_JOB_RECORD_H_
#define COORDINATOR_JOB_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace stasis {

// One of the places that ranks run in: this machine as it is, or what a command leads into ("nsenter -t 812
// -n -m -u --"), sharing its file system and kernel.
struct JobNode {
  std::string name;
  std::string address = "127.0.0.1";  // under which the other nodes reach it
  std::vector<std::string> through;   // before each program that is started there; empty: this one
  int ranks = 0;                      // how many of them, consecutive
  // Physical ordinals, in the order in which every rank there sees them, at least one for each; empty: all.
  std::vector<int> gpus;
};

struct JobRecord {
  std::string name;
  std::vector<std::string> argv;
  uint64_t created = 0;  // seconds since 1970
  int master_port = 0;   // MASTER_PORT at start
  std::vector<JobNode> nodes;

  int ranks() const;
  // NAME.RANK
  std::string TaskOf(int rank) const;
  const JobNode& NodeOf(int rank) const;
  int LocalRankOf(int rank) const;
};

struct JobImage {
  std::string id;  // six digits, ascending
  uint64_t created = 0;
  std::vector<std::string> images;  // of the ranks' tasks
};

// Functions take the state folder. kNotFound: no such job or image; kCorrupt: not what was written.
Status WriteJobRecord(const std::string& state_dir, const JobRecord& record);
Result<JobRecord> ReadJobRecord(const std::string& state_dir, const std::string& job);
std::vector<std::string> ListJobs(const std::string& state_dir);
// Of all images that are there, whether they can be read or not; ascending.
Result<std::vector<std::string>> ListJobImageIds(const std::string& state_dir, const std::string& job);
Result<JobImage> ReadJobImage(const std::string& state_dir, const std::string& job, const std::string& id);
// What is removed meanwhile is not among them. One that cannot be read fails all.
Result<std::vector<JobImage>> ListJobImages(const std::string& state_dir, const std::string& job);
Status WriteJobImage(const std::string& state_dir, const std::string& job, const JobImage& image);
Status RemoveJobImage(const std::string& state_dir, const std::string& job, const std::string& id);
// One operation on a job at a time, on all of the run folder's machine: released with the descriptor.
// kFailedPrecondition: another one is running.
Result<Fd> LockJob(const std::string& run_dir, const std::string& job);
// A list of nodes from a file of the user: a JSON array of objects with the fields of JobNode.
Result<std::vector<JobNode>> ReadNodes(const std::string& path);

}  // namespace stasis

#endif  // COORDINATOR_JOB_RECORD_H_

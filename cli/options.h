// What was asked for on the command line.
#ifndef CLI_OPTIONS_H_
#define CLI_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace stasis {

struct Options {
  std::string verb;
  bool json = false;
  bool quiet = false;
  std::string node;       // endpoint of the agent to ask; empty: not given
  bool embedded = false;  // ask none

  // run
  std::string name;  // of the task; of the other verbs, too
  std::string device = "auto";
  std::string strategy = "auto";
  std::string managed = "refuse";
  std::vector<std::string> environment;
  std::vector<std::string> program;
  bool detach = false;
  std::vector<int> gpus;           // empty: not given
  int ranks = 0;                   // 0: a task of its own
  std::string nodes;               // file; of restore, too
  int master_port = 0;             // 0: any that is free
  bool again = false;              // go on from an earlier run's image
  bool forget = false;             // remove the task once it has exited with 0
  bool take_back = false;          // restore: of a node that it was handed over to
  std::vector<int> checkpoint_on;  // signals

  // pause, resume, checkpoint, restore, migrate, cancel
  std::string residency = "device";
  std::optional<Duration> deadline;
  std::optional<Duration> grace;
  std::optional<Duration> wait_low;
  std::string snapshot = "auto";
  std::string device_hash = "auto";
  int snapshot_host_share = 50;  // percent
  bool no_freeze = false;
  bool stop = false;
  bool operation = false;
  int attempts = 0;            // 0: not given
  std::string pause_protocol;  // "": not given
  std::string target;          // of restore, images: a task, TASK/IMAGE, or the path of an image

  std::string images_verb;          // ls, show, ...
  std::vector<std::string> images;  // images rm
  std::string file;                 // images export, import
  std::string as;                   // images import

  bool all = false;              // ps, images ls
  bool show_ranks = false;       // ps
  bool follow = false;           // logs
  bool force = false;            // images rm
  std::string shell;             // completion
  std::string below;             // verb below `ops`, `schedule`: ls, show, ...
  bool running = false;          // ops ls
  int limit = 20;                // ops ls
  std::string to;                // migrate: another node
  std::string precopy = "auto";  // migrate, to another node

  // schedule set
  std::optional<Duration> every;
  std::string cron;
  std::optional<Duration> mtbf;
  int keep = 0;  // 0: not given
  std::optional<Duration> keep_every;
  double budget = 0;  // percent; 0: none
  int max_restarts = 0;
  std::optional<Duration> backoff;
  bool suspended = false;
  std::vector<std::string> paths;  // probe-driver

  // The verbs of a scheduler.
  std::string scheduler;  // endpoint; empty: not given
  std::string tenant;     // submit, queue, tenants set
  int gpu_count = 1;      // submit, defrag
  bool ranked = false;    // submit
  int priority = 0;
  double weight = 0;  // submit, tenants set; 0: not given
  std::optional<Duration> estimate;
  int min_gpus = 0, max_gpus = 0;  // 0: not given
  uint64_t device_memory = 0;      // bytes; 0: not given
  double utilization = 0;          // 0: not given
  bool wait = false;
  std::string node_name;  // drain, undrain, maintenance
  std::string reason;     // drain
  std::optional<Duration> drain_wait;
  std::optional<Duration> notice;    // drain
  int64_t start_ms = 0, end_ms = 0;  // maintenance; 0: none
  bool dry_run = false;              // defrag
  uint64_t after = 0;                // events
};

}  // namespace stasis

#endif  // CLI_OPTIONS_H_

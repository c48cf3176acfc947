// Waiting for anything on this node that may have changed a job: files in folders (inotify), the end of
// processes (pidfds), and descriptors of others.
//
// Thread-safe: one thread waits, any may say what is to be watched.
#ifndef COORDINATOR_AGENT_NODE_WATCH_H_
#define COORDINATOR_AGENT_NODE_WATCH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/status.h"

namespace stasis {

class NodeWatch {
 public:
  // What a folder holds: how its events are to be taken.
  enum class Place {
    kTasks,      // a folder for each task
    kJobs,       // a folder for each job of ranks
    kTask,       // the files of one task
    kControl,    // the control sockets of one task
    kJob,        // the files of one job of ranks
    kJobImages,  // its images
  };
  struct Event {
    Place place = Place::kTasks;
    std::string owner;  // of the folder: a task or a job; empty for kTasks and kJobs
    std::string file;   // in the folder
  };
  struct Events {
    std::vector<Event> files;
    std::vector<std::string> ended;  // jobs of which a process has ended
    bool lost = false;               // there were more than the kernel keeps: anything may have changed
    bool woken = false;
  };

  static Result<std::unique_ptr<NodeWatch>> Make();

  // OK also where it is watched already, and where there is no such folder. kResourceExhausted: the kernel's
  // limit is reached.
  Status WatchFolder(const std::string& path, Place place, const std::string& owner);
  // The processes of a job from now on; those of before are forgotten. One that has ended already is told.
  Status WatchProcesses(const std::string& job, const std::vector<ProcessIdentity>& processes);
  // `readable` is called by the waiting thread whenever `fd`, which outlives this object, is readable.
  Status WatchDescriptor(int fd, std::function<void()> readable);

  // Blocks until there is something, Wake() was called or the deadline has passed.
  Result<Events> Wait(const Deadline& deadline);
  void Wake();

 private:
  struct Folder {
    Place place;
    std::string owner;
  };
  struct Process {
    uint64_t id = 0;
    Fd fd;
  };
  using ProcessKey = std::pair<pid_t, uint64_t>;

  NodeWatch(Fd epoll, Fd inotify, Fd wake)
      : epoll_(std::move(epoll)), inotify_(std::move(inotify)), wake_(std::move(wake)) {}
  Status Add(int fd, uint64_t id);
  Status AddProcess(const std::string& job, const ProcessIdentity& identity,
                    std::map<ProcessKey, Process>* into);
  void Take(uint64_t id, Events* events);
  void TakeFiles(Events* events);
  void TakeEnd(uint64_t id, Events* events);

  const Fd epoll_;
  const Fd inotify_;
  const Fd wake_;
  std::mutex mutex_;
  uint64_t next_id_ = 2;           // 0: inotify, 1: wake
  std::map<int, Folder> folders_;  // by watch descriptor
  std::map<std::string, std::map<ProcessKey, Process>> processes_;
  std::map<uint64_t, std::pair<std::string, ProcessKey>> process_of_;
  std::map<uint64_t, std::function<void()>> others_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_NODE_WATCH_H_

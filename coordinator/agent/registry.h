// All jobs of this node as they are now, kept by watching their files (inotify), their processes (pidfds) and
// their ghosts' status; nothing is asked of disk or kernel when somebody wants to know.
//
// The files and the kernel are what is true (coordinator/node/task.h); the registry is a picture of that,
// also of what others (`stasis` without the agent) have started or changed. Thread-safe.
#ifndef COORDINATOR_AGENT_REGISTRY_H_
#define COORDINATOR_AGENT_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/node/site.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

using JobPicture = std::shared_ptr<const v1::Job>;

class Registry {
 public:
  // Reads what is on record and begins to watch; a thread of its own.
  static Result<std::unique_ptr<Registry>> Start(const Site& site);
  virtual ~Registry() = default;

  // By name. Never blocks on disk.
  virtual std::vector<JobPicture> List() const = 0;
  virtual JobPicture Find(const std::string& name) const = 0;  // null: none
  // Ascends with each change, also from one agent of this state folder to the next.
  virtual uint64_t revision() const = 0;
  // What is on record and cannot be read, a sentence each.
  virtual std::vector<std::string> Notes() const { return {}; }

  // `changed` is called after each change, in the order of revisions, from the registry's thread: it must not
  // block. A job that is no longer on record is told with `gone`. Ends with the object, whose destructor
  // waits for a call that is under way: hold no lock there that `changed` takes.
  class Subscription {
   public:
    virtual ~Subscription() = default;
  };
  virtual std::unique_ptr<Subscription> Subscribe(std::function<void(const JobPicture&)> changed) = 0;

  // Reads a job's files now, before it returns: for who has just changed them and is about to answer.
  virtual void Refresh(const std::string& name) = 0;
  // What operation runs on the job ("": none), and where it has been moved to ("": it is here). A job that
  // has been moved and lives here no more is MIGRATED. Both are remembered for a job that is not on record
  // yet, and kept in memory only: who knows it on stable storage tells it again after a start.
  virtual void SetOperation(const std::string& name, const std::string& operation) = 0;
  virtual void SetMovedTo(const std::string& name, const std::string& node) = 0;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_REGISTRY_H_

// Keeps the work of jobs safe from the loss of their nodes: copies each new image to another node, and knows
// where the newest one is when a job has to come back.
//
// Images of a job may be of several lives: one that began anew has images of its own, and those of the life
// before may turn up with a node that nobody had reached. A node has one of them under the job's name.
#ifndef SCHEDULER_DAEMON_IMAGE_KEEPER_H_
#define SCHEDULER_DAEMON_IMAGE_KEEPER_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/daemon/agent_link.h"
#include "scheduler/daemon/core.h"
#include "scheduler/daemon/errands.h"
#include "scheduler/daemon/steps.h"

namespace stasis::scheduler {

// Thread-safe.
class ImageKeeper {
 public:
  using Alive = Errands::Alive;
  // All thread-safe.
  class Host {
   public:
    virtual ~Host() = default;
    // Null where the node is not reached.
    virtual std::shared_ptr<AgentLink> LinkOf(const std::string& node) const = 0;
    virtual std::string PeerAddress(const std::string& node) const = 0;
    // What each node has told of the job last, or of all ("").
    virtual std::vector<std::pair<std::string, v1::Job>> PicturesOf(const std::string& job) const = 0;
    virtual Status Perform(const Step& step, const std::string& key, const Alive& alive) = 0;
    virtual bool Record(const Fact& fact) = 0;
    // Asks the node how the job is now; false: nothing was heard.
    virtual bool Refresh(const std::string& node, const std::string& job) = 0;
  };
  // All of them outlive the object.
  ImageKeeper(SchedulerCore& core, Errands& errands, Host& host)
      : core_(core), errands_(errands), host_(host) {}

  // Copies its newest image to another node, where that was not done yet.
  void Copy(const std::string& node, const v1::Job& job);
  void CopyAll();
  // What was copied may be gone.
  void CopyAllAgain();

  // The node that has a newer image of the order's job than the one from which it would come back, or any
  // where it would begin anew; "": none that is reached. Asks them all: waits while one that is reached does
  // not answer, and `alive`.
  std::string BetterNodeThan(const Order& order, const Alive& alive) const;
  // What the node has under that name is somebody else's job.
  bool IsOthers(const std::string& node, const std::string& job) const;
  // Removes what the order's target has on record of another life of the job: with its images where the one
  // that comes has some, which are newer.
  void MakeRoomFor(const Order& order, const Alive& alive);

 private:
  void Carry(const std::string& node, const std::string& to, const std::string& job,
             const std::string& image);
  bool IsCopied(const std::string& node, const v1::Job& job);
  Time MadeAt(const std::string& node, const std::string& job, const std::string& image) const;
  bool WasEndedBy(const std::string& node, const std::string& job, const std::string& image) const;
  Time Now() const;
  void Again(const std::string& node, const std::string& job);
  std::string PartnerOf(const std::string& node, const std::string& job) const;
  void ForgetEnded();
  void EndElsewhere(const Order& order, const Alive& alive);
  void AwaitNodes(const Alive& alive) const;
  int64_t NewestAt(const std::string& node, const std::string& job, const Alive& alive) const;
  struct Life {
    int64_t began = 0;  // milliseconds since 1970; 0: there is none
    bool has_image = false;
  };
  void MakeRoom(const std::string& node, const std::string& job, const Life& life, const std::string& key,
                const Alive& alive);
  Life LifeOf(const std::string& node, const std::string& job) const;

  SchedulerCore& core_;
  Errands& errands_;
  Host& host_;
  std::mutex mutex_;
  struct Copied {
    std::string image, from, to;
    Time made = 0;      // 0: not known
    bool last = false;  // it was told that the job was ended by it
  };
  std::map<std::string, Copied> copied_;  // what was copied last, by job
  std::map<std::string, int> attempts_;   // to copy that have failed in a row, by job
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_IMAGE_KEEPER_H_

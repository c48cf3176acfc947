// Following a job through an agent: its output as it grows, and how its ranks end. Waits for streams and
// signals only; an agent that is started anew meanwhile is asked again.
#ifndef CLI_AGENT_FOLLOW_H_
#define CLI_AGENT_FOLLOW_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/agent_client.h"
#include "cli/agent_stream.h"
#include "cli/follow.h"
#include "cli/job_follow.h"
#include "cli/stay.h"

namespace stasis {

class AgentFollower {
 public:
  struct Options {
    bool copy_output = true;        // to standard output; of a ranked job with "[RANK] " before each line
    bool stop_when_unread = false;  // end once nobody reads standard output any more
    std::function<void(int)> on_signal;
    std::function<void(const RankEnd&)> on_end;  // in the order of the ends
    std::function<void()> on_alarm;
  };
  // `offsets`: where the output of each rank begins; missing ones are 0.
  AgentFollower(AgentClient& client, v1::Job job, std::vector<uint64_t> offsets);

  // Until all ranks have ended and their output is told. `signals` may be null. kPeerDied with
  // stop_when_unread; kUnavailable: the agent is gone and none came; kNotFound: the job was removed.
  Status Follow(SignalSource* signals, const Options& options);
  // Lets on_alarm be called after this time, once.
  void SetAlarm(Duration time) { alarm_ = Deadline::After(time); }
  // As it was told last.
  const v1::Job& job() const { return job_; }

 private:
  struct Rank {
    explicit Rank(int number) : lines(number) {}
    RankLines lines;
    uint64_t offset = 0;
    std::unique_ptr<AgentStream<v1::LogChunk>> log;  // null: not open
    bool told = false;                               // all of its output
    bool ended = false;
    bool managed = false;
  };
  void Open(const Options& options);
  void Close();
  Status Round(SignalSource* signals, const Options& options);
  Status TakeJob(const Options& options);
  void TakeRanks(const Options& options);
  Status TakeLog(size_t index, const Options& options);
  Status Print(Rank& rank, const v1::LogChunk& chunk, const Options& options);
  Status ReachAgain(const Status& lost);
  bool Done(const Options& options) const;

  AgentClient& client_;
  v1::Job job_;
  std::vector<Rank> ranks_;
  std::unique_ptr<AgentStream<v1::WatchEvent>> watch_;
  std::optional<Deadline> alarm_;
};

// The ranks' view as the commands that watch by themselves have it.
TaskView ViewOf(const v1::Job& job, const v1::Rank& rank);
// True for a rank whose end is known.
bool HasEnded(const v1::Rank& rank);

}  // namespace stasis

#endif  // CLI_AGENT_FOLLOW_H_

// What the command says and does while it stays with a task or job, and the exit code that it takes over:
// whoever follows it (this process, or an agent) tells what happens.
#ifndef CLI_STAY_H_
#define CLI_STAY_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/report.h"
#include "coordinator/node/task.h"

namespace stasis {

struct RankEnd {
  int rank = 0;
  TaskView view;
  double time = 0;         // seconds since 1970; 0: not known
  bool cancelled = false;  // by `stasis cancel`
  bool managed = false;    // a process of the rank made a control socket while it was followed
};

// A task alone that has ended.
struct TaskEnd {
  std::string task;
  std::string log;
  TaskView view;
  bool managed = false;
  bool expect_managed = false;   // say so when no process of the task ever reported
  Json fields = Json::object();  // of the document
};
// Reports it; the program's exit code.
int ReportTaskEnd(const TaskEnd& end, Reporter& reporter);

struct StayOfJob {
  struct Rank {
    std::string task;
    std::string log;
  };
  std::string name;
  std::vector<Rank> ranks;
  Duration grace{};             // between SIGTERM and SIGKILL for those that are left
  bool expect_managed = false;  // say so when no process of a rank ever reported
  Json fields = Json::object();

  // To the programs of all ranks that have not ended.
  std::function<void(int signal)> send;
  // OnAlarm() is to be called after this time, once.
  std::function<void(Duration)> set_alarm;
  // Id of the job's newest image.
  std::function<std::string()> last_image;
};

// When a rank fails, the others are ended, and the exit code is that of the first that did.
class Stay {
 public:
  Stay(StayOfJob job, Reporter& reporter);
  // Of the user's; passed on.
  void OnSignal(int signal);
  void OnEnd(const RankEnd& end);
  void OnAlarm();
  bool HasEnded(size_t rank) const { return ends_[rank].has_value(); }
  // After the end of all ranks; the exit code.
  int Report();

 private:
  size_t Left() const;
  void TellFirst(const RankEnd& end, size_t left);
  void TellUnmanaged();
  bool AllAre(TaskCondition condition) const;
  Json RankJson(const RankEnd& end) const;
  int ReportCheckpointed(Json fields);

  const StayOfJob job_;
  Reporter& reporter_;
  std::vector<std::optional<RankEnd>> ends_;  // by rank
  std::optional<RankEnd> first_;              // that failed
  bool asked_ = false;                        // a signal of the user's has been passed on
};

}  // namespace stasis

#endif  // CLI_STAY_H_

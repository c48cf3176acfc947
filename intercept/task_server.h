// The state machine of a task's process: what the ghost asks for, done in the order that base/task_protocol.h
// gives. Runs in the control thread alone.
//
//   Running -> Quiescing -> Quiesced -> Released -> Deaf -> Released -> Attaching -> Quiesced -> Running
//
// The gates are open in Running only. The libraries' objects are there in Running, and from kRebuild on; the
// quiescing gives them up, at its end, and every way back to Running makes them again. A request in a state
// that does not know it fails and changes nothing.
#ifndef INTERCEPT_TASK_SERVER_H_
#define INTERCEPT_TASK_SERVER_H_

#include <cstdint>
#include <vector>

#include "base/message.h"
#include "base/task_protocol.h"

namespace stasis {

class TaskServer {
 public:
  TaskState state() const { return state_; }
  // The ghost's connection, -1 for none: a wait for the program is over when something comes from there.
  void set_connection(int fd) { connection_ = fd; }

  // Does what is asked and says how it went.
  Message Answer(Message request);
  // The connection has ended: takes back what the ghost has begun and not made final.
  void GhostGone();
  // Deaf -> Released.
  void Wake();

 private:
  struct Reply {
    Status status;
    std::vector<std::byte> payload;
    std::vector<Fd> fds;
    std::vector<TaskBlocker> blockers;
  };

  Reply Dispatch(Message& request);
  Reply Hello(const Message& request);
  Reply ReportStatus();
  Reply Quiesce(const Message& request);
  Status StopAtLowPoint(const TaskQuiesce& quiesce, TaskQuiesced* stopped);
  Status StandStill(const Deadline& deadline, TaskQuiesced* stopped, std::vector<TaskBlocker>* blockers);
  Status CloseGates(const Deadline& deadline, TaskQuiesced* stopped, std::vector<TaskBlocker>* blockers);
  // The libraries' objects.
  Status GiveUpLibraries(const Deadline& deadline, std::vector<TaskBlocker>* blockers);
  Status GiveUpLibrariesAgain();
  Status RebuildLibraries();
  Reply Handover(const Message& request);
  Reply Active(const Message& request);
  Reply ReleaseDriver(const Message& request);
  Status LetGo(TaskStrategy strategy);
  Reply PrepareDump();
  Reply Attach(const Message& request);
  Status Reattach(const TaskAttach& attach);
  Reply Import(Message& request);
  Reply Rebuild();
  Reply Resume(Message& request);
  Reply SnapshotDone();

  // kFailedPrecondition unless the process is in `state`.
  Status Expect(TaskState state) const;
  // Undoes everything since kAttach.
  void BackToReleased();
  void Run();

  TaskState state_ = TaskState::kRunning;
  TaskStrategy strategy_ = TaskStrategy::kReconstruct;  // of the last release
  bool gave_up_libraries_ = false;
  uint64_t extents_mark_ = 0;  // of the moment when they were given up
  int connection_ = -1;
  std::vector<TaskRange> active_;  // while the ghost asks for them batch by batch
};

}  // namespace stasis

#endif  // INTERCEPT_TASK_SERVER_H_

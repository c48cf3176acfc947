// Streams by which agents see that the scheduler lives: Scheduler.Attend.
#ifndef SCHEDULER_DAEMON_ATTENDANCE_H_
#define SCHEDULER_DAEMON_ATTENDANCE_H_

#include <grpcpp/support/server_callback.h>

#include <mutex>
#include <set>

#include "stasis/v1/scheduler.pb.h"

namespace stasis::scheduler {

class AttendStream;

// Thread-safe. All streams must have ended when it goes: the server is gone.
class Attendance {
 public:
  Attendance() = default;
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;

  // It belongs to gRPC.
  grpc::ServerWriteReactor<v1::AttendReply>* Open();
  size_t streams() const;
  // Ends all streams, and those that are opened later at once, with UNAVAILABLE. Idempotent.
  void Stop();

 private:
  friend class AttendStream;
  void Leave(AttendStream* stream);

  mutable std::mutex mutex_;  // held while a stream is told to end, so that it does not go meanwhile
  std::set<AttendStream*> streams_;
  bool stopped_ = false;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_ATTENDANCE_H_

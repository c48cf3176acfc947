#include "scheduler/daemon/attendance.h"

namespace stasis::scheduler {
namespace {

grpc::Status Ending() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the scheduler is about to end"); }

}  // namespace

class AttendStream final : public grpc::ServerWriteReactor<v1::AttendReply> {
 public:
  explicit AttendStream(Attendance& attendance) : attendance_(attendance) { StartSendInitialMetadata(); }

  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    Finish(status);
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    attendance_.Leave(this);
    delete this;
  }

 private:
  Attendance& attendance_;
  std::mutex mutex_;
  bool ended_ = false;
};

grpc::ServerWriteReactor<v1::AttendReply>* Attendance::Open() {
  auto* stream = new AttendStream(*this);
  std::lock_guard lock(mutex_);
  if (stopped_)
    stream->End(Ending());
  else
    streams_.insert(stream);
  return stream;
}

size_t Attendance::streams() const {
  std::lock_guard lock(mutex_);
  return streams_.size();
}

void Attendance::Leave(AttendStream* stream) {
  std::lock_guard lock(mutex_);
  streams_.erase(stream);
}

void Attendance::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  for (AttendStream* stream : streams_) stream->End(Ending());
}

}  // namespace stasis::scheduler

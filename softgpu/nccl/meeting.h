// Meeting: where the ranks of a new communicator tell each other of themselves.
//
// One process holds it: the one that made the unique id (on a thread of its own, Root), or a rank of the
// communicator that is split or shrunk. Every rank joins, the holder's too; when all are there each is told
// of all.
#ifndef SOFTGPU_NCCL_MEETING_H_
#define SOFTGPU_NCCL_MEETING_H_

#include <cstddef>
#include <list>
#include <vector>

#include "softgpu/nccl/doorstep.h"

namespace softgpu::nccl {

// A number that nobody guesses. Aborts when the system has no randomness.
uint64_t RandomSecret();

// Not thread-safe.
class Meeting {
 public:
  // Those who come to `door` with the `secret`. The door must outlive the meeting.
  Meeting(Doorstep* door, uint64_t secret) : door_(door), secret_(secret) {}

  // Does what can be done without waiting. True once all have been told, or that it failed: they disagree on
  // their number (ncclInvalidUsage), or one left (ncclRemoteError).
  bool Step();
  void AddPolls(std::vector<pollfd>* polls) const;
  int PollTimeout() const { return door_->PollTimeout(); }

 private:
  struct Member {
    Visitor visitor;
    Transfer transfer;
    bool told = false;
  };

  void Admit(Visitor visitor);
  void Conclude(ncclResult_t result);
  bool SomebodyLeft();
  void Tell(Member* member);

  Doorstep* const door_;
  const uint64_t secret_;
  std::list<Member> members_;
  bool concluded_ = false;
  std::vector<std::byte> report_;
};

// Opens a meeting at `address` (port 0: the system chooses) on a thread that ends with it. The thread also
// ends with the process; it never calls the driver.
Result<Address> StartRoot(const Address& address, uint64_t secret);

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_MEETING_H_

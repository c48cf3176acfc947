// Doorstep: a listener, and those who came and have not been let in yet.
//
// Whoever connects has to say first what for (Greeting). Who says anything else, or nothing in time, is sent
// away; who is early waits. Not thread-safe.
#ifndef SOFTGPU_NCCL_DOORSTEP_H_
#define SOFTGPU_NCCL_DOORSTEP_H_

#include <list>
#include <optional>

#include "base/clock.h"
#include "softgpu/nccl/net.h"

namespace softgpu::nccl {

struct Visitor {
  Fd socket;
  Greeting greeting;
  Fd descriptor;  // came with the greeting
  bool local = false;
};

class Doorstep {
 public:
  // Listens on `address` (port 0: the system chooses), and with a `local_name` on a unix socket too.
  static Result<Doorstep> Open(const Address& address, const std::string& local_name = "");

  Doorstep() = default;
  const Address& address() const { return address_; }
  // Accepts and reads what has arrived.
  void Look();
  // The first visitor that `wanted`(greeting) accepts.
  template <typename Wanted>
  std::optional<Visitor> Take(const Wanted& wanted) {
    for (auto each = arrived_.begin(); each != arrived_.end(); ++each) {
      if (!wanted(each->greeting)) continue;
      Visitor visitor = std::move(*each);
      arrived_.erase(each);
      return visitor;
    }
    return std::nullopt;
  }
  // For poll(2): what Look() waits for; the milliseconds until it has somebody to send away, or -1.
  void AddPolls(std::vector<pollfd>* polls) const;
  int PollTimeout() const;

 private:
  struct Stranger {
    Visitor visitor;
    Transfer transfer;
    stasis::Deadline deadline;
  };

  void AcceptFrom(int listener, bool local);
  // False: not worth keeping.
  bool Hear(Stranger* stranger);

  Address address_;
  Fd tcp_, local_;
  // Nobody can be let in for want of descriptors; tried again after a while, as it is not told when there
  // are.
  bool full_ = false;
  std::list<Stranger> strangers_;
  std::list<Visitor> arrived_;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_DOORSTEP_H_

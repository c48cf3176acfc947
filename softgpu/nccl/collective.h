// Collective: one rank's part in a collective operation, as stages of flows.
#ifndef SOFTGPU_NCCL_COLLECTIVE_H_
#define SOFTGPU_NCCL_COLLECTIVE_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "softgpu/nccl/flow.h"

namespace softgpu::nccl {

class Communicator;

// "AllReduce number 3 of 10 float32"
std::string Describe(const MessageHeader& header);

class Collective {
 public:
  // The kernel must end (the launch has failed) when false: a buffer is not the device's.
  static bool Make(const Operation& operation, Communicator* communicator, native::Device* device,
                   std::optional<Collective>* collective);
  Progress Step();
  // Which ranks' operations do not fit, after kMismatch.
  const std::string& mismatch() const { return mismatch_; }

 private:
  struct Stage {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    std::optional<Fold> fold;
  };

  Collective(const Operation& operation, Communicator* communicator);
  bool Map(native::Device* device);
  void Plan();
  void PlanAllReduce();
  // Makes the current stage send to, or receive from, a peer, or everybody else.
  void Send(int peer, size_t offset, size_t bytes);
  void Receive(int peer, size_t offset, size_t bytes);
  void SendSlices(size_t stride, size_t bytes);
  void ReceiveSlices(size_t stride, size_t bytes);
  void Reduce(size_t send_offset, size_t receive_offset, size_t elements);
  void CopyOwn(size_t send_offset, size_t receive_offset, size_t bytes);
  void NextStage();
  Progress Mismatch(const Incoming& incoming);
  std::vector<int> Others() const;

  Operation operation_;
  Communicator* communicator_;
  const size_t element_;
  const std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
  std::byte* staging_ = nullptr;
  MessageHeader header_;
  std::deque<Stage> stages_;
  std::string mismatch_;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_COLLECTIVE_H_

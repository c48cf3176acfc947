// The kernel: carries out the operations of one launch, collectives one after the other, and beside them the
// messages to and from each peer, so that no order of messages within a group can block.
#include <deque>
#include <map>

#include "softgpu/nccl/collective.h"
#include "softgpu/nccl/communicator.h"
#include "softgpu/nccl/log.h"

namespace softgpu::nccl {

namespace {

class Execution {
 public:
  Execution(Communicator* communicator, native::Device* device)
      : communicator_(*communicator), device_(*device) {}

  // False: the launch has failed, or the communicator was stopped.
  bool Run(const Operation* operations, size_t count);

 private:
  bool AddMessage(const Operation& operation);
  bool Step(bool* moved);
  bool StepCollective(bool* moved);
  template <typename Flow>
  bool StepMessages(std::map<int, std::deque<Flow>>* messages, bool* moved);
  bool Failed();
  void AwaitEnd();

  Communicator& communicator_;
  native::Device& device_;
  std::deque<Operation> collectives_;
  std::optional<Collective> collective_;
  std::map<int, std::deque<Outgoing>> sends_;
  std::map<int, std::deque<Incoming>> receives_;
};

bool Execution::AddMessage(const Operation& operation) {
  const size_t bytes = operation.count * ElementBytes(operation.type);
  Link* link = &communicator_.link(operation.peer);
  MessageHeader header;
  header.kind = Kind::kSend;
  header.count = bytes;
  if (operation.kind == Kind::kSend) {
    const void* from = device_.Read(operation.send, bytes);
    if (from == nullptr) return false;
    sends_[operation.peer].emplace_back(link, kMessages, header, from, bytes);
  } else {
    void* to = device_.Write(operation.receive, bytes);
    if (to == nullptr) return false;
    receives_[operation.peer].emplace_back(link, kMessages, header, to, bytes);
  }
  return true;
}

bool Execution::StepCollective(bool* moved) {
  if (!collective_) {
    if (collectives_.empty()) return true;
    if (!Collective::Make(collectives_.front(), &communicator_, &device_, &collective_)) return Failed();
    collectives_.pop_front();
  }
  const Progress progress = collective_->Step();
  if (progress == Progress::kMismatch) {
    communicator_.ReportError(
        Fail(ncclInvalidUsage, "rank %d: %s", communicator_.rank(), collective_->mismatch().c_str()));
    return false;
  }
  *moved |= progress != Progress::kIdle;
  if (progress == Progress::kDone) collective_.reset();
  return true;
}

ncclResult_t Misfit(const Outgoing&, int rank) {
  return Fail(ncclInternalError, "rank %d: the memory shared with another rank was spoilt", rank);
}
ncclResult_t Misfit(const Incoming& incoming, int rank) {
  return Fail(ncclInvalidUsage, "rank %d: it receives %s, and was sent %s", rank,
              Describe(incoming.expected()).c_str(), Describe(incoming.header()).c_str());
}

template <typename Flow>
bool Execution::StepMessages(std::map<int, std::deque<Flow>>* messages, bool* moved) {
  for (auto each = messages->begin(); each != messages->end();) {
    std::deque<Flow>& queue = each->second;
    const Progress progress = queue.front().Step();
    if (progress == Progress::kMismatch) {
      communicator_.ReportError(Misfit(queue.front(), communicator_.rank()));
      return false;
    }
    *moved |= progress != Progress::kIdle;
    if (progress == Progress::kDone) queue.pop_front();
    each = queue.empty() ? messages->erase(each) : std::next(each);
  }
  return true;
}

bool Execution::Step(bool* moved) {
  return StepCollective(moved) && StepMessages(&sends_, moved) && StepMessages(&receives_, moved);
}

// The launch has failed already; the others must not wait for this rank without knowing.
bool Execution::Failed() {
  communicator_.ReportError(
      Fail(ncclUnhandledCudaError, "rank %d: a buffer is not memory of the device", communicator_.rank()));
  return false;
}

// What is on the way cannot be completed any more. As with NVIDIA's library, the stream stands until the
// communicator is given up.
void Execution::AwaitEnd() {
  for (;;) {
    const uint32_t seen = communicator_.bell().Count();
    if (communicator_.stopped() || communicator_.closing()) return;
    communicator_.bell().Wait(seen);
  }
}

bool Execution::Run(const Operation* operations, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const Operation& operation = operations[i];
    const bool message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
    if (!message) collectives_.push_back(operation);
    if (message && !AddMessage(operation)) return Failed();
  }
  for (;;) {
    const uint32_t seen = communicator_.bell().Count();
    if (communicator_.stopped()) return false;
    if (communicator_.AsyncError() != ncclSuccess) {
      AwaitEnd();
      return false;
    }
    bool moved = false;
    if (!Step(&moved)) {
      if (communicator_.AsyncError() != ncclUnhandledCudaError) AwaitEnd();
      return false;
    }
    if (!collective_ && collectives_.empty() && sends_.empty() && receives_.empty()) return true;
    if (!moved) communicator_.bell().Wait(seen);
  }
}

}  // namespace

void RunOperations(const LaunchedOperations& launched, native::Device& device) {
  const CommunicatorPtr communicator = FindById(launched.communicator);
  if (communicator == nullptr) {
    // What was in a stream when its communicator was aborted ends without a word, as there.
    if (launched.captured != 0) device.Fail("NCCL: the communicator that a graph was captured with is gone");
    return;
  }
  if (!communicator->Enter()) return;
  if (launched.list == 0) {
    Execution(communicator.get(), &device).Run(launched.operations, launched.count);
  } else if (auto list = communicator->TakeList(launched.list, launched.captured != 0); list != nullptr) {
    Execution(communicator.get(), &device).Run(list->data(), list->size());
  }
  communicator->Leave();
}

}  // namespace softgpu::nccl

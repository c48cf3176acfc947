#include "softgpu/nccl/collective.h"

#include <cstring>

#include "softgpu/nccl/communicator.h"

namespace softgpu::nccl {

const char* KindName(Kind kind) {
  static constexpr const char* kNames[] = {"Broadcast", "Reduce", "AllReduce", "ReduceScatter", "AllGather",
                                           "AlltoAll",  "Gather", "Scatter",   "Send",          "Receive"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "?";
}

std::string Describe(const MessageHeader& header) {
  if (header.mark != MessageHeader::kMark) return "bytes of another operation";
  if (header.kind == Kind::kSend) return "a message of " + std::to_string(header.count) + " bytes";
  std::string text = std::string(KindName(header.kind)) + " number " + std::to_string(header.sequence) +
                     " of " + std::to_string(header.count) + " " + TypeName(header.type);
  if (header.reduction != Reduction::kNone)
    text += ", operator " + std::to_string(static_cast<int>(header.reduction));
  return text + ", root " + std::to_string(header.root);
}

Collective::Collective(const Operation& operation, Communicator* communicator)
    : operation_(operation), communicator_(communicator), element_(ElementBytes(operation.type)) {
  header_.kind = operation.kind;
  header_.type = operation.type;
  header_.reduction = operation.reduction;
  header_.root = operation.peer;
  header_.count = operation.count;
}

bool Collective::Make(const Operation& operation, Communicator* communicator, native::Device* device,
                      std::optional<Collective>* collective) {
  collective->emplace(Collective(operation, communicator));
  if (!(*collective)->Map(device)) return false;
  (*collective)->header_.sequence = communicator->NextSequence();
  (*collective)->NextStage();
  (*collective)->Plan();
  return true;
}

// Where the buffers lie for the host.
bool Collective::Map(native::Device* device) {
  const size_t one = operation_.count * element_, all = one * static_cast<size_t>(communicator_->ranks());
  const bool root = operation_.peer == communicator_->rank();
  size_t sent = one, received = one;
  switch (operation_.kind) {
    case Kind::kBroadcast:
      sent = root ? one : 0;
      break;
    case Kind::kReduce:
      received = root ? one : 0;
      break;
    case Kind::kReduceScatter:
      sent = all;
      break;
    case Kind::kAllGather:
      received = all;
      break;
    case Kind::kAlltoAll:
      sent = received = all;
      break;
    case Kind::kGather:
      received = root ? all : 0;
      break;
    case Kind::kScatter:
      sent = root ? all : 0;
      break;
    default:
      break;
  }
  send_ = static_cast<const std::byte*>(device->Read(operation_.send, sent));
  receive_ = static_cast<std::byte*>(device->Write(operation_.receive, received));
  if (send_ == nullptr || receive_ == nullptr) return false;
  if (operation_.reduction == Reduction::kNone) return true;
  staging_ = static_cast<std::byte*>(device->Write(communicator_->staging(), kStagingBytes));
  if (staging_ == nullptr) return false;
  if (operation_.scalar_on_device) {
    const void* scalar = device->Read(operation_.scalar, element_);
    if (scalar == nullptr) return false;
    operation_.scalar = 0;
    std::memcpy(&operation_.scalar, scalar, element_);
  }
  header_.scalar = operation_.scalar;
  return true;
}

std::vector<int> Collective::Others() const {
  std::vector<int> others;
  for (int peer = 0; peer < communicator_->ranks(); peer++) {
    if (peer != communicator_->rank()) others.push_back(peer);
  }
  return others;
}

void Collective::NextStage() {
  header_.stage++;
  stages_.emplace_back();
}

void Collective::Send(int peer, size_t offset, size_t bytes) {
  // What a later stage sends is the result of an earlier one.
  const std::byte* from = stages_.size() == 1 ? send_ : receive_;
  stages_.back().out.emplace_back(&communicator_->link(peer), kCollectives, header_, from + offset, bytes);
}

void Collective::Receive(int peer, size_t offset, size_t bytes) {
  stages_.back().in.emplace_back(&communicator_->link(peer), kCollectives, header_, receive_ + offset, bytes);
}

void Collective::SendSlices(size_t stride, size_t bytes) {
  for (int peer : Others()) Send(peer, static_cast<size_t>(peer) * stride, bytes);
}

void Collective::ReceiveSlices(size_t stride, size_t bytes) {
  for (int peer : Others()) Receive(peer, static_cast<size_t>(peer) * stride, bytes);
}

void Collective::Reduce(size_t send_offset, size_t receive_offset, size_t elements) {
  // Bits stay as they are where nothing is computed.
  if (communicator_->ranks() == 1 && operation_.reduction != Reduction::kPreMulSum)
    return CopyOwn(send_offset, receive_offset, elements * element_);
  std::vector<Incoming> peers;
  for (int peer : Others()) peers.emplace_back(&communicator_->link(peer), kCollectives, header_);
  stages_.back().fold.emplace(Fold::Shape{static_cast<ncclDataType_t>(operation_.type),
                                          operation_.reduction,
                                          communicator_->rank(),
                                          {send_ + send_offset, operation_.scalar},
                                          elements,
                                          receive_ + receive_offset,
                                          staging_,
                                          kStagingBytes},
                              std::move(peers));
}

void Collective::CopyOwn(size_t send_offset, size_t receive_offset, size_t bytes) {
  if (send_ + send_offset != receive_ + receive_offset)
    std::memmove(receive_ + receive_offset, send_ + send_offset, bytes);
}

void Collective::PlanAllReduce() {
  const auto ranks = static_cast<uint64_t>(communicator_->ranks());
  const auto first = [&](int rank) {
    // count * rank / ranks without the product, which may be too large.
    const auto r = static_cast<uint64_t>(rank);
    return operation_.count / ranks * r + operation_.count % ranks * r / ranks;
  };
  const auto elements = [&](int rank) { return first(rank + 1) - first(rank); };
  const int own = communicator_->rank();
  for (int peer : Others()) Send(peer, first(peer) * element_, elements(peer) * element_);
  Reduce(first(own) * element_, first(own) * element_, elements(own));
  NextStage();
  for (int peer : Others()) {
    Send(peer, first(own) * element_, elements(own) * element_);
    Receive(peer, first(peer) * element_, elements(peer) * element_);
  }
}

void Collective::Plan() {
  const size_t one = operation_.count * element_;
  const auto own = static_cast<size_t>(communicator_->rank()) * one;
  const bool root = operation_.peer == communicator_->rank();
  switch (operation_.kind) {
    case Kind::kBroadcast:
      if (!root) return Receive(operation_.peer, 0, one);
      CopyOwn(0, 0, one);
      return SendSlices(0, one);
    case Kind::kReduce:
      return root ? Reduce(0, 0, operation_.count) : Send(operation_.peer, 0, one);
    case Kind::kAllReduce:
      return PlanAllReduce();
    case Kind::kReduceScatter:
      SendSlices(one, one);
      return Reduce(own, 0, operation_.count);
    case Kind::kAllGather:
      CopyOwn(0, own, one);
      SendSlices(0, one);
      return ReceiveSlices(one, one);
    case Kind::kAlltoAll:
      CopyOwn(own, own, one);
      SendSlices(one, one);
      return ReceiveSlices(one, one);
    case Kind::kGather:
      if (!root) return Send(operation_.peer, 0, one);
      CopyOwn(0, own, one);
      return ReceiveSlices(one, one);
    case Kind::kScatter:
      if (!root) return Receive(operation_.peer, 0, one);
      CopyOwn(own, 0, one);
      return SendSlices(one, one);
    default:
      return;
  }
}

Progress Collective::Mismatch(const Incoming& incoming) {
  mismatch_ =
      "this rank does " + Describe(incoming.expected()) + ", another one " + Describe(incoming.header());
  return Progress::kMismatch;
}

namespace {

// Steps each of the flows and drops those that are done. Null, or the one that does not fit.
template <typename Flow>
const Flow* StepAll(std::vector<Flow>* flows, bool* moved) {
  for (auto each = flows->begin(); each != flows->end();) {
    const Progress progress = each->Step();
    if (progress == Progress::kMismatch) return &*each;
    *moved |= progress != Progress::kIdle;
    each = progress == Progress::kDone ? flows->erase(each) : std::next(each);
  }
  return nullptr;
}

}  // namespace

Progress Collective::Step() {
  if (stages_.empty()) return Progress::kDone;
  Stage& stage = stages_.front();
  bool moved = false;
  if (StepAll(&stage.out, &moved) != nullptr) {
    mismatch_ = "the memory shared with another rank was spoilt";
    return Progress::kMismatch;
  }
  if (const Incoming* wrong = StepAll(&stage.in, &moved); wrong != nullptr) return Mismatch(*wrong);
  if (stage.fold) {
    const Progress progress = stage.fold->Step();
    if (progress == Progress::kMismatch) return Mismatch(stage.fold->mismatch());
    moved |= progress != Progress::kIdle;
    if (progress == Progress::kDone) stage.fold.reset();
  }
  if (!stage.out.empty() || !stage.in.empty() || stage.fold)
    return moved ? Progress::kMoved : Progress::kIdle;
  stages_.pop_front();
  return stages_.empty() ? Progress::kDone : Progress::kMoved;
}

}  // namespace softgpu::nccl

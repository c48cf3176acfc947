#include "softgpu/nccl/communicator.h"

#include <algorithm>

#include "softgpu/nccl/log.h"

namespace softgpu::nccl {

namespace {

std::atomic<uint64_t> next_id{1};

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t mixed = a + 0x9E3779B97F4A7C15u * (b + 1);
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return mixed ^ (mixed >> 31);
}

ncclResult_t AsResult(const std::atomic<int>& value) { return static_cast<ncclResult_t>(value.load()); }

}  // namespace

Communicator::Communicator(const ncclConfig_t& config) : id_(next_id.fetch_add(1)), config_(config) {
  // The caller's strings may go.
  for (auto [text, kept] : {std::pair{&config_.commName, &name_}, std::pair{&config_.netName, &net_name_}}) {
    if (*text == nullptr) continue;
    *kept = *text;
    *text = kept->c_str();
  }
}

Communicator::~Communicator() { Close(true); }

ncclResult_t Communicator::Prepare(PeerInfo* self, const Communicator* parent) {
  return parent == nullptr ? device_.Take(self) : device_.TakeBeside(parent->device_, self);
}

void Communicator::Await(std::shared_ptr<SetupRun> run, std::shared_ptr<Setup> setup) {
  std::lock_guard lock(mutex_);
  // Aborted before it began.
  if (closed_) run->Cancel();
  run_ = std::move(run);
  setup_ = std::move(setup);
}

void Communicator::ForgetSetup() {
  std::lock_guard lock(mutex_);
  run_.reset();
  setup_.reset();
}

ncclResult_t Communicator::Begin() {
  membership_ = setup_->TakeMembership();
  setup_.reset();
  const bool alone = std::none_of(membership_.links.begin(), membership_.links.end(),
                                  [](const Link& link) { return link.remote(); });
  if (!alone) {
    proxy_ = std::make_unique<Proxy>(&membership_.links, membership_.inbox->bell(),
                                     [this](int peer, Proxy::Event event) { OnProxy(peer, event); });
    if (!proxy_->Start()) return Fail(ncclSystemError, "no thread for the connections");
  }
  ready_.store(true);
  return ncclSuccess;
}

ncclResult_t Communicator::EndSetup(ncclResult_t result) {
  std::lock_guard lock(mutex_);
  if (closed_) result = Fail(ncclInternalError, "the initialisation was aborted");
  if (result == ncclSuccess) result = Begin();
  state_.store(result);
  return result;
}

void Communicator::OnProxy(int peer, Proxy::Event event) {
  // The reason first: who sees the error asks for it.
  if (error_.load() == ncclSuccess)
    Fail(ncclRemoteError,
         event == Proxy::Event::kDied ? "rank %d: rank %d is gone, its process ended or it aborted"
                                      : "rank %d: rank %d failed",
         rank(), peer);
  int none = ncclSuccess;
  error_.compare_exchange_strong(none, ncclRemoteError);
  bell().Ring();
}

void Communicator::ReportError(ncclResult_t error) {
  int none = ncclSuccess;
  if (!error_.compare_exchange_strong(none, error)) return;
  membership_.clique->Fail(rank());
  if (proxy_ != nullptr) proxy_->SendFailed();
}

ncclResult_t Communicator::AsyncError() const {
  if (state_.load() != ncclSuccess) return AsResult(state_);
  if (error_.load() != ncclSuccess) return AsResult(error_);
  const int failed = membership_.clique->failed();
  return failed < 0 || failed == rank() ? ncclSuccess : ncclRemoteError;
}

ncclResult_t Communicator::Splittable() const {
  if (state_.load() == ncclInProgress)
    return Fail(ncclInvalidArgument,
                "Attempt to use communicator before the previous operation returned ncclSuccess");
  if (finalized_.load()) return Fail(ncclInvalidUsage, "the communicator was finalized");
  return AsResult(state_);
}

ncclResult_t Communicator::Usable() const {
  NCCL_TRY(Splittable());
  if (stopped()) return Fail(ncclInvalidUsage, "the communicator was revoked");
  return AsyncError();
}

ncclResult_t Communicator::Flush() {
  NCCL_TRY(device_.Flush());
  // Launches of graphs.
  for (uint32_t running; (running = running_.load()) != 0;) running_.wait(running);
  return ncclSuccess;
}

ncclResult_t Communicator::Finalize() {
  NCCL_TRY(Usable());
  finalized_.store(true);
  if (blocking()) return Flush();
  state_.store(ncclInProgress);
  std::lock_guard lock(mutex_);
  const bool started = finalizer_.Start("nccl-finalize", [this] { state_.store(Flush()); });
  if (!started) state_.store(ncclSystemError);
  return started ? ncclInProgress : Fail(ncclSystemError, "no thread to finalize the communicator");
}

void Communicator::Revoke() {
  stopped_.store(true);
  bell().Ring();
  for (uint32_t running; (running = running_.load()) != 0;) running_.wait(running);
}

void Communicator::Close(bool abort) {
  std::shared_ptr<SetupRun> run;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    run = run_;
  }
  closing_.store(true);
  if (run != nullptr) {
    run->Cancel();
    run->Join();
  }
  const bool ready = ready_.load();
  if (ready) bell().Ring();
  if (!abort) finalizer_.Join(stasis::Deadline::Never());
  const bool good_order =
      ready && !abort && !stopped() && Flush() == ncclSuccess && AsyncError() == ncclSuccess;
  stopped_.store(true);
  if (ready) bell().Ring();
  for (uint32_t running; (running = running_.load()) != 0;) running_.wait(running);
  finalizer_.Join(stasis::Deadline::Never());
  Release(good_order);
}

void Communicator::Release(bool good_order) {
  if (proxy_ != nullptr) proxy_->Stop(good_order);
  proxy_.reset();
  membership_.links.clear();
  membership_.door.reset();
  membership_.inbox.reset();
  device_.Release();
}

bool Communicator::Enter() {
  running_.fetch_add(1);
  while (!stopped()) {
    const uint32_t seen = bell().Count();
    if (!busy_.exchange(true)) return true;
    bell().Wait(seen);
  }
  if (running_.fetch_sub(1) == 1) running_.notify_all();
  return false;
}

void Communicator::Leave() {
  busy_.store(false);
  bell().Ring();
  if (running_.fetch_sub(1) == 1) running_.notify_all();
}

SetupRequest Communicator::Meet(const std::vector<int>& participants) {
  std::lock_guard lock(mutex_);
  SetupRequest request;
  const bool all = participants.size() == static_cast<size_t>(ranks());
  request.secret = Mix(membership_.secret, all ? ++meetings_ : ~++partial_meetings_);
  for (int each : participants) request.secret = Mix(request.secret, static_cast<uint64_t>(each));
  const auto place = std::find(participants.begin(), participants.end(), rank());
  request.ranks = static_cast<int>(participants.size());
  request.rank = static_cast<int>(place - participants.begin());
  request.meeting = membership_.peers[participants.front()].address;
  if (request.rank == 0) request.host = membership_.door;
  return request;
}

ncclResult_t Communicator::CheckSelfMessages(const Batch& batch) const {
  std::vector<uint64_t> sent, received;
  for (const Operation& each : batch.operations) {
    if (each.peer != rank()) continue;
    const uint64_t bytes = each.count * ElementBytes(each.type);
    if (each.kind == Kind::kSend) sent.push_back(bytes);
    if (each.kind == Kind::kReceive) received.push_back(bytes);
  }
  if (sent == received) return ncclSuccess;
  return Fail(ncclInvalidUsage, "a send to the rank itself without a receive that fits it in the same group");
}

uint64_t Communicator::KeepList(const std::vector<Operation>& operations) {
  std::lock_guard lock(mutex_);
  const uint64_t list = next_list_++;
  lists_[list] = std::make_shared<const std::vector<Operation>>(operations);
  return list;
}

std::shared_ptr<const std::vector<Operation>> Communicator::TakeList(uint64_t list, bool keep) {
  std::lock_guard lock(mutex_);
  const auto found = lists_.find(list);
  if (found == lists_.end()) return nullptr;
  auto operations = found->second;
  if (!keep) lists_.erase(found);
  return operations;
}

ncclResult_t Communicator::Launch(const Batch& batch) {
  NCCL_TRY(CheckSelfMessages(batch));
  LaunchedOperations launched;
  launched.communicator = id_;
  launched.count = static_cast<uint32_t>(batch.operations.size());
  if (launched.count <= LaunchedOperations::kInline) {
    std::copy(batch.operations.begin(), batch.operations.end(), launched.operations);
  } else {
    launched.list = KeepList(batch.operations);
  }
  std::vector<CUstream> streams;
  for (CUstream stream : batch.streams) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  }
  const ncclResult_t result = device_.Launch(streams, &launched);
  if (result != ncclSuccess && launched.list != 0) TakeList(launched.list, false);
  return result;
}

ncclResult_t Communicator::AddReduction(const Factor& factor, ncclRedOp_t* op) {
  std::lock_guard lock(mutex_);
  if (next_reduction_ > ncclMaxRedOp) return Fail(ncclInternalError, "no reduction operator is left");
  *op = static_cast<ncclRedOp_t>(next_reduction_);
  factors_[next_reduction_++] = factor;
  return ncclSuccess;
}

ncclResult_t Communicator::RemoveReduction(ncclRedOp_t op) {
  std::lock_guard lock(mutex_);
  if (factors_.erase(op) == 0)
    return Fail(ncclInvalidArgument, "ncclRedOpDestroy: %d is no operator of this communicator",
                static_cast<int>(op));
  return ncclSuccess;
}

ncclResult_t Communicator::FindReduction(ncclRedOp_t op, ncclDataType_t type, Operation* operation) const {
  static constexpr Reduction kBuiltIn[ncclNumOps] = {Reduction::kSum, Reduction::kProd, Reduction::kMax,
                                                     Reduction::kMin, Reduction::kAvg};
  const int number = op;
  if (number >= 0 && number < ncclNumOps) {
    operation->reduction = kBuiltIn[number];
    return ncclSuccess;
  }
  std::lock_guard lock(mutex_);
  const auto found = factors_.find(number);
  if (found == factors_.end()) return Fail(ncclInvalidArgument, "invalid reduction operator %d", number);
  if (found->second.type != type)
    return Fail(ncclInvalidArgument, "the reduction operator was made for %s, not %s",
                TypeName(found->second.type), TypeName(type));
  operation->reduction = Reduction::kPreMulSum;
  operation->scalar = found->second.scalar;
  operation->scalar_on_device = found->second.on_device;
  return ncclSuccess;
}

void* Communicator::AddRegistration() {
  std::lock_guard lock(mutex_);
  void* handle = new char;
  registrations_.insert(handle);
  return handle;
}

bool Communicator::RemoveRegistration(void* handle) {
  std::lock_guard lock(mutex_);
  if (registrations_.erase(handle) == 0) return false;
  delete static_cast<char*>(handle);
  return true;
}

}  // namespace softgpu::nccl

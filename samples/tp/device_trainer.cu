#include "../common/cuda_check.h"
#include "../ranks/environment.h"
#include "../ranks/nccl_check.h"
#include "../ranks/network_device.h"
#include "config.h"

namespace tp {
namespace {

namespace device = ranks::device;
using Floats = device::Array<float>;
using Sums = device::Array<int64_t>;

// A stream, and the ranks that what is done there is done together with, if any.
struct Lane {
  cudaStream_t stream = nullptr;
  cudaEvent_t done = nullptr;
  ncclComm_t comm = nullptr;
};

// What a block leaves behind going forward, for the way back. "own" is of the rank's own examples.
struct Block {
  Floats own, dx_own;
  Floats x, hidden;
};

class DeviceTrainer : public Trainer {
 public:
  explicit DeviceTrainer(const Config& config)
      : config_(config),
        environment_(ranks::ReadEnvironment()),
        rank_(environment_.rank),
        grid_(config, environment_.ranks),
        pace_(ranks::PaceOf(config.pace_ms, config.seed, rank_)) {
    CUDA_CHECK(cudaSetDevice(ranks::ChooseDevice(config.device, environment_, 1)));
    for (Lane* lane : {&compute_, &tensor_, &data_, &metrics_}) {
      CUDA_CHECK(cudaStreamCreate(&lane->stream));
      CUDA_CHECK(cudaEventCreateWithFlags(&lane->done, cudaEventDisableTiming));
    }
    Allocate();
    MakeCommunicators();
    // All groups begin with the same weights and examples.
    for (const Floats* array : {&weights_, &table_})
      NCCL_CHECK(ncclBroadcast(array->get(), array->get(), array->count(), ncclFloat32, 0, data_.comm,
                               compute_.stream));
  }

  ~DeviceTrainer() override {
    CUDA_CHECK(cudaDeviceSynchronize());
    for (Lane* lane : {&tensor_, &data_, &metrics_}) NCCL_CHECK(ncclCommDestroy(lane->comm));
    NCCL_CHECK(ncclCommDestroy(world_));
    for (Lane* lane : {&compute_, &tensor_, &data_, &metrics_}) {
      CUDA_CHECK(cudaEventDestroy(lane->done));
      CUDA_CHECK(cudaStreamDestroy(lane->stream));
    }
  }

  void Train(int step) override {
    Follow(&metrics_, &compute_);
    Clear(gradient_);
    Clear(loss_);
    device::Take(table_.get(), config_.rows, {grid_.examples, config_.inputs, config_.inputs}, config_.seed,
                 step, grid_.group_of(rank_) * config_.batch + grid_.part_of(rank_) * grid_.examples,
                 blocks_[0].own.get(), targets_.get(), compute_.stream);
    for (int block = 0; block < config_.blocks; ++block) Forward(block);
    device::AddLoss(grid_.examples, config_.inputs, blocks_.back().own.get(), targets_.get(),
                    blocks_.back().dx_own.get(), loss_.get(), compute_.stream);
    AddUp(&metrics_, loss_.get(), 1);
    for (int block = config_.blocks - 1; block >= 0; --block) Backward(block);
    Follow(&data_, &compute_);
    device::Update(ranks::MakeStep(config_.rate, grid_.data * config_.batch), gradient_.get(), weights_.get(),
                   velocity_.get(), grid_.weights, compute_.stream);
  }

  double Loss() override {
    int64_t loss = 0;
    CUDA_CHECK(cudaMemcpyAsync(&loss, loss_.get(), sizeof(loss), cudaMemcpyDeviceToHost, metrics_.stream));
    CUDA_CHECK(cudaStreamSynchronize(metrics_.stream));
    return static_cast<double>(loss) / ranks::kFixed / (grid_.data * config_.batch);
  }

  int first_rank() const override { return rank_; }

  std::vector<std::vector<float>> Weights() override {
    CUDA_CHECK(cudaStreamSynchronize(compute_.stream));
    return {weights_.Get()};
  }

  void Exchange(sample::SavedState* state) override {
    CUDA_CHECK(cudaStreamSynchronize(compute_.stream));
    for (Floats* array : {&weights_, &velocity_}) array->Exchange(state);
  }

 private:
  void Allocate() {
    const size_t inputs = static_cast<size_t>(config_.inputs);
    weights_ = Floats(grid_.weights);
    velocity_ = Floats(grid_.weights);
    table_ = Floats(static_cast<size_t>(config_.rows) * 2 * inputs);
    gradient_ = Sums(grid_.weights);
    loss_ = Sums(1);
    targets_ = Floats(grid_.examples * inputs);
    dy_ = Floats(config_.batch * inputs);
    dhidden_ = Floats(static_cast<size_t>(config_.batch) * grid_.first.outputs);
    partial_ = Sums(config_.batch * inputs);
    sum_ = Sums(grid_.examples * inputs);
    for (int i = 0; i <= config_.blocks; ++i) {
      Block block;
      block.own = Floats(grid_.examples * inputs);
      block.dx_own = Floats(grid_.examples * inputs);
      block.x = Floats(config_.batch * inputs);
      block.hidden = Floats(dhidden_.count());
      blocks_.push_back(std::move(block));
    }
    if (grid_.group_of(rank_) != 0) return;
    weights_.Set(StartPart(config_, grid_, grid_.part_of(rank_)));
    device::MakeTable(config_.seed, config_.rows, config_.inputs, config_.inputs, table_.get(),
                      compute_.stream);
  }

  // One of all ranks, two that are split off it, and one of its own for what is told about a step.
  void MakeCommunicators() {
    const std::vector<ncclUniqueId> ids = ranks::ShareIds(environment_, 2);
    const int group = grid_.group_of(rank_), part = grid_.part_of(rank_);
    NCCL_CHECK(ncclCommInitRank(&world_, environment_.ranks, ids[0], rank_));
    NCCL_CHECK(ncclCommSplit(world_, group, part, &tensor_.comm, nullptr));
    NCCL_CHECK(ncclCommSplit(world_, part, group, &data_.comm, nullptr));
    NCCL_CHECK(ncclCommInitRank(&metrics_.comm, environment_.ranks, ids[1], rank_));
  }

  // What `to` is given from now on waits for what `from` has been given up to now.
  void Follow(Lane* from, Lane* to) {
    CUDA_CHECK(cudaEventRecord(from->done, from->stream));
    CUDA_CHECK(cudaStreamWaitEvent(to->stream, from->done, 0));
  }

  void Clear(const Sums& sums) {
    CUDA_CHECK(cudaMemsetAsync(sums.get(), 0, sums.count() * sizeof(int64_t), compute_.stream));
  }

  void Gather(const Floats& own, const Floats& all) {
    Follow(&compute_, &tensor_);
    NCCL_CHECK(ncclAllGather(own.get(), all.get(), own.count(), ncclFloat32, tensor_.comm, tensor_.stream));
    Follow(&tensor_, &compute_);
  }

  // partial_ of all ranks of the group, of the rank's own examples, in sum_.
  void Scatter() {
    Follow(&compute_, &tensor_);
    NCCL_CHECK(ncclReduceScatter(partial_.get(), sum_.get(), sum_.count(), ncclInt64, ncclSum, tensor_.comm,
                                 tensor_.stream));
    Follow(&tensor_, &compute_);
  }

  void AddUp(Lane* lane, int64_t* sums, size_t count) {
    Follow(&compute_, lane);
    NCCL_CHECK(ncclAllReduce(sums, sums, count, ncclInt64, ncclSum, lane->comm, lane->stream));
  }

  void Forward(int at) {
    pace_.Wait();
    const Block& block = blocks_[at];
    const float* const w1 = weights_.get() + 2 * grid_.layer * at;
    Gather(block.own, block.x);
    device::Forward(grid_.first, block.x.get(), w1, true, block.hidden.get(), compute_.stream);
    device::ForwardFixed(grid_.second, block.hidden.get(), w1 + grid_.layer, partial_.get(), compute_.stream);
    Scatter();
    device::AddFixed(block.own.get(), sum_.get(), blocks_[at + 1].own.get(), sum_.count(), compute_.stream);
  }

  void Backward(int at) {
    pace_.Wait();
    const Block& block = blocks_[at];
    const float* const w1 = weights_.get() + 2 * grid_.layer * at;
    int64_t* const gradient = gradient_.get() + 2 * grid_.layer * at;
    Gather(blocks_[at + 1].dx_own, dy_);
    device::AddGradient(grid_.second, dy_.get(), block.hidden.get(), gradient + grid_.layer, compute_.stream);
    device::BackwardInput(grid_.second, dy_.get(), w1 + grid_.layer, block.hidden.get(), true, dhidden_.get(),
                          compute_.stream);
    device::AddGradient(grid_.first, dhidden_.get(), block.x.get(), gradient, compute_.stream);
    AddUp(&data_, gradient, 2 * grid_.layer);
    if (at == 0) return;
    device::BackwardInputFixed(grid_.first, dhidden_.get(), w1, partial_.get(), compute_.stream);
    Scatter();
    device::AddFixed(blocks_[at + 1].dx_own.get(), sum_.get(), block.dx_own.get(), sum_.count(),
                     compute_.stream);
  }

  const Config config_;
  const ranks::Environment environment_;
  const int rank_;
  const Grid grid_;
  sample::Pace pace_;
  Lane compute_, tensor_, data_, metrics_;
  ncclComm_t world_ = nullptr;
  Floats weights_, velocity_, table_, targets_;
  Sums gradient_, loss_;
  std::vector<Block> blocks_;  // and one more, for what comes out of the last
  Floats dy_, dhidden_;        // of all examples of the group
  Sums partial_, sum_;
};

}  // namespace

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config) {
  return std::make_unique<DeviceTrainer>(config);
}

}  // namespace tp

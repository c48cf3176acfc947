#include <algorithm>

#include "../common/cuda_check.h"
#include "../ranks/environment.h"
#include "../ranks/nccl_check.h"
#include "../ranks/network_device.h"
#include "config.h"

namespace pipeline {
namespace {

namespace device = ranks::device;
using Floats = device::Array<float>;

// What a micro-batch leaves behind going forward, for the way back.
struct MicroBatch {
  std::vector<Floats> x;   // what goes into each layer, and what comes out of the last
  std::vector<Floats> dx;  // their gradients
  Floats targets;
};

class DeviceTrainer : public Trainer {
 public:
  explicit DeviceTrainer(const Config& config)
      : config_(config),
        environment_(ranks::ReadEnvironment()),
        rank_(environment_.rank),
        stage_(config, rank_, environment_.ranks),
        pace_(ranks::PaceOf(config.pace_ms, config.seed, rank_)) {
    CUDA_CHECK(cudaSetDevice(ranks::ChooseDevice(config.device, environment_, 1)));
    CUDA_CHECK(cudaStreamCreate(&stream_));
    Allocate();
    const ncclUniqueId id = ranks::ShareIds(environment_, 1)[0];
    NCCL_CHECK(ncclCommInitRank(&comm_, environment_.ranks, id, rank_));
  }

  ~DeviceTrainer() override {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    NCCL_CHECK(ncclCommDestroy(comm_));
    CUDA_CHECK(cudaStreamDestroy(stream_));
  }

  // One forward and one backward in turn, once each stage behind this one has something to do.
  void Train(int step) override {
    CUDA_CHECK(cudaMemsetAsync(gradient_.get(), 0, gradient_.count() * sizeof(int64_t), stream_));
    CUDA_CHECK(cudaMemsetAsync(loss_.get(), 0, sizeof(int64_t), stream_));
    const int all = config_.micro_batches, ahead = std::min(environment_.ranks - 1 - rank_, all);
    for (int micro = 0; micro < ahead; ++micro) {
      ReceiveForward(micro);
      Forward(step, micro);
      SendForward(micro);
    }
    if (ahead < all) ReceiveForward(ahead);
    for (int micro = 0; micro + ahead < all; ++micro) {
      Forward(step, micro + ahead);
      NCCL_CHECK(ncclGroupStart());
      SendForward(micro + ahead);
      ReceiveBackward(micro);
      NCCL_CHECK(ncclGroupEnd());
      Backward(micro);
      NCCL_CHECK(ncclGroupStart());
      SendBackward(micro);
      if (micro + ahead + 1 < all) ReceiveForward(micro + ahead + 1);
      NCCL_CHECK(ncclGroupEnd());
    }
    for (int micro = all - ahead; micro < all; ++micro) {
      ReceiveBackward(micro);
      Backward(micro);
      SendBackward(micro);
    }
    device::Update(ranks::MakeStep(config_.rate, all * config_.batch), gradient_.get(), weights_.get(),
                   velocity_.get(), stage_.weights, stream_);
    NCCL_CHECK(ncclBroadcast(loss_.get(), loss_.get(), 1, ncclInt64, environment_.ranks - 1, comm_, stream_));
  }

  double Loss() override {
    int64_t loss = 0;
    CUDA_CHECK(cudaMemcpyAsync(&loss, loss_.get(), sizeof(loss), cudaMemcpyDeviceToHost, stream_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    return static_cast<double>(loss) / ranks::kFixed / (config_.micro_batches * config_.batch);
  }

  int first_rank() const override { return rank_; }

  std::vector<std::vector<float>> Weights() override {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    return {weights_.Get()};
  }

  void Exchange(sample::SavedState* state) override {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    for (Floats* array : {&weights_, &velocity_}) array->Exchange(state);
  }

 private:
  void Allocate() {
    weights_ = Floats(stage_.weights);
    weights_.Set(stage_.Start());
    velocity_ = Floats(stage_.weights);
    gradient_ = device::Array<int64_t>(stage_.weights);
    loss_ = device::Array<int64_t>(1);
    for (int i = 0; i < config_.micro_batches; ++i) {
      MicroBatch micro;
      for (int layer = 0; layer <= stage_.layers(); ++layer) {
        const size_t width = layer == 0 ? stage_.shapes[0].inputs : stage_.shapes[layer - 1].outputs;
        micro.x.emplace_back(config_.batch * width);
        micro.dx.emplace_back(config_.batch * width);
      }
      micro.targets = Floats(static_cast<size_t>(config_.batch) * config_.outputs);
      micro_batches_.push_back(std::move(micro));
    }
    if (!stage_.first && !stage_.last) return;
    table_ = Floats(static_cast<size_t>(config_.rows) * (config_.inputs + config_.outputs));
    features_ = Floats(static_cast<size_t>(config_.batch) * config_.inputs);
    device::MakeTable(config_.seed, config_.rows, config_.inputs, config_.outputs, table_.get(), stream_);
  }

  // The first stage learns from the features, the last one from the targets.
  void TakeExamples(int step, int at) {
    MicroBatch& micro = micro_batches_[at];
    device::Take(table_.get(), config_.rows, {config_.batch, config_.inputs, config_.outputs}, config_.seed,
                 step, at * config_.batch, (stage_.first ? micro.x[0] : features_).get(), micro.targets.get(),
                 stream_);
  }

  void Forward(int step, int at) {
    pace_.Wait();
    if (stage_.first || stage_.last) TakeExamples(step, at);
    MicroBatch& micro = micro_batches_[at];
    for (int layer = 0; layer < stage_.layers(); ++layer) {
      const bool rectify = !stage_.last || layer + 1 < stage_.layers();
      device::Forward(stage_.shapes[layer], micro.x[layer].get(), weights_.get() + stage_.offsets[layer],
                      rectify, micro.x[layer + 1].get(), stream_);
    }
    if (stage_.last)
      device::AddLoss(config_.batch, config_.outputs, micro.x.back().get(), micro.targets.get(),
                      micro.dx.back().get(), loss_.get(), stream_);
  }

  void Backward(int at) {
    pace_.Wait();
    MicroBatch& micro = micro_batches_[at];
    for (int layer = stage_.layers() - 1; layer >= 0; --layer) {
      const float* const dy = micro.dx[layer + 1].get();
      const ranks::Shape& shape = stage_.shapes[layer];
      device::AddGradient(shape, dy, micro.x[layer].get(), gradient_.get() + stage_.offsets[layer], stream_);
      if (stage_.first && layer == 0) return;
      device::BackwardInput(shape, dy, weights_.get() + stage_.offsets[layer], micro.x[layer].get(), true,
                            micro.dx[layer].get(), stream_);
    }
  }

  void Send(const Floats& values, int to) {
    NCCL_CHECK(ncclSend(values.get(), values.count(), ncclFloat32, to, comm_, stream_));
  }
  void Receive(const Floats& values, int from) {
    NCCL_CHECK(ncclRecv(values.get(), values.count(), ncclFloat32, from, comm_, stream_));
  }
  void ReceiveForward(int at) {
    if (!stage_.first) Receive(micro_batches_[at].x.front(), rank_ - 1);
  }
  void SendForward(int at) {
    if (!stage_.last) Send(micro_batches_[at].x.back(), rank_ + 1);
  }
  void ReceiveBackward(int at) {
    if (!stage_.last) Receive(micro_batches_[at].dx.back(), rank_ + 1);
  }
  void SendBackward(int at) {
    if (!stage_.first) Send(micro_batches_[at].dx.front(), rank_ - 1);
  }

  const Config config_;
  const ranks::Environment environment_;
  const int rank_;
  const Stage stage_;
  sample::Pace pace_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  Floats table_, features_, weights_, velocity_;
  device::Array<int64_t> gradient_, loss_;
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config) {
  return std::make_unique<DeviceTrainer>(config);
}

}  // namespace pipeline

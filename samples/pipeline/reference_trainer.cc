#include "config.h"

namespace pipeline {

Stage::Stage(const Config& config, int rank, int ranks)
    : first(rank == 0), last(rank + 1 == ranks), seed_(config.seed), first_layer_(rank * config.layers) {
  for (int layer = 0; layer < config.layers; ++layer) {
    shapes.push_back({config.batch, first && layer == 0 ? config.inputs : config.width,
                      last && layer + 1 == config.layers ? config.outputs : config.width});
    offsets.push_back(weights);
    weights += static_cast<size_t>(shapes.back().inputs) * static_cast<size_t>(shapes.back().outputs);
  }
}

std::vector<float> Stage::Start() const {
  std::vector<float> all;
  for (int layer = 0; layer < layers(); ++layer) {
    const ranks::Shape& shape = shapes[layer];
    const std::vector<float> some =
        ranks::StartWeights(seed_, first_layer_ + layer, shape.inputs, shape.outputs);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

namespace {

namespace host = ranks::host;

// The stages one after the other, a whole micro-batch at a time.
class ReferenceTrainer : public Trainer {
 public:
  explicit ReferenceTrainer(const Config& config)
      : config_(config), table_(static_cast<size_t>(config.rows) * (config.inputs + config.outputs)) {
    host::MakeTable(config.seed, config.rows, config.inputs, config.outputs, table_.data());
    for (int rank = 0; rank < config.ranks; ++rank) {
      stages_.emplace_back(config, rank, config.ranks);
      weights_.push_back(stages_[rank].Start());
      velocity_.emplace_back(weights_[rank].size());
    }
  }

  void Train(int step) override {
    loss_ = 0;
    gradient_.clear();
    for (const Stage& stage : stages_) gradient_.emplace_back(stage.weights);
    for (int micro = 0; micro < config_.micro_batches; ++micro) AddMicroBatch(step, micro);
    const ranks::Step update = ranks::MakeStep(config_.rate, config_.micro_batches * config_.batch);
    for (size_t rank = 0; rank < stages_.size(); ++rank)
      host::Update(update, gradient_[rank].data(), weights_[rank].data(), velocity_[rank].data(),
                   weights_[rank].size());
  }

  double Loss() override {
    return static_cast<double>(loss_) / ranks::kFixed / (config_.micro_batches * config_.batch);
  }
  int first_rank() const override { return 0; }
  std::vector<std::vector<float>> Weights() override { return weights_; }

 private:
  void AddMicroBatch(int step, int micro) {
    std::vector<std::vector<float>> x(
        1, std::vector<float>(static_cast<size_t>(config_.batch) * config_.inputs));
    std::vector<float> targets(static_cast<size_t>(config_.batch) * config_.outputs), dy(targets.size());
    host::Take(table_.data(), config_.rows, {config_.batch, config_.inputs, config_.outputs}, config_.seed,
               step, micro * config_.batch, x[0].data(), targets.data());
    for (size_t rank = 0; rank < stages_.size(); ++rank) {
      const Stage& stage = stages_[rank];
      for (int layer = 0; layer < stage.layers(); ++layer) {
        const bool rectify = !stage.last || layer + 1 < stage.layers();
        std::vector<float> y(static_cast<size_t>(config_.batch) * stage.shapes[layer].outputs);
        host::Forward(stage.shapes[layer], x.back().data(), &weights_[rank][stage.offsets[layer]], rectify,
                      y.data());
        x.push_back(y);
      }
    }
    host::AddLoss(config_.batch, config_.outputs, x.back().data(), targets.data(), dy.data(), &loss_);
    for (size_t rank = stages_.size(); rank-- > 0;) {
      for (int layer = stages_[rank].layers() - 1; layer >= 0; --layer) {
        x.pop_back();
        dy = BackwardLayer(rank, layer, x.back(), dy);
      }
    }
  }

  std::vector<float> BackwardLayer(size_t rank, int layer, const std::vector<float>& x,
                                   const std::vector<float>& dy) {
    const Stage& stage = stages_[rank];
    const size_t offset = stage.offsets[layer];
    std::vector<float> dx(x.size());
    host::AddGradient(stage.shapes[layer], dy.data(), x.data(), &gradient_[rank][offset]);
    host::BackwardInput(stage.shapes[layer], dy.data(), &weights_[rank][offset], x.data(), true, dx.data());
    return dx;
  }

  const Config config_;
  std::vector<Stage> stages_;
  std::vector<float> table_;
  std::vector<std::vector<float>> weights_, velocity_;  // by stage
  std::vector<std::vector<int64_t>> gradient_;
  int64_t loss_ = 0;
};

}  // namespace

std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config) {
  return std::make_unique<ReferenceTrainer>(config);
}

}  // namespace pipeline

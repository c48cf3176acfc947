#include "config.h"

namespace ddp {

Layout::Layout(const Config& config) {
  for (int layer = 0; layer < config.layers; ++layer) {
    shapes.push_back({config.batch, layer == 0 ? config.inputs : config.width,
                      layer + 1 == config.layers ? config.outputs : config.width});
    offsets.push_back(weights);
    weights += static_cast<size_t>(shapes.back().inputs) * static_cast<size_t>(shapes.back().outputs);
  }
}

std::vector<float> StartAll(const Config& config, const Layout& layout) {
  std::vector<float> all;
  for (int layer = 0; layer < layout.layers(); ++layer) {
    const ranks::Shape& shape = layout.shapes[layer];
    const std::vector<float> some = ranks::StartWeights(config.seed, layer, shape.inputs, shape.outputs);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

namespace {

namespace host = ranks::host;

class ReferenceTrainer : public Trainer {
 public:
  explicit ReferenceTrainer(const Config& config)
      : config_(config),
        layout_(config),
        table_(static_cast<size_t>(config.rows) * (config.inputs + config.outputs)),
        weights_(StartAll(config, layout_)),
        velocity_(layout_.weights) {
    host::MakeTable(config.seed, config.rows, config.inputs, config.outputs, table_.data());
  }

  void Train(int step) override {
    gradient_.assign(layout_.weights, 0);
    loss_ = 0;
    for (int rank = 0; rank < config_.ranks; ++rank) AddRank(step, rank);
    host::Update(ranks::MakeStep(config_.rate, config_.ranks * config_.batch), gradient_.data(),
                 weights_.data(), velocity_.data(), layout_.weights);
  }

  double Loss() override {
    return static_cast<double>(loss_) / ranks::kFixed / (config_.ranks * config_.batch);
  }
  int first_rank() const override { return 0; }
  std::vector<std::vector<float>> Weights() override {
    return std::vector<std::vector<float>>(static_cast<size_t>(config_.ranks), weights_);
  }

 private:
  void AddRank(int step, int rank) {
    const int layers = layout_.layers(), batch = config_.batch;
    std::vector<std::vector<float>> x(1, std::vector<float>(static_cast<size_t>(batch) * config_.inputs));
    std::vector<float> targets(static_cast<size_t>(batch) * config_.outputs), dy(targets.size());
    host::Take(table_.data(), config_.rows, {batch, config_.inputs, config_.outputs}, config_.seed, step,
               rank * batch, x[0].data(), targets.data());
    for (int layer = 0; layer < layers; ++layer) {
      const ranks::Shape& shape = layout_.shapes[layer];
      x.emplace_back(static_cast<size_t>(batch) * shape.outputs);
      host::Forward(shape, x[layer].data(), &weights_[layout_.offsets[layer]], layer + 1 < layers,
                    x[layer + 1].data());
    }
    host::AddLoss(batch, config_.outputs, x[layers].data(), targets.data(), dy.data(), &loss_);
    for (int layer = layers - 1; layer >= 0; --layer) {
      const ranks::Shape& shape = layout_.shapes[layer];
      host::AddGradient(shape, dy.data(), x[layer].data(), &gradient_[layout_.offsets[layer]]);
      std::vector<float> dx(x[layer].size());
      host::BackwardInput(shape, dy.data(), &weights_[layout_.offsets[layer]], x[layer].data(), true,
                          dx.data());
      dy.swap(dx);
    }
  }

  const Config config_;
  const Layout layout_;
  std::vector<float> table_, weights_, velocity_;
  std::vector<int64_t> gradient_;
  int64_t loss_ = 0;
};

}  // namespace

std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config) {
  return std::make_unique<ReferenceTrainer>(config);
}

}  // namespace ddp

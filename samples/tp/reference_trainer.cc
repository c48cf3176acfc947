#include "../common/fail.h"
#include "config.h"

namespace tp {
namespace {

namespace host = ranks::host;

// Small, so that a block does little at first.
constexpr float kSecondLayerScale = 0.25f;

void MustDivide(int whole, const char* what, int tensor) {
  if (whole % tensor != 0)
    sample::Fail(sample::kExitUsage, "--tensor %d does not divide %s, which is %d", tensor, what, whole);
}

}  // namespace

Grid::Grid(const Config& config, int ranks)
    : tensor(config.tensor > 0 ? config.tensor
             : ranks % 2 == 0  ? 2
                               : 1) {
  MustDivide(ranks, "the number of ranks", tensor);
  MustDivide(config.width, "--width", tensor);
  MustDivide(config.batch, "--batch", tensor);
  data = ranks / tensor;
  examples = config.batch / tensor;
  const int part = config.width / tensor;
  first = {config.batch, config.inputs, part};
  second = {config.batch, part, config.inputs};
  layer = static_cast<size_t>(part) * static_cast<size_t>(config.inputs);
  weights = 2 * layer * static_cast<size_t>(config.blocks);
}

std::vector<float> StartPart(const Config& config, const Grid& grid, int part) {
  std::vector<float> all;
  const size_t hidden = static_cast<size_t>(grid.first.outputs), inputs = static_cast<size_t>(config.inputs),
               from = hidden * static_cast<size_t>(part), width = static_cast<size_t>(config.width);
  for (int block = 0; block < config.blocks; ++block) {
    const std::vector<float> w1 = ranks::StartWeights(config.seed, 2 * block, config.inputs, config.width);
    all.insert(all.end(), w1.begin() + from * inputs, w1.begin() + (from + hidden) * inputs);
    const std::vector<float> w2 =
        ranks::StartWeights(config.seed, 2 * block + 1, config.width, config.inputs);
    for (size_t out = 0; out < inputs; ++out) {
      for (size_t in = from; in < from + hidden; ++in)
        all.push_back(kSecondLayerScale * w2[out * width + in]);
    }
  }
  return all;
}

namespace {

class ReferenceTrainer : public Trainer {
 public:
  explicit ReferenceTrainer(const Config& config)
      : config_(config),
        grid_(config, config.ranks),
        values_(static_cast<size_t>(config.batch) * static_cast<size_t>(config.inputs)),
        table_(static_cast<size_t>(config.rows) * 2 * config.inputs) {
    host::MakeTable(config.seed, config.rows, config.inputs, config.inputs, table_.data());
    for (int part = 0; part < grid_.tensor; ++part) {
      weights_.push_back(StartPart(config, grid_, part));
      velocity_.emplace_back(grid_.weights);
    }
  }

  void Train(int step) override {
    loss_ = 0;
    gradient_.assign(weights_.size(), std::vector<int64_t>(grid_.weights));
    for (int group = 0; group < grid_.data; ++group) AddGroup(step, group);
    const ranks::Step update = ranks::MakeStep(config_.rate, grid_.data * config_.batch);
    for (size_t part = 0; part < weights_.size(); ++part)
      host::Update(update, gradient_[part].data(), weights_[part].data(), velocity_[part].data(),
                   grid_.weights);
  }

  double Loss() override { return static_cast<double>(loss_) / ranks::kFixed / (grid_.data * config_.batch); }
  int first_rank() const override { return 0; }
  std::vector<std::vector<float>> Weights() override {
    std::vector<std::vector<float>> all;
    for (int rank = 0; rank < config_.ranks; ++rank) all.push_back(weights_[grid_.part_of(rank)]);
    return all;
  }

 private:
  using Hidden = std::vector<std::vector<float>>;  // by part

  void AddGroup(int step, int group) {
    std::vector<std::vector<float>> x(1, std::vector<float>(values_));
    std::vector<Hidden> hidden;
    std::vector<float> targets(values_), dy(values_);
    host::Take(table_.data(), config_.rows, {config_.batch, config_.inputs, config_.inputs}, config_.seed,
               step, group * config_.batch, x[0].data(), targets.data());
    for (int block = 0; block < config_.blocks; ++block) {
      hidden.emplace_back();
      x.push_back(ForwardBlock(block, x.back(), &hidden.back()));
    }
    host::AddLoss(config_.batch, config_.inputs, x.back().data(), targets.data(), dy.data(), &loss_);
    for (int block = config_.blocks - 1; block >= 0; --block)
      dy = BackwardBlock(block, x[block], hidden[block], dy);
  }

  std::vector<float> ForwardBlock(int block, const std::vector<float>& x, Hidden* hidden) {
    std::vector<int64_t> sum(values_), part_sum(values_);
    for (size_t part = 0; part < weights_.size(); ++part) {
      const float* const w1 = &weights_[part][2 * grid_.layer * block];
      hidden->emplace_back(static_cast<size_t>(config_.batch) * grid_.first.outputs);
      host::Forward(grid_.first, x.data(), w1, true, hidden->back().data());
      host::ForwardFixed(grid_.second, hidden->back().data(), w1 + grid_.layer, part_sum.data());
      for (size_t i = 0; i < values_; ++i) sum[i] += part_sum[i];
    }
    std::vector<float> y(values_);
    host::AddFixed(x.data(), sum.data(), y.data(), values_);
    return y;
  }

  std::vector<float> BackwardBlock(int block, const std::vector<float>& x, const Hidden& hidden,
                                   const std::vector<float>& dy) {
    std::vector<int64_t> sum(values_), part_sum(values_);
    for (size_t part = 0; part < weights_.size(); ++part) {
      const float* const w1 = &weights_[part][2 * grid_.layer * block];
      int64_t* const gradient = &gradient_[part][2 * grid_.layer * block];
      const std::vector<float>& h = hidden[part];
      std::vector<float> dh(h.size());
      host::AddGradient(grid_.second, dy.data(), h.data(), gradient + grid_.layer);
      host::BackwardInput(grid_.second, dy.data(), w1 + grid_.layer, h.data(), true, dh.data());
      host::AddGradient(grid_.first, dh.data(), x.data(), gradient);
      host::BackwardInputFixed(grid_.first, dh.data(), w1, part_sum.data());
      for (size_t i = 0; i < values_; ++i) sum[i] += part_sum[i];
    }
    std::vector<float> dx(values_);
    host::AddFixed(dy.data(), sum.data(), dx.data(), values_);
    return dx;
  }

  const Config config_;
  const Grid grid_;
  const size_t values_;  // of a group's activations between blocks
  std::vector<float> table_;
  std::vector<std::vector<float>> weights_, velocity_;  // by part
  std::vector<std::vector<int64_t>> gradient_;
  int64_t loss_ = 0;
};

}  // namespace

std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config) {
  return std::make_unique<ReferenceTrainer>(config);
}

}  // namespace tp

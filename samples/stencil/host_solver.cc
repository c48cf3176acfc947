#include <math.h>

#include <algorithm>

#include "config.h"

namespace stencil {

std::vector<double> InitialField(const Config& config) {
  std::vector<double> field(static_cast<size_t>(config.width) * config.height);
  for (int column = 0; column < config.width; ++column) {
    const double along = static_cast<double>(column) / (config.width - 1);
    field[column] = 400 * along * (1 - along);
  }
  const int row = config.height / 3;
  const int column = config.width / 3;
  field[static_cast<size_t>(row) * config.width + column] = 50;
  return field;
}

namespace {

class HostSolver : public Solver {
 public:
  explicit HostSolver(const Config& config)
      : width_(config.width), height_(config.height), now_(InitialField(config)), next_(now_) {}

  double Advance(int iterations) override {
    double residual = 0;
    for (int i = 0; i < iterations; ++i) residual = Iterate();
    return residual;
  }

  std::vector<double> Field() override { return now_; }

 private:
  double Iterate() {
    double residual = 0;
    for (int row = 1; row + 1 < height_; ++row) {
      for (int column = 1; column + 1 < width_; ++column) {
        residual = std::max(residual, UpdatePoint(static_cast<size_t>(row) * width_ + column));
      }
    }
    now_.swap(next_);
    return residual;
  }

  // Compiled without contraction to fused operations.
  double UpdatePoint(size_t at) {
    const double old = now_[at];
    const double vertical = now_[at - width_] + now_[at + width_];
    const double horizontal = now_[at - 1] + now_[at + 1];
    const double sum = vertical + horizontal;
    const double fourfold = 4.0 * old;
    const double change = kDiffusion * (sum - fourfold);
    next_[at] = old + change;
    return fabs(change);
  }

  const int width_;
  const int height_;
  std::vector<double> now_;
  std::vector<double> next_;
};

}  // namespace

std::unique_ptr<Solver> MakeHostSolver(const Config& config) { return std::make_unique<HostSolver>(config); }

}  // namespace stencil

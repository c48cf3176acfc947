#include "../common/random.h"
#include "config.h"

namespace nccl_ring {

std::vector<uint32_t> Start(const Config& config, int rank) {
  sample::Random random(config.seed * 1000003 + static_cast<uint64_t>(rank));
  std::vector<uint32_t> x(config.elements);
  for (uint32_t& each : x) each = static_cast<uint32_t>(random.Next());
  return x;
}

namespace {

class HostRing : public Ring {
 public:
  explicit HostRing(const Config& config) {
    for (int rank = 0; rank < config.ranks; ++rank) x_.push_back(Start(config, rank));
  }

  std::vector<uint32_t> Round() override {
    const std::vector<std::vector<uint32_t>> before = x_;
    std::vector<uint32_t> sum(x_[0].size());
    for (size_t rank = 0; rank < x_.size(); ++rank) {
      const std::vector<uint32_t>& y = before[(rank + x_.size() - 1) % x_.size()];
      for (size_t i = 0; i < sum.size(); ++i) {
        x_[rank][i] = Mix(x_[rank][i], y[i]);
        sum[i] += x_[rank][i];
      }
    }
    for (std::vector<uint32_t>& x : x_) {
      for (size_t i = 0; i < sum.size(); ++i) x[i] = Fold(x[i], sum[i]);
    }
    return sum;
  }

  std::vector<uint32_t> Gather() override {
    std::vector<uint32_t> all;
    for (const std::vector<uint32_t>& x : x_) all.insert(all.end(), x.begin(), x.end());
    return all;
  }

 private:
  std::vector<std::vector<uint32_t>> x_;  // by rank
};

}  // namespace

std::unique_ptr<Ring> MakeHostRing(const Config& config) { return std::make_unique<HostRing>(config); }

}  // namespace nccl_ring

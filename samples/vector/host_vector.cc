#include <string.h>

#include "config.h"

namespace vector_sample {
namespace {

uint64_t Mix(float value, uint64_t index) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint64_t{bits} + index * 0x9E3779B97F4A7C15u) * (bits | 1u);
}

class HostVector : public Vector {
 public:
  explicit HostVector(const Config& config) : y_(config.elements) {}

  RoundResult Round(const std::vector<float>& x) override {
    RoundResult result = {0, 0};
    for (size_t i = 0; i < y_.size(); ++i) {
      const float scaled = kScale * y_[i];
      y_[i] = scaled + x[i];
      result.checksum += Mix(y_[i], i);
    }
    return result;
  }

  std::vector<float> Values() override { return y_; }

 private:
  std::vector<float> y_;
};

}  // namespace

std::unique_ptr<Vector> MakeHostVector(const Config& config) { return std::make_unique<HostVector>(config); }

}  // namespace vector_sample

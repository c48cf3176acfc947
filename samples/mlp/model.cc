#include "model.h"

#include <math.h>

#include "../common/idx.h"
#include "../common/random.h"
#include "../common/sha256.h"

namespace mlp {

std::vector<int> LayerSizes(const Config& config, int pixels) {
  std::vector<int> sizes = {pixels};
  sizes.insert(sizes.end(), config.hidden, config.width);
  sizes.push_back(sample::kClasses);
  return sizes;
}

Model InitialModel(const std::vector<int>& sizes, uint64_t seed) {
  sample::Random random(seed);
  Model model;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    Layer layer{sizes[i], sizes[i + 1], {}, {}};
    const float limit = sqrtf(6.0f / static_cast<float>(layer.inputs));
    layer.weights.resize(static_cast<size_t>(layer.inputs) * layer.outputs);
    for (float& weight : layer.weights) weight = random.Symmetric(limit);
    layer.bias.assign(layer.outputs, 0.0f);
    model.push_back(std::move(layer));
  }
  return model;
}

std::string Fingerprint(const Model& model) {
  sample::Sha256 sha;
  for (const Layer& layer : model) {
    sha.Update(layer.weights);
    sha.Update(layer.bias);
  }
  return sha.HexDigest();
}

}  // namespace mlp

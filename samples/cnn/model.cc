#include "model.h"

#include <math.h>

#include "../common/idx.h"
#include "../common/random.h"
#include "../common/sha256.h"

namespace cnn {
namespace {

constexpr int kWindow = 3 * 3;

Values RandomWeights(int inputs, int outputs, sample::Random* random) {
  const float limit = sqrtf(6.0f / static_cast<float>(inputs));
  Values weights(static_cast<size_t>(inputs) * outputs);
  for (float& weight : weights) weight = random->Symmetric(limit);
  return weights;
}

BlockModel InitialBlock(int inputs, int outputs, sample::Random* random) {
  BlockModel block{inputs, outputs, {}, {}, {}, {}, {}};
  block.filter = RandomWeights(inputs * kWindow, outputs, random);
  block.scale.assign(outputs, 1.0f);
  block.shift.assign(outputs, 0.0f);
  block.mean.assign(outputs, 0.0f);
  block.variance.assign(outputs, 1.0f);
  return block;
}

DenseModel InitialDense(int inputs, int outputs, sample::Random* random) {
  return {inputs, outputs, RandomWeights(inputs, outputs, random), Values(outputs, 0.0f)};
}

}  // namespace

Model InitialModel(const Config& config) {
  sample::Random random(config.seed);
  const int channels = 2 * config.channels;
  const int pooled = (kSide / 4) * (kSide / 4);
  Model model{};
  model.blocks[0] = InitialBlock(1, config.channels, &random);
  model.blocks[1] = InitialBlock(config.channels, channels, &random);
  model.hidden = InitialDense(channels * pooled, config.hidden, &random);
  model.classes = InitialDense(config.hidden, sample::kClasses, &random);
  return model;
}

std::string Fingerprint(const Model& model) {
  sample::Sha256 sha;
  for (const BlockModel& block : model.blocks) {
    for (const Values* values : {&block.filter, &block.scale, &block.shift, &block.mean, &block.variance}) {
      sha.Update(*values);
    }
  }
  for (const DenseModel* dense : {&model.hidden, &model.classes}) {
    sha.Update(dense->weights);
    sha.Update(dense->bias);
  }
  return sha.HexDigest();
}

}  // namespace cnn

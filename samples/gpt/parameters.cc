#include "parameters.h"

#include <math.h>

#include <algorithm>

#include "../common/random.h"

namespace gpt {
namespace {

constexpr size_t kAlignment = 64;
constexpr float kEmbeddingLimit = 0.05f;

class Placer {
 public:
  explicit Placer(Parameters* parameters) : parameters_(parameters) { parameters_->count = 0; }

  Tensor Place(int rows, int columns) {
    const Tensor tensor = {parameters_->count, rows, columns};
    parameters_->count += (tensor.count() + kAlignment - 1) / kAlignment * kAlignment;
    parameters_->all.push_back(tensor);
    return tensor;
  }

  NormTensors PlaceNorm(int width) {
    const Tensor scale = Place(1, width);
    return {scale, Place(1, width)};
  }

  LinearTensors PlaceLinear(int inputs, int outputs) {
    const Tensor weights = Place(inputs, outputs);
    return {weights, Place(1, outputs)};
  }

 private:
  Parameters* parameters_;
};

BlockTensors PlaceBlock(Placer* placer, int width) {
  BlockTensors block;
  block.attention_norm = placer->PlaceNorm(width);
  block.query_key_value = placer->PlaceLinear(width, 3 * width);
  block.attention_out = placer->PlaceLinear(width, width);
  block.hidden_norm = placer->PlaceNorm(width);
  block.hidden_in = placer->PlaceLinear(width, kExpansion * width);
  block.hidden_out = placer->PlaceLinear(kExpansion * width, width);
  return block;
}

void Fill(const Tensor& tensor, float limit, sample::Random* random, std::vector<float>* values) {
  for (size_t i = 0; i < tensor.count(); ++i) (*values)[tensor.offset + i] = random->Symmetric(limit);
}

void FillLinear(const Tensor& weights, sample::Random* random, std::vector<float>* values) {
  Fill(weights, sqrtf(3.0f / static_cast<float>(weights.rows)), random, values);
}

void FillScale(const NormTensors& norm, std::vector<float>* values) {
  std::fill_n(values->begin() + norm.scale.offset, norm.scale.count(), 1.0f);
}

}  // namespace

Parameters LayOut(const Config& config, int vocabulary) {
  Parameters parameters;
  Placer placer(&parameters);
  parameters.characters = placer.Place(vocabulary, config.width);
  parameters.positions = placer.Place(config.context, config.width);
  for (int i = 0; i < config.layers; ++i) parameters.blocks.push_back(PlaceBlock(&placer, config.width));
  parameters.final_norm = placer.PlaceNorm(config.width);
  parameters.head = placer.Place(config.width, vocabulary);
  return parameters;
}

std::vector<float> InitialValues(const Config& config, const Parameters& parameters) {
  sample::Random random(config.seed);
  std::vector<float> values(parameters.count);
  Fill(parameters.characters, kEmbeddingLimit, &random, &values);
  Fill(parameters.positions, kEmbeddingLimit, &random, &values);
  for (const BlockTensors& block : parameters.blocks) {
    FillScale(block.attention_norm, &values);
    FillLinear(block.query_key_value.weights, &random, &values);
    FillLinear(block.attention_out.weights, &random, &values);
    FillScale(block.hidden_norm, &values);
    FillLinear(block.hidden_in.weights, &random, &values);
    FillLinear(block.hidden_out.weights, &random, &values);
  }
  FillScale(parameters.final_norm, &values);
  Fill(parameters.head, kEmbeddingLimit, &random, &values);
  return values;
}

}  // namespace gpt

// What the main program asks of the network, wherever it computes.
#pragma once

#include <memory>
#include <vector>

#include "corpus.h"
#include "parameters.h"

namespace gpt {

class Model {
 public:
  virtual ~Model() = default;

  // One training step.
  virtual void Step(const Batch& batch) = 0;

  // Mean loss of the latest step's batch, before its update.
  virtual float Loss() = 0;

  virtual std::vector<float> Values() = 0;

  // All that later steps depend on. Not of the reference.
  virtual void Exchange(sample::SavedState*) {}
};

std::unique_ptr<Model> MakeDeviceModel(const Config& config, const Parameters& parameters,
                                       const std::vector<float>& initial);
std::unique_ptr<Model> MakeReferenceModel(const Config& config, const Parameters& parameters,
                                          const std::vector<float>& initial);

}  // namespace gpt

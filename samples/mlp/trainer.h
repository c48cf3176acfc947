// What the main program asks of a training run, wherever it computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../common/idx.h"
#include "config.h"
#include "model.h"

namespace mlp {

class Trainer {
 public:
  virtual ~Trainer() = default;

  // A new order in which the training images are drawn from now on.
  virtual void SetOrder(const std::vector<int>& order) = 0;

  // One step on the images order[first .. first + batch).
  virtual void Step(int first) = 0;

  // Mean loss over the batch of the latest step, before its update.
  virtual float Loss() = 0;

  // How many test images get the right class.
  virtual int CountCorrect() = 0;

  virtual Model Weights() = 0;

  // All that later steps depend on, except the order. Not of the reference.
  virtual void Exchange(sample::SavedState*) {}

  // A line on memory, or "".
  virtual std::string MemoryLine() const = 0;
};

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config, const Model& initial,
                                           const sample::ImageSet& train, const sample::ImageSet& test);
std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config, const Model& initial,
                                              const sample::ImageSet& train, const sample::ImageSet& test);

}  // namespace mlp

// What a run of the pipeline does, and its two implementations.
#pragma once

#include <stdint.h>

#include <memory>
#include <string>
#include <vector>

#include "../common/saved_state.h"
#include "../ranks/network.h"

namespace pipeline {

struct Config {
  int steps = 100;
  int batch = 8;  // of a micro-batch
  int micro_batches = 6;
  int inputs = 32;
  int outputs = 8;
  int width = 48;
  int layers = 2;  // of a stage
  int rows = 4096;
  double rate = 0.02;
  uint64_t seed = 1;
  int log_every = 1;
  int pace_ms = 0;
  int device = -1;
  int ranks = 1;  // with --reference
  bool reference = false;
  sample::Saving saving;
};

// Each rank is a stage: the layers of the network from layers * rank on.
struct Stage {
  Stage(const Config& config, int rank, int ranks);
  int layers() const { return static_cast<int>(shapes.size()); }
  // The weights of its layers, one after the other, as training begins.
  std::vector<float> Start() const;

  const bool first, last;
  std::vector<ranks::Shape> shapes;
  std::vector<size_t> offsets;
  size_t weights = 0;

 private:
  const uint64_t seed_;
  const int first_layer_;
};

class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual void Train(int step) = 0;
  // Of the last step, over all its examples.
  virtual double Loss() = 0;
  virtual int first_rank() const = 0;
  // The weights of the stages of this process, from that of first_rank() on.
  virtual std::vector<std::vector<float>> Weights() = 0;
  // All that later steps depend on. Not of the reference.
  virtual void Exchange(sample::SavedState*) {}
};

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config);
std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config);

}  // namespace pipeline

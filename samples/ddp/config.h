// What a run of the data-parallel training does, and its two implementations.
#pragma once

#include <stdint.h>

#include <memory>
#include <vector>

#include "../common/saved_state.h"
#include "../ranks/network.h"

namespace ddp {

struct Config {
  int steps = 200;
  int batch = 16;  // of a rank
  int inputs = 32;
  int outputs = 8;
  int width = 64;
  int layers = 4;
  int rows = 4096;
  double rate = 0.05;
  uint64_t seed = 1;
  int log_every = 1;
  int pace_ms = 0;
  int devices = 1;  // of a process, a rank each
  int device = -1;
  int ranks = 1;  // with --reference
  bool reference = false;
  sample::Saving saving;
};

// Where each layer's weights are in one array; gradients lie likewise and have the loss behind them.
struct Layout {
  explicit Layout(const Config& config);
  int layers() const { return static_cast<int>(shapes.size()); }

  std::vector<ranks::Shape> shapes;
  std::vector<size_t> offsets;
  size_t weights = 0;
};

// The weights of all layers, one after the other, as training begins.
std::vector<float> StartAll(const Config& config, const Layout& layout);

class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual void Train(int step) = 0;
  // Of the last step, over the examples of all ranks.
  virtual double Loss() = 0;
  virtual int first_rank() const = 0;
  // The weights as each of the ranks of this process has them, from first_rank() on.
  virtual std::vector<std::vector<float>> Weights() = 0;
  // All that later steps depend on. Not of the reference.
  virtual void Exchange(sample::SavedState*) {}
};

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config);
std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config);

}  // namespace ddp

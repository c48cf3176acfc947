// What a run of the tensor-parallel training does, and its two implementations.
#pragma once

#include <stdint.h>

#include <memory>
#include <vector>

#include "../common/saved_state.h"
#include "../ranks/network.h"

namespace tp {

struct Config {
  int steps = 100;
  int batch = 16;   // examples of a tensor-parallel group in a step
  int tensor = 0;   // ranks of such a group; 0: 2 where that divides all ranks, else 1
  int inputs = 32;  // and as many outputs
  int width = 64;
  int blocks = 2;
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

// The network is a chain of blocks, x + w2 relu(w1 x). A tensor-parallel group has one copy of it: each rank
// some rows of w1, the same columns of w2, and a share of the examples. The groups add up their gradients.
// Ranks next to each other make a group.
struct Grid {
  // Ends the program when the numbers do not divide.
  Grid(const Config& config, int ranks);
  int group_of(int rank) const { return rank / tensor; }
  int part_of(int rank) const { return rank % tensor; }

  int tensor;                  // ranks of a group
  int data;                    // groups
  int examples;                // of a rank
  ranks::Shape first, second;  // the rank's part of the layers of a block
  size_t layer;                // weights of either
  size_t weights;              // of all blocks: w1 and w2 in turn
};

// The weights of the rank with that part in its group, as training begins.
std::vector<float> StartPart(const Config& config, const Grid& grid, int part);

class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual void Train(int step) = 0;
  // Of the last step, over all its examples.
  virtual double Loss() = 0;
  virtual int first_rank() const = 0;
  // The weights of the ranks of this process, from first_rank() on.
  virtual std::vector<std::vector<float>> Weights() = 0;
  // All that later steps depend on. Not of the reference.
  virtual void Exchange(sample::SavedState*) {}
};

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config);
std::unique_ptr<Trainer> MakeReferenceTrainer(const Config& config);

}  // namespace tp

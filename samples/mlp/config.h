// What a training run does; the same for the device and for the host reference.
#pragma once

#include <stdint.h>

#include <string>
#include <vector>

#include "../common/saved_state.h"

namespace mlp {

struct Config {
  int steps = 600;
  int batch = 128;
  int width = 128;  // of each hidden layer
  int hidden = 1;   // number of hidden layers
  double learning_rate = 0.001;
  uint64_t seed = 1;
  int device = 0;
  int pool_mib = 0;  // 0: `reserve` times what the run needs at its peak
  int reserve = 4;
  int freeze_after = 0;  // steps after which weights stay as they are; 0: never
  int log_every = 1;
  int pace_ms = 0;
  bool reference = false;
  sample::Saving saving;
  std::string data = "/usr/share/datasets/fashion-mnist";
};

// Whether the weights still change at this step, the first being 1.
inline bool Learns(const Config& config, int step) {
  return config.freeze_after == 0 || step <= config.freeze_after;
}

// Sizes of the layers' inputs and outputs, from the pixels to the classes.
std::vector<int> LayerSizes(const Config& config, int pixels);

}  // namespace mlp

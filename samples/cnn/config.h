// What a training run does; the same for the device and for the host reference.
#pragma once

#include <stdint.h>

#include <string>

#include "../common/saved_state.h"

namespace cnn {

struct Config {
  int steps = 200;
  int batch = 64;
  int channels = 8;  // of the first convolution; the second has twice as many
  int hidden = 64;   // units between the convolutions and the classes
  double dropout = 0.25;
  double learning_rate = 0.002;
  uint64_t seed = 1;
  int test = 0;  // test images to classify, 0: all
  int device = 0;
  int log_every = 10;
  int pace_ms = 0;
  bool reference = false;
  sample::Saving saving;
  std::string data = "/usr/share/datasets/fashion-mnist";
};

constexpr int kSide = 28;  // of an image, in pixels

// Of batch normalisation.
constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;  // of a step's statistics in the running ones

// Dimensions of the values between layers.
struct Shape {
  int images;
  int channels;
  int height;
  int width;

  int Pixels() const { return height * width; }
  size_t Count() const { return static_cast<size_t>(images) * channels * Pixels(); }
};

}  // namespace cnn

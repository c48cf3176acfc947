// The problem that the stencil sample solves, and its two solvers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../common/saved_state.h"

namespace stencil {

struct Config {
  int width = 256;   // points of a row, edges included
  int height = 256;  // rows, edges included
  int iterations = 500;
  int report_every = 50;
  int streams = 4;
  std::string graph = "capture";
  int device = 0;
  int pace_ms = 0;
  bool reference = false;
  sample::Saving saving;  // its step is an iteration
};

// Explicit heat conduction: each inner point becomes u + kDiffusion * (((up + down) + (left + right)) - 4 *
// u), every operation rounded on its own, so that the same bits come out wherever it is computed. The edges
// stay.
constexpr double kDiffusion = 0.24;

// The field before the first iteration, row by row: hot along the top edge, cold elsewhere, with one warm
// spot.
std::vector<double> InitialField(const Config& config);

class Solver {
 public:
  virtual ~Solver() = default;

  // Runs so many iterations; returns the largest change of any point in the last of them.
  virtual double Advance(int iterations) = 0;

  virtual std::vector<double> Field() = 0;
  // Not of the reference.
  virtual void SetField(const std::vector<double>&) {}
};

std::unique_ptr<Solver> MakeDeviceSolver(const Config& config);
std::unique_ptr<Solver> MakeHostSolver(const Config& config);

}  // namespace stencil

// Spreads heat over a plate in double precision. The work of an iteration is shared by several streams and,
// unless told otherwise, replayed from a CUDA graph. The result is the same, bit for bit, with and without
// graphs, with any number of streams, and with --reference, which computes on the host alone.
#include <stdio.h>

#include <algorithm>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/pace.h"
#include "../common/saved_state.h"
#include "../common/sha256.h"
#include "config.h"

namespace {

stencil::Config ParseConfig(int argc, char** argv) {
  stencil::Config config;
  sample::Options options("solves the heat equation with CUDA graphs on several streams");
  options.Integer("--width", &config.width, 3, 16384, "points of a row, edges included");
  options.Integer("--height", &config.height, 3, 16384, "rows, edges included");
  options.Integer("--iterations", &config.iterations, 2, 1000000000, "iterations, an even number");
  options.Integer("--report-every", &config.report_every, 2, 1000000000, "iterations a line, an even number");
  options.Integer("--pace-ms", &config.pace_ms, 0, 60000, "rests for up to so long between lines");
  options.Integer("--streams", &config.streams, 1, 64, "streams that share an iteration");
  options.Choice("--graph", &config.graph, {"capture", "explicit", "none"}, "capture, explicit or none");
  options.Integer("--device", &config.device, 0, 1023, "CUDA device");
  options.Flag("--reference", &config.reference, "compute on the host, without CUDA");
  config.saving.AddTo(&options);
  options.Parse(argc, argv);
  config.saving.Check(config.reference);
  if (config.iterations % 2 != 0) sample::Fail(sample::kExitUsage, "--iterations must be even");
  if (config.report_every % 2 != 0) sample::Fail(sample::kExitUsage, "--report-every must be even");
  return config;
}

// All that the state of a run depends on.
std::string Kind(const stencil::Config& config) {
  return "stencil width " + std::to_string(config.width) + " height " + std::to_string(config.height);
}

void Exchange(sample::SavedState* state, int* done, stencil::Solver* solver) {
  std::vector<double> field = solver->Field();
  state->Value(done);
  state->Values(&field);
  state->Finish();
  solver->SetField(field);
}

// False: the run was saved and ends here.
bool Solve(const stencil::Config& config, stencil::Solver* solver) {
  int done = 0;
  if (!config.saving.from.empty()) {
    sample::SavedState state = sample::SavedState::Read(config.saving.from, Kind(config));
    Exchange(&state, &done, solver);
  }
  sample::Pace pace(config.pace_ms, 1);
  while (done < config.iterations) {
    pace.Wait();
    const int iterations = std::min(config.report_every, config.iterations - done);
    const double residual = solver->Advance(iterations);
    done += iterations;
    printf("iteration %d residual %.17g\n", done, residual);
    if (config.saving.at == 0 || done < config.saving.at) continue;
    sample::SavedState state = sample::SavedState::Write(config.saving.to, Kind(config));
    Exchange(&state, &done, solver);
    printf("saved after iteration %d\n", done);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const stencil::Config config = ParseConfig(argc, argv);
  printf("stencil %s: width %d height %d iterations %d streams %d graph %s\n",
         config.reference ? "reference" : "device", config.width, config.height, config.iterations,
         config.streams, config.graph.c_str());
  const std::unique_ptr<stencil::Solver> solver =
      config.reference ? stencil::MakeHostSolver(config) : stencil::MakeDeviceSolver(config);
  if (!Solve(config, solver.get())) return 0;
  sample::Sha256 sha;
  sha.Update(solver->Field());
  printf("sha256 %s\n", sha.HexDigest().c_str());
  return 0;
}

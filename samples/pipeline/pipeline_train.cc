// Trains a network whose layers are spread over the ranks: each is a stage, takes activations from the one
// before and gradients from the one behind, and works on several micro-batches of a step, one forward and one
// backward in turn. The lines and digests are those of --reference, bit for bit.
#include <stdio.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/sha256.h"
#include "config.h"

namespace {

pipeline::Config ParseConfig(int argc, char** argv) {
  pipeline::Config config;
  sample::Options options("trains a network in a pipeline of devices, one a rank, with NCCL");
  options.Integer("--steps", &config.steps, 1, 1000000000, "training steps");
  options.Integer("--batch", &config.batch, 1, 65536, "examples of a micro-batch");
  options.Integer("--micro-batches", &config.micro_batches, 1, 1024, "micro-batches of a step");
  options.Integer("--width", &config.width, 1, 16384, "width of the hidden layers");
  options.Integer("--layers", &config.layers, 1, 256, "layers of a stage");
  options.Integer("--rows", &config.rows, 1, 1 << 26, "rows of the table of examples");
  options.Real("--lr", &config.rate, 1e-9, 10, "learning rate");
  options.Seed("--seed", &config.seed, "of weights, examples and pauses");
  options.Integer("--log-every", &config.log_every, 1, 1000000000, "steps between two lines with the loss");
  options.Integer("--pace-ms", &config.pace_ms, 0, 60000,
                  "ranks rest for up to so long between micro-batches");
  options.Integer("--device", &config.device, 0, 1023, "CUDA device; unset: by LOCAL_RANK");
  options.Flag("--reference", &config.reference, "compute on the host, without CUDA");
  options.Integer("--ranks", &config.ranks, 1, 1024, "with --reference: how many ranks there would be");
  options.Parse(argc, argv);
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  const pipeline::Config config = ParseConfig(argc, argv);
  const std::unique_ptr<pipeline::Trainer> trainer =
      config.reference ? pipeline::MakeReferenceTrainer(config) : pipeline::MakeDeviceTrainer(config);
  const bool speaks = trainer->first_rank() == 0;
  for (int step = 1; step <= config.steps; ++step) {
    trainer->Train(step);
    if (step % config.log_every != 0 && step != config.steps) continue;
    // Every rank waits for it, so that none is more than these steps ahead of its device.
    const double loss = trainer->Loss();
    if (speaks) printf("step %d loss %.9g\n", step, loss);
  }
  int rank = trainer->first_rank();
  for (const std::vector<float>& weights : trainer->Weights()) {
    sample::Sha256 sha;
    sha.Update(weights);
    printf("rank %d sha256 %s\n", rank++, sha.HexDigest().c_str());
  }
  return 0;
}

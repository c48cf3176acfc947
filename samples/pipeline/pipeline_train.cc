// Trains a network whose layers are spread over the ranks: each is a stage, takes activations from the one
// before and gradients from the one behind, and works on several micro-batches of a step, one forward and one
// backward in turn. The lines and digests are those of --reference, bit for bit.
#include <stdio.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/saved_state.h"
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
  config.saving.AddTo(&options);
  options.Parse(argc, argv);
  config.saving.Check(config.reference);
  return config;
}

// All that the state of a run depends on, apart from the number of ranks, which the saved arrays have from
// it.
std::string Kind(const pipeline::Config& config) {
  char text[256];
  snprintf(text, sizeof(text),
           "pipeline_train batch %d micro-batches %d width %d layers %d rows %d lr %.17g seed %llu",
           config.batch, config.micro_batches, config.width, config.layers, config.rows, config.rate,
           static_cast<unsigned long long>(config.seed));
  return text;
}

void Exchange(sample::SavedState* state, int* step, pipeline::Trainer* trainer) {
  state->Value(step);
  trainer->Exchange(state);
  state->Finish();
}

// False: the run was saved and ends here.
bool Train(const pipeline::Config& config, pipeline::Trainer* trainer) {
  const bool speaks = trainer->first_rank() == 0;
  const sample::Saving saving = config.saving.OfRank(trainer->first_rank());
  int step = 0;
  if (!saving.from.empty()) {
    sample::SavedState state = sample::SavedState::Read(saving.from, Kind(config));
    Exchange(&state, &step, trainer);
  }
  while (step < config.steps) {
    trainer->Train(++step);
    if (step % config.log_every == 0 || step == config.steps) {
      // Every rank waits for it, so that none is more than these steps ahead of its device.
      const double loss = trainer->Loss();
      if (speaks) printf("step %d loss %.9g\n", step, loss);
    }
    if (step != saving.at) continue;
    sample::SavedState state = sample::SavedState::Write(saving.to, Kind(config));
    Exchange(&state, &step, trainer);
    if (speaks) printf("saved after step %d\n", step);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const pipeline::Config config = ParseConfig(argc, argv);
  const std::unique_ptr<pipeline::Trainer> trainer =
      config.reference ? pipeline::MakeReferenceTrainer(config) : pipeline::MakeDeviceTrainer(config);
  if (!Train(config, trainer.get())) return 0;
  int rank = trainer->first_rank();
  for (const std::vector<float>& weights : trainer->Weights()) {
    sample::Sha256 sha;
    sha.Update(weights);
    printf("rank %d sha256 %s\n", rank++, sha.HexDigest().c_str());
  }
  return 0;
}

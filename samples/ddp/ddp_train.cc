// Trains one network on several devices: each rank has all weights and its share of the examples, and the
// ranks add up their gradients. The lines and the digests are the same for the ranks in processes of their
// own, for several in one process, and with --reference.
#include <stdio.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/saved_state.h"
#include "../common/sha256.h"
#include "config.h"

namespace {

ddp::Config ParseConfig(int argc, char** argv) {
  ddp::Config config;
  sample::Options options("trains a network data parallel, one device a rank, with NCCL");
  options.Integer("--steps", &config.steps, 1, 1000000000, "training steps");
  options.Integer("--batch", &config.batch, 1, 65536, "examples of a rank in a step");
  options.Integer("--width", &config.width, 1, 16384, "width of the hidden layers");
  options.Integer("--layers", &config.layers, 1, 256, "layers");
  options.Integer("--rows", &config.rows, 1, 1 << 26,
                  "rows of the table of examples that every device holds");
  options.Real("--lr", &config.rate, 1e-9, 10, "learning rate");
  options.Seed("--seed", &config.seed, "of weights, examples and pauses");
  options.Integer("--log-every", &config.log_every, 1, 1000000000, "steps between two lines with the loss");
  options.Integer("--pace-ms", &config.pace_ms, 0, 60000, "ranks rest for up to so long between steps");
  options.Integer("--devices-per-rank", &config.devices, 1, 64,
                  "devices that each process drives, each of them a rank of its own for NCCL");
  options.Integer("--device", &config.device, 0, 1023, "first CUDA device here; unset: by LOCAL_RANK");
  options.Flag("--reference", &config.reference, "compute on the host, without CUDA");
  options.Integer("--ranks", &config.ranks, 1, 1024, "with --reference: how many ranks there would be");
  config.saving.AddTo(&options);
  options.Parse(argc, argv);
  config.saving.Check(config.reference);
  return config;
}

// All that the state of a run depends on, apart from the number of ranks, which the saved arrays have from
// it.
std::string Kind(const ddp::Config& config) {
  char text[256];
  snprintf(text, sizeof(text), "ddp_train batch %d width %d layers %d rows %d lr %.17g seed %llu",
           config.batch, config.width, config.layers, config.rows, config.rate,
           static_cast<unsigned long long>(config.seed));
  return text;
}

void Exchange(sample::SavedState* state, int* step, ddp::Trainer* trainer) {
  state->Value(step);
  trainer->Exchange(state);
  state->Finish();
}

// False: the run was saved and ends here.
bool Train(const ddp::Config& config, ddp::Trainer* trainer) {
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
  const ddp::Config config = ParseConfig(argc, argv);
  const std::unique_ptr<ddp::Trainer> trainer =
      config.reference ? ddp::MakeReferenceTrainer(config) : ddp::MakeDeviceTrainer(config);
  if (!Train(config, trainer.get())) return 0;
  int rank = trainer->first_rank();
  for (const std::vector<float>& weights : trainer->Weights()) {
    sample::Sha256 sha;
    sha.Update(weights);
    printf("rank %d sha256 %s\n", rank++, sha.HexDigest().c_str());
  }
  return 0;
}

// Trains a small transformer to predict the next character of a text, with kernels of its own, or with --blas
// cuBLAS for the products of matrices. The same options give the same bits on the same device, whatever else
// runs there. With --reference the training runs on the host alone, in double precision and in code of its
// own; README.md states how far the two may differ.
#include <stdio.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/pace.h"
#include "../common/saved_state.h"
#include "../common/sha256.h"
#include "model.h"

namespace {

// The licence text at the root of the source tree that this program was built from.
std::string DefaultText() {
  const std::string source = __FILE__;
  const size_t root = source.rfind("samples/gpt/gpt_train.cc");
  return (root == std::string::npos ? "" : source.substr(0, root)) + "LICENSE";
}

gpt::Config ParseConfig(int argc, char** argv) {
  gpt::Config config;
  config.text = DefaultText();
  sample::Options options("trains a character-level transformer on a text file");
  options.Integer("--steps", &config.steps, 1, 100000000, "training steps");
  options.Integer("--batch", &config.batch, 1, 1024, "sequences a step");
  options.Integer("--context", &config.context, 2, 2048, "characters of a sequence");
  options.Integer("--layers", &config.layers, 1, 64, "transformer blocks");
  options.Integer("--width", &config.width, 4, 4096, "width of a character's vector");
  options.Integer("--heads", &config.heads, 1, 64, "attention heads, a divisor of the width");
  options.Real("--lr", &config.learning_rate, 1e-9, 1, "learning rate");
  options.Real("--weight-decay", &config.weight_decay, 0, 1, "weight decay of the matrices");
  options.Seed("--seed", &config.seed, "of the weights and of the places in the text");
  options.Integer("--device", &config.device, 0, 1023, "CUDA device");
  options.Integer("--log-every", &config.log_every, 1, 100000000, "steps between lines");
  options.Integer("--pace-ms", &config.pace_ms, 0, 60000, "rests for up to so long between steps");
  options.Text("--text", &config.text, "any file");
  options.Flag("--blas", &config.blas, "multiply matrices by cuBLAS");
  options.Flag("--reference", &config.reference, "train on the host, without CUDA");
  config.saving.AddTo(&options);
  options.Parse(argc, argv);
  config.saving.Check(config.reference);
  if (config.width % config.heads != 0)
    sample::Fail(sample::kExitUsage, "--width must be a multiple of --heads");
  if (int64_t{config.Rows()} * config.width * gpt::kExpansion > INT32_MAX) {
    sample::Fail(sample::kExitUsage, "--batch, --context and --width are too large together");
  }
  return config;
}

void PrintConfig(const gpt::Config& config, const gpt::Corpus& corpus, const gpt::Parameters& parameters) {
  printf(
      "gpt_train %s: text %zu vocabulary %d parameters %zu layers %d width %d heads %d context %d batch %d "
      "steps %d lr %g decay %g seed %llu\n",
      config.reference ? "reference" : "device", corpus.tokens.size(), corpus.vocabulary, parameters.count,
      config.layers, config.width, config.heads, config.context, config.batch, config.steps,
      config.learning_rate, config.weight_decay, static_cast<unsigned long long>(config.seed));
}

// All that the state of a run depends on.
std::string Kind(const gpt::Config& config, const gpt::Corpus& corpus) {
  char text[512];
  snprintf(
      text, sizeof(text),
      "gpt_train text %zu layers %d width %d heads %d context %d batch %d lr %.17g decay %.17g seed %llu "
      "blas %d",
      corpus.tokens.size(), config.layers, config.width, config.heads, config.context, config.batch,
      config.learning_rate, config.weight_decay, static_cast<unsigned long long>(config.seed), config.blas);
  return text;
}

// Where a run is.
struct Course {
  sample::Random random;
  int step = 0;  // the latest
};

void Exchange(sample::SavedState* state, Course* course, gpt::Model* model) {
  state->Value(&course->random);
  state->Value(&course->step);
  model->Exchange(state);
  state->Finish();
}

// False: the run was saved and ends here.
bool Train(const gpt::Config& config, const gpt::Corpus& corpus, gpt::Model* model) {
  Course course{sample::Random(config.seed ^ 0x706c61636573u)};
  if (!config.saving.from.empty()) {
    sample::SavedState state = sample::SavedState::Read(config.saving.from, Kind(config, corpus));
    Exchange(&state, &course, model);
  }
  sample::Pace pace(config.pace_ms, config.seed);
  while (course.step < config.steps) {
    pace.Wait();
    ++course.step;
    model->Step(gpt::DrawBatch(corpus, config, &course.random));
    if (course.step % config.log_every == 0 || course.step == config.steps) {
      printf("step %d loss %.9g\n", course.step, static_cast<double>(model->Loss()));
    }
    if (course.step != config.saving.at) continue;
    sample::SavedState state = sample::SavedState::Write(config.saving.to, Kind(config, corpus));
    Exchange(&state, &course, model);
    printf("saved after step %d\n", course.step);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const gpt::Config config = ParseConfig(argc, argv);
  const gpt::Corpus corpus = gpt::LoadCorpus(config.text, config.context + 1);
  const gpt::Parameters parameters = gpt::LayOut(config, corpus.vocabulary);
  PrintConfig(config, corpus, parameters);
  const auto make = config.reference ? gpt::MakeReferenceModel : gpt::MakeDeviceModel;
  const std::unique_ptr<gpt::Model> model = make(config, parameters, gpt::InitialValues(config, parameters));
  if (!Train(config, corpus, model.get())) return 0;
  sample::Sha256 sha;
  sha.Update(model->Values());
  printf("sha256 %s\n", sha.HexDigest().c_str());
  return 0;
}

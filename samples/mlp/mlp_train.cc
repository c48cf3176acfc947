// Trains a multilayer perceptron on Fashion-MNIST with kernels of its own. The same options give the same
// bits on the same device, whatever else runs there. With --reference the training runs on the host alone, in
// double precision and in code of its own; README.md states how far the two may differ.
#include <stdio.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/pace.h"
#include "../common/random.h"
#include "../common/saved_state.h"
#include "trainer.h"

namespace {

mlp::Config ParseConfig(int argc, char** argv) {
  mlp::Config config;
  sample::Options options("trains a multilayer perceptron on Fashion-MNIST");
  options.Integer("--steps", &config.steps, 1, 100000000, "training steps");
  options.Integer("--batch", &config.batch, 1, 8192, "images a step");
  options.Integer("--width", &config.width, 1, 16384, "units of a hidden layer");
  options.Integer("--hidden", &config.hidden, 1, 16, "hidden layers");
  options.Real("--lr", &config.learning_rate, 1e-9, 1, "learning rate");
  options.Seed("--seed", &config.seed, "of the weights and of the order of images");
  options.Integer("--device", &config.device, 0, 1023, "CUDA device");
  options.Integer("--pool", &config.pool_mib, 0, 1 << 20,
                  "MiB of device memory to reserve, 0: as --reserve says");
  options.Integer("--reserve", &config.reserve, 1, 1024, "times the need to reserve");
  options.Integer("--freeze-after", &config.freeze_after, 0, 100000000,
                  "steps after which only the loss is computed, 0: never");
  options.Integer("--log-every", &config.log_every, 1, 100000000, "steps between lines");
  options.Integer("--pace-ms", &config.pace_ms, 0, 60000, "rests for up to so long between steps");
  options.Text("--data", &config.data, "directory of the IDX files");
  options.Flag("--reference", &config.reference, "train on the host, without CUDA");
  config.saving.AddTo(&options);
  options.Parse(argc, argv);
  config.saving.Check(config.reference);
  return config;
}

void PrintConfig(const mlp::Config& config, const sample::ImageSet& train, const sample::ImageSet& test) {
  printf("mlp_train %s: train %d test %d pixels %d hidden %dx%d batch %d steps %d lr %g seed %llu\n",
         config.reference ? "reference" : "device", train.count, test.count, train.pixels, config.hidden,
         config.width, config.batch, config.steps, config.learning_rate,
         static_cast<unsigned long long>(config.seed));
}

// All that the state of a run depends on.
std::string Kind(const mlp::Config& config) {
  char text[256];
  snprintf(text, sizeof(text), "mlp_train hidden %dx%d batch %d lr %.17g seed %llu freeze %d", config.hidden,
           config.width, config.batch, config.learning_rate, static_cast<unsigned long long>(config.seed),
           config.freeze_after);
  return text;
}

// Where a run is.
struct Course {
  Course(uint64_t seed, int images) : random(seed ^ 0x6f72646572u), next(images), order(images) {}

  sample::Random random;
  int step = 0;            // the latest
  int next;                // the place in the order of the next step's first image
  std::vector<int> order;  // of the images
};

void Exchange(sample::SavedState* state, Course* course, mlp::Trainer* trainer) {
  state->Value(&course->random);
  state->Value(&course->step);
  state->Value(&course->next);
  state->Values(&course->order);
  if (!state->saving()) trainer->SetOrder(course->order);
  trainer->Exchange(state);
  state->Finish();
}

// Goes through the training images in a new order each time round; an incomplete last batch is left out.
// False: the run was saved and ends here.
bool Train(const mlp::Config& config, int images, mlp::Trainer* trainer) {
  Course course{config.seed, images};
  if (!config.saving.from.empty()) {
    sample::SavedState state = sample::SavedState::Read(config.saving.from, Kind(config));
    Exchange(&state, &course, trainer);
  }
  sample::Pace pace(config.pace_ms, config.seed);
  while (course.step < config.steps) {
    pace.Wait();
    ++course.step;
    if (course.next + config.batch > images) {
      course.order = sample::Permutation(images, &course.random);
      trainer->SetOrder(course.order);
      course.next = 0;
    }
    trainer->Step(course.next);
    course.next += config.batch;
    if (course.step % config.log_every == 0 || course.step == config.steps) {
      printf("step %d loss %.9g\n", course.step, static_cast<double>(trainer->Loss()));
    }
    if (course.step != config.saving.at) continue;
    sample::SavedState state = sample::SavedState::Write(config.saving.to, Kind(config));
    Exchange(&state, &course, trainer);
    printf("saved after step %d\n", course.step);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const mlp::Config config = ParseConfig(argc, argv);
  const sample::ImageSet train = sample::LoadImageSet(config.data, "train");
  const sample::ImageSet test = sample::LoadImageSet(config.data, "t10k");
  if (train.pixels != test.pixels)
    sample::Fail(sample::kExitFailure, "training and test images differ in size");
  if (config.batch > train.count) sample::Fail(sample::kExitUsage, "--batch exceeds the training images");
  PrintConfig(config, train, test);

  const mlp::Model initial = mlp::InitialModel(mlp::LayerSizes(config, train.pixels), config.seed);
  const auto make = config.reference ? mlp::MakeReferenceTrainer : mlp::MakeDeviceTrainer;
  const std::unique_ptr<mlp::Trainer> trainer = make(config, initial, train, test);
  if (!Train(config, train.count, trainer.get())) return 0;

  const int correct = trainer->CountCorrect();
  printf("test accuracy %.4f (%d of %d)\n", static_cast<double>(correct) / test.count, correct, test.count);
  const std::string memory = trainer->MemoryLine();
  if (!memory.empty()) printf("%s\n", memory.c_str());
  printf("sha256 %s\n", mlp::Fingerprint(trainer->Weights()).c_str());
  return 0;
}

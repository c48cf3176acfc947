// Trains a small convolutional network on Fashion-MNIST with cuDNN. The same options give the same bits on
// the same device, whatever else runs there. With --reference the training runs on the host alone, in double
// precision and in code of its own; README.md states how far the two may differ.
#include <stdio.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/pace.h"
#include "../common/random.h"
#include "../common/saved_state.h"
#include "trainer.h"

namespace {

cnn::Config ParseConfig(int argc, char** argv) {
  cnn::Config config;
  sample::Options options("trains a small convolutional network on Fashion-MNIST with cuDNN");
  options.Integer("--steps", &config.steps, 1, 100000000, "training steps");
  options.Integer("--batch", &config.batch, 2, 8192, "images a step");
  options.Integer("--channels", &config.channels, 1, 1024, "channels of the first convolution");
  options.Integer("--hidden", &config.hidden, 1, 16384, "units of the hidden layer");
  options.Real("--dropout", &config.dropout, 0, 0.99, "share of the convolutions' results that is dropped");
  options.Real("--lr", &config.learning_rate, 1e-9, 1, "learning rate");
  options.Seed("--seed", &config.seed, "of the weights, the order of images and what is dropped");
  options.Integer("--test", &config.test, 0, 1000000, "test images to classify, 0: all");
  options.Integer("--device", &config.device, 0, 1023, "CUDA device");
  options.Integer("--log-every", &config.log_every, 1, 100000000, "steps between lines");
  options.Integer("--pace-ms", &config.pace_ms, 0, 60000, "rests for up to so long between steps");
  options.Text("--data", &config.data, "directory of the IDX files");
  options.Flag("--reference", &config.reference, "train on the host, without CUDA");
  config.saving.AddTo(&options);
  options.Parse(argc, argv);
  config.saving.Check(config.reference);
  return config;
}

void PrintConfig(const cnn::Config& config, const sample::ImageSet& train, int tested) {
  printf(
      "cnn_train %s: train %d test %d channels %d,%d hidden %d batch %d steps %d dropout %g lr %g seed "
      "%llu\n",
      config.reference ? "reference" : "device", train.count, tested, config.channels, 2 * config.channels,
      config.hidden, config.batch, config.steps, config.dropout, config.learning_rate,
      static_cast<unsigned long long>(config.seed));
}

// All that the state of a run depends on.
std::string Kind(const cnn::Config& config) {
  char text[256];
  snprintf(text, sizeof(text), "cnn_train channels %d hidden %d batch %d dropout %.17g lr %.17g seed %llu",
           config.channels, config.hidden, config.batch, config.dropout, config.learning_rate,
           static_cast<unsigned long long>(config.seed));
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

void Exchange(sample::SavedState* state, Course* course, cnn::Trainer* trainer) {
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
bool Train(const cnn::Config& config, int images, cnn::Trainer* trainer) {
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
  const cnn::Config config = ParseConfig(argc, argv);
  const sample::ImageSet train = sample::LoadImageSet(config.data, "train");
  const sample::ImageSet test = sample::LoadImageSet(config.data, "t10k");
  const int pixels = cnn::kSide * cnn::kSide;
  if (train.pixels != pixels || test.pixels != pixels) {
    sample::Fail(sample::kExitFailure, "the images are not of %d pixels", pixels);
  }
  if (config.batch > train.count) sample::Fail(sample::kExitUsage, "--batch exceeds the training images");
  if (config.test > test.count) sample::Fail(sample::kExitUsage, "--test exceeds the test images");
  const int tested = config.test > 0 ? config.test : test.count;
  PrintConfig(config, train, tested);

  const auto make = config.reference ? cnn::MakeReferenceTrainer : cnn::MakeDeviceTrainer;
  const std::unique_ptr<cnn::Trainer> trainer = make(config, cnn::InitialModel(config), train, test);
  if (!Train(config, train.count, trainer.get())) return 0;

  const int correct = trainer->CountCorrect(tested);
  printf("test accuracy %.4f (%d of %d)\n", static_cast<double>(correct) / tested, correct, tested);
  printf("sha256 %s\n", cnn::Fingerprint(trainer->Weights()).c_str());
  return 0;
}

// Trains a small convolutional network on Fashion-MNIST with cuDNN. The same options give the same bits on
// the same device, whatever else runs there. With --reference the training runs on the host alone, in double
// precision and in code of its own; README.md states how far the two may differ.
#include <stdio.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/random.h"
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
  options.Text("--data", &config.data, "directory of the IDX files");
  options.Flag("--reference", &config.reference, "train on the host, without CUDA");
  options.Parse(argc, argv);
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

// Goes through the training images in a new order each time round; an incomplete last batch is left out.
void Train(const cnn::Config& config, int images, cnn::Trainer* trainer) {
  sample::Random random(config.seed ^ 0x6f72646572u);
  int next = images;
  for (int step = 1; step <= config.steps; ++step) {
    if (next + config.batch > images) {
      trainer->SetOrder(sample::Permutation(images, &random));
      next = 0;
    }
    trainer->Step(next);
    next += config.batch;
    if (step % config.log_every == 0 || step == config.steps) {
      printf("step %d loss %.9g\n", step, static_cast<double>(trainer->Loss()));
    }
  }
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
  Train(config, train.count, trainer.get());

  const int correct = trainer->CountCorrect(tested);
  printf("test accuracy %.4f (%d of %d)\n", static_cast<double>(correct) / tested, correct, tested);
  printf("sha256 %s\n", cnn::Fingerprint(trainer->Weights()).c_str());
  return 0;
}

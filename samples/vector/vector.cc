// Adds random vectors to a decaying one over several rounds, on several streams at once, and compares every
// round's checksum and the final elements with the same computation on the host. Exits 1 when they differ in
// a single bit.
#include <stdio.h>
#include <string.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/pace.h"
#include "../common/random.h"
#include "../common/sha256.h"
#include "config.h"

namespace {

using vector_sample::Config;
using vector_sample::RoundResult;
using vector_sample::Vector;

Config ParseConfig(int argc, char** argv) {
  Config config;
  sample::Options options("adds vectors on several streams and checks the result");
  options.Integer("--elements", &config.elements, 64, 1 << 28, "elements of the vector");
  options.Integer("--streams", &config.streams, 1, 64, "streams that share the work");
  options.Integer("--rounds", &config.rounds, 1, 100000000, "rounds of copy, add and copy back");
  options.Integer("--pace-ms", &config.pace_ms, 0, 60000, "rests for up to so long between rounds");
  options.Seed("--seed", &config.seed, "of the random vectors");
  options.Integer("--device", &config.device, 0, 1023, "CUDA device");
  options.Flag("--reference", &config.reference, "compute on the host, without CUDA");
  options.Parse(argc, argv);
  return config;
}

void Check(bool equal, const char* what, int round) {
  if (!equal) sample::Fail(sample::kExitFailure, "%s differs from the host's in round %d", what, round);
}

// Runs all rounds on both and returns the milliseconds of the first; the second may be null.
float RunRounds(const Config& config, Vector* vector, Vector* host) {
  sample::Random random(config.seed);
  sample::Pace pace(config.pace_ms, config.seed);
  std::vector<float> x(config.elements);
  float milliseconds = 0;
  for (int round = 1; round <= config.rounds; ++round) {
    pace.Wait();
    for (float& value : x) value = random.Symmetric(1.0f);
    const RoundResult result = vector->Round(x);
    milliseconds += result.milliseconds;
    if (host != nullptr) Check(result.checksum == host->Round(x).checksum, "the checksum", round);
    printf("round %d checksum %016llx\n", round, static_cast<unsigned long long>(result.checksum));
  }
  return milliseconds;
}

}  // namespace

int main(int argc, char** argv) {
  const Config config = ParseConfig(argc, argv);
  printf("vector %s: elements %d streams %d rounds %d seed %llu\n", config.reference ? "reference" : "device",
         config.elements, config.streams, config.rounds, static_cast<unsigned long long>(config.seed));
  const std::unique_ptr<Vector> host = vector_sample::MakeHostVector(config);
  std::unique_ptr<Vector> device;
  if (!config.reference) device = vector_sample::MakeDeviceVector(config);
  Vector* subject = config.reference ? host.get() : device.get();
  const float milliseconds = RunRounds(config, subject, config.reference ? nullptr : host.get());

  const std::vector<float> values = subject->Values();
  if (!config.reference) {
    const bool equal = memcmp(values.data(), host->Values().data(), values.size() * sizeof(float)) == 0;
    Check(equal, "the vector", config.rounds);
    printf("matches the host; device time %.3f ms\n", static_cast<double>(milliseconds));
  }
  sample::Sha256 sha;
  sha.Update(values);
  printf("sha256 %s\n", sha.HexDigest().c_str());
  return 0;
}

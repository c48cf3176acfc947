// Passes vectors around a ring of devices with NCCL and sums them up, round by round. All ranks in one
// process, or each in a process of its own, which find each other by a file. The lines and the final digest
// are the same either way, for every process, and with --reference, which computes on the host alone.
#include <stdio.h>

#include "../common/fail.h"
#include "../common/options.h"
#include "../common/pace.h"
#include "../common/sha256.h"
#include "config.h"

namespace {

nccl_ring::Config ParseConfig(int argc, char** argv) {
  nccl_ring::Config config;
  sample::Options options("passes vectors around a ring of devices with NCCL");
  options.Integer("--ranks", &config.ranks, 1, 64, "ranks of the ring, a device each");
  options.Integer("--rank", &config.rank, 0, 63,
                  "this process is that rank alone; unset: all are in this process");
  options.Text("--id-file", &config.id_file, "with --rank: the file by which the ranks meet, not there yet");
  options.Choice("--init", &config.init, {"all", "group"},
                 "without --rank: one call for all, or a group of calls");
  options.Integer("--elements", &config.elements, 1, 1 << 26, "elements of a vector");
  options.Integer("--rounds", &config.rounds, 1, 1000000000, "times around");
  options.Integer("--pace-ms", &config.pace_ms, 0, 60000, "rests for up to so long between rounds");
  options.Seed("--seed", &config.seed, "of the vectors");
  options.Integer("--device", &config.device, 0, 1023,
                  "CUDA device of the first rank here; unset: its rank's number");
  options.Flag("--reference", &config.reference, "compute on the host, without CUDA");
  options.Parse(argc, argv);
  if (config.rank >= config.ranks) sample::Fail(sample::kExitUsage, "--rank must be less than --ranks");
  if (config.rank >= 0 && config.id_file.empty()) sample::Fail(sample::kExitUsage, "--rank needs --id-file");
  return config;
}

uint64_t Checksum(const std::vector<uint32_t>& values) {
  uint64_t sum = 0xcbf29ce484222325;
  for (uint32_t value : values) sum = (sum ^ value) * 0x100000001b3;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const nccl_ring::Config config = ParseConfig(argc, argv);
  printf("nccl_ring %s: ranks %d elements %d rounds %d seed %llu\n",
         config.reference ? "reference" : "device", config.ranks, config.elements, config.rounds,
         static_cast<unsigned long long>(config.seed));
  const std::unique_ptr<nccl_ring::Ring> ring =
      config.reference ? nccl_ring::MakeHostRing(config) : nccl_ring::MakeDeviceRing(config);
  sample::Pace pace(config.pace_ms, config.seed);
  for (int round = 1; round <= config.rounds; ++round) {
    pace.Wait();
    printf("round %d checksum %016llx\n", round, static_cast<unsigned long long>(Checksum(ring->Round())));
  }
  sample::Sha256 sha;
  sha.Update(ring->Gather());
  printf("sha256 %s\n", sha.HexDigest().c_str());
  return 0;
}

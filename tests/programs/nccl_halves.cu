// Two ranks in processes of their own (samples/ranks/environment.h) and one message. Rank 1 waits for it on
// the device; rank 0 sends it when it is told to, by a byte in the FIFO "send" of the folder that is the
// argument. Then both sum up what they have, and end when a byte comes by "end.RANK".
#include <cuda_runtime.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdio.h>
#include <unistd.h>

#include <string>

#include "../../samples/common/cuda_check.h"
#include "../../samples/ranks/environment.h"
#include "../../samples/ranks/nccl_check.h"

namespace {

void WaitFor(const std::string& fifo) {
  const int fd = open(fifo.c_str(), O_RDONLY | O_CLOEXEC);
  char byte;
  if (fd < 0 || read(fd, &byte, 1) != 1) sample::Fail(sample::kExitFailure, "cannot read %s", fifo.c_str());
  close(fd);
}

struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  int* memory = nullptr;

  int Value() const {
    int value = 0;
    CUDA_CHECK(cudaMemcpyAsync(&value, memory, sizeof(value), cudaMemcpyDeviceToHost, stream));
    CUDA_CHECK(cudaStreamSynchronize(stream));
    return value;
  }
  void Sum() const { NCCL_CHECK(ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, comm, stream)); }
};

void Send(const Rank& rank, const std::string& folder) {
  puts("holds");
  WaitFor(folder + "/send");
  puts("sends");
  NCCL_CHECK(ncclSend(rank.memory, 1, ncclInt32, 1, rank.comm, rank.stream));
  CUDA_CHECK(cudaStreamSynchronize(rank.stream));
  puts("sent");
}

void Receive(const Rank& rank) {
  NCCL_CHECK(ncclRecv(rank.memory, 1, ncclInt32, 0, rank.comm, rank.stream));
  puts("waits");
  CUDA_CHECK(cudaStreamSynchronize(rank.stream));
  printf("received %d\n", rank.Value());
}

}  // namespace

int main(int argc, char** argv) {
  const ranks::Environment environment = ranks::ReadEnvironment();
  if (argc != 2 || environment.ranks != 2)
    sample::Fail(sample::kExitUsage, "usage: nccl_halves FOLDER, for two ranks");
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const std::string folder = argv[1];
  Rank rank;
  rank.rank = environment.rank;
  CUDA_CHECK(cudaSetDevice(ranks::ChooseDevice(-1, environment, 1)));
  CUDA_CHECK(cudaStreamCreate(&rank.stream));
  CUDA_CHECK(cudaMalloc(&rank.memory, sizeof(int)));
  const int first = rank.rank == 0 ? 41 : 1;
  CUDA_CHECK(cudaMemcpy(rank.memory, &first, sizeof(first), cudaMemcpyHostToDevice));
  NCCL_CHECK(ncclCommInitRank(&rank.comm, 2, ranks::ShareIds(environment, 1)[0], rank.rank));
  rank.Sum();
  rank.Value();
  rank.rank == 0 ? Send(rank, folder) : Receive(rank);
  rank.Sum();
  printf("sum %d\n", rank.Value());
  WaitFor(folder + "/end." + std::to_string(rank.rank));
  NCCL_CHECK(ncclCommDestroy(rank.comm));
  CUDA_CHECK(cudaFree(rank.memory));
  CUDA_CHECK(cudaStreamDestroy(rank.stream));
  return 0;
}

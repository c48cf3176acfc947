#include <nccl.h>
#include <unistd.h>

#include "../common/cuda_check.h"
#include "config.h"
#include "id_file.h"

#define NCCL_CHECK(call) CheckNccl((call), #call, __LINE__)

namespace nccl_ring {
namespace {

void CheckNccl(ncclResult_t result, const char* what, int line) {
  if (result == ncclSuccess) return;
  sample::Fail(sample::kExitFailure, "%s failed: %s (%s) at line %d", what, ncclGetErrorString(result),
               ncclGetLastError(nullptr), line);
}

__global__ void MixAll(uint32_t* x, const uint32_t* y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = Mix(x[i], y[i]);
}

__global__ void FoldAll(uint32_t* x, const uint32_t* sum, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = Fold(x[i], sum[i]);
}

constexpr int kBlock = 256;

// A rank of this process.
struct Rank {
  int rank = 0;
  int device = 0;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  uint32_t* x = nullptr;
  uint32_t* y = nullptr;
  uint32_t* sum = nullptr;
};

class DeviceRing : public Ring {
 public:
  explicit DeviceRing(const Config& config) : config_(config) {
    const int first = config.rank < 0 ? 0 : config.rank, count = config.rank < 0 ? config.ranks : 1;
    for (int i = 0; i < count; ++i) {
      Rank rank;
      rank.rank = first + i;
      rank.device = config.device < 0 ? rank.rank : config.device + i;
      AllocateOn(&rank);
      ranks_.push_back(rank);
    }
    MakeCommunicators();
  }

  ~DeviceRing() override {
    for (const Rank& rank : ranks_) {
      CUDA_CHECK(cudaSetDevice(rank.device));
      CUDA_CHECK(cudaStreamSynchronize(rank.stream));
      NCCL_CHECK(ncclCommDestroy(rank.comm));
      for (uint32_t* memory : {rank.x, rank.y, rank.sum}) CUDA_CHECK(cudaFree(memory));
      CUDA_CHECK(cudaStreamDestroy(rank.stream));
    }
  }

  std::vector<uint32_t> Round() override {
    const int count = config_.elements;
    const int blocks = (count + kBlock - 1) / kBlock;
    NCCL_CHECK(ncclGroupStart());
    for (const Rank& rank : ranks_) {
      const int next = (rank.rank + 1) % config_.ranks,
                before = (rank.rank + config_.ranks - 1) % config_.ranks;
      NCCL_CHECK(ncclSend(rank.x, count, ncclUint32, next, rank.comm, rank.stream));
      NCCL_CHECK(ncclRecv(rank.y, count, ncclUint32, before, rank.comm, rank.stream));
    }
    NCCL_CHECK(ncclGroupEnd());
    for (const Rank& rank : ranks_) {
      CUDA_CHECK(cudaSetDevice(rank.device));
      MixAll<<<blocks, kBlock, 0, rank.stream>>>(rank.x, rank.y, count);
      CUDA_CHECK_LAUNCH();
    }
    NCCL_CHECK(ncclGroupStart());
    for (const Rank& rank : ranks_)
      NCCL_CHECK(ncclAllReduce(rank.x, rank.sum, count, ncclUint32, ncclSum, rank.comm, rank.stream));
    NCCL_CHECK(ncclGroupEnd());
    for (const Rank& rank : ranks_) {
      CUDA_CHECK(cudaSetDevice(rank.device));
      FoldAll<<<blocks, kBlock, 0, rank.stream>>>(rank.x, rank.sum, count);
      CUDA_CHECK_LAUNCH();
    }
    return SumOfAll();
  }

  std::vector<uint32_t> Gather() override {
    const size_t count = static_cast<size_t>(config_.elements),
                 all = count * static_cast<size_t>(config_.ranks);
    std::vector<uint32_t*> gathered;
    NCCL_CHECK(ncclGroupStart());
    for (const Rank& rank : ranks_) {
      CUDA_CHECK(cudaSetDevice(rank.device));
      uint32_t* memory = nullptr;
      CUDA_CHECK(cudaMalloc(&memory, all * sizeof(uint32_t)));
      gathered.push_back(memory);
      NCCL_CHECK(ncclAllGather(rank.x, memory, count, ncclUint32, rank.comm, rank.stream));
    }
    NCCL_CHECK(ncclGroupEnd());
    std::vector<uint32_t> result(all);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      CUDA_CHECK(cudaSetDevice(ranks_[i].device));
      CUDA_CHECK(cudaStreamSynchronize(ranks_[i].stream));
      CUDA_CHECK(cudaMemcpy(result.data(), gathered[i], all * sizeof(uint32_t), cudaMemcpyDeviceToHost));
      CUDA_CHECK(cudaFree(gathered[i]));
    }
    return result;
  }

 private:
  void AllocateOn(Rank* rank) const {
    const size_t bytes = static_cast<size_t>(config_.elements) * sizeof(uint32_t);
    const std::vector<uint32_t> start = Start(config_, rank->rank);
    CUDA_CHECK(cudaSetDevice(rank->device));
    CUDA_CHECK(cudaStreamCreate(&rank->stream));
    for (uint32_t** memory : {&rank->x, &rank->y, &rank->sum}) CUDA_CHECK(cudaMalloc(memory, bytes));
    CUDA_CHECK(cudaMemcpy(rank->x, start.data(), bytes, cudaMemcpyHostToDevice));
  }

  void MakeCommunicators() {
    if (config_.rank < 0 && config_.init == "all") return MakeAll();
    ncclUniqueId id;
    const bool first = ranks_[0].rank == 0;
    if (first) NCCL_CHECK(ncclGetUniqueId(&id));
    if (config_.rank == 0) WriteId(config_.id_file, id);
    if (!first) id = ReadId(config_.id_file);
    NCCL_CHECK(ncclGroupStart());
    for (Rank& rank : ranks_) {
      CUDA_CHECK(cudaSetDevice(rank.device));
      NCCL_CHECK(ncclCommInitRank(&rank.comm, config_.ranks, id, rank.rank));
    }
    NCCL_CHECK(ncclGroupEnd());
    // All have read it.
    if (config_.rank == 0) unlink(config_.id_file.c_str());
  }

  void MakeAll() {
    std::vector<int> devices;
    for (const Rank& rank : ranks_) devices.push_back(rank.device);
    std::vector<ncclComm_t> comms(ranks_.size());
    NCCL_CHECK(ncclCommInitAll(comms.data(), config_.ranks, devices.data()));
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i].comm = comms[i];
  }

  // Which every rank has; fails when two of this process differ.
  std::vector<uint32_t> SumOfAll() const {
    std::vector<uint32_t> first, sum(config_.elements);
    for (const Rank& rank : ranks_) {
      CUDA_CHECK(cudaSetDevice(rank.device));
      CUDA_CHECK(cudaMemcpyAsync(sum.data(), rank.sum, sum.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost,
                                 rank.stream));
      CUDA_CHECK(cudaStreamSynchronize(rank.stream));
      if (first.empty()) first = sum;
      if (sum != first) sample::Fail(sample::kExitFailure, "rank %d has another sum", rank.rank);
    }
    return first;
  }

  const Config config_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::unique_ptr<Ring> MakeDeviceRing(const Config& config) { return std::make_unique<DeviceRing>(config); }

}  // namespace nccl_ring

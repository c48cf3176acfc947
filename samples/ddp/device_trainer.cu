#include "../common/cuda_check.h"
#include "../ranks/environment.h"
#include "../ranks/nccl_check.h"
#include "../ranks/network_device.h"
#include "config.h"

namespace ddp {
namespace {

namespace device = ranks::device;

// One rank: a device with all weights.
struct Replica {
  Replica(const Config& config, const Layout& layout, int rank, int device);
  ~Replica();

  int rank;
  int device;
  ncclComm_t comm = nullptr;
  cudaStream_t compute = nullptr, exchange = nullptr;
  std::vector<cudaEvent_t> ready;  // the gradient of a layer
  cudaEvent_t exchanged = nullptr;
  device::Array<float> table, targets, weights, velocity;
  device::Array<int64_t> gradient;
  std::vector<device::Array<float>> x;   // what goes into each layer, and what comes out of the last
  std::vector<device::Array<float>> dx;  // their gradients
};

cudaEvent_t MakeEvent() {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

Replica::Replica(const Config& config, const Layout& layout, int rank, int device)
    : rank(rank), device(device) {
  CUDA_CHECK(cudaSetDevice(device));
  CUDA_CHECK(cudaStreamCreate(&compute));
  CUDA_CHECK(cudaStreamCreate(&exchange));
  exchanged = MakeEvent();
  table = device::Array<float>(static_cast<size_t>(config.rows) * (config.inputs + config.outputs));
  targets = device::Array<float>(static_cast<size_t>(config.batch) * config.outputs);
  weights = device::Array<float>(layout.weights);
  velocity = device::Array<float>(layout.weights);
  gradient = device::Array<int64_t>(layout.weights + 1);
  for (int layer = 0; layer <= layout.layers(); ++layer) {
    const size_t width = layer == 0 ? config.inputs : layout.shapes[layer - 1].outputs;
    x.emplace_back(config.batch * width);
    dx.emplace_back(config.batch * width);
    ready.push_back(MakeEvent());
  }
}

Replica::~Replica() {
  CUDA_CHECK(cudaSetDevice(device));
  CUDA_CHECK(cudaDeviceSynchronize());
  NCCL_CHECK(ncclCommDestroy(comm));
  for (cudaEvent_t event : ready) CUDA_CHECK(cudaEventDestroy(event));
  CUDA_CHECK(cudaEventDestroy(exchanged));
  for (cudaStream_t stream : {compute, exchange}) CUDA_CHECK(cudaStreamDestroy(stream));
}

class DeviceTrainer : public Trainer {
 public:
  explicit DeviceTrainer(const Config& config)
      : config_(config),
        layout_(config),
        environment_(ranks::ReadEnvironment()),
        ranks_(environment_.ranks * config.devices),
        pace_(ranks::PaceOf(config.pace_ms, config.seed, environment_.rank)) {
    const int first = ranks::ChooseDevice(config.device, environment_, config.devices);
    for (int i = 0; i < config.devices; ++i)
      replicas_.push_back(
          std::make_unique<Replica>(config, layout_, environment_.rank * config.devices + i, first + i));
    MakeCommunicator();
    Start();
  }

  void Train(int step) override {
    pace_.Wait();
    for (const auto& replica : replicas_) Forward(step, *replica);
    for (int layer = layout_.layers() - 1; layer >= 0; --layer) {
      for (const auto& replica : replicas_) Backward(layer, *replica);
      AddUp(layer);
    }
    for (const auto& replica : replicas_) {
      CUDA_CHECK(cudaSetDevice(replica->device));
      CUDA_CHECK(cudaEventRecord(replica->exchanged, replica->exchange));
      CUDA_CHECK(cudaStreamWaitEvent(replica->compute, replica->exchanged, 0));
      device::Update(ranks::MakeStep(config_.rate, ranks_ * config_.batch), replica->gradient.get(),
                     replica->weights.get(), replica->velocity.get(), layout_.weights, replica->compute);
    }
  }

  double Loss() override {
    const Replica& replica = *replicas_[0];
    int64_t loss = 0;
    CUDA_CHECK(cudaSetDevice(replica.device));
    CUDA_CHECK(cudaMemcpyAsync(&loss, replica.gradient.get() + layout_.weights, sizeof(loss),
                               cudaMemcpyDeviceToHost, replica.compute));
    CUDA_CHECK(cudaStreamSynchronize(replica.compute));
    return static_cast<double>(loss) / ranks::kFixed / (ranks_ * config_.batch);
  }

  int first_rank() const override { return replicas_[0]->rank; }

  std::vector<std::vector<float>> Weights() override {
    std::vector<std::vector<float>> all;
    for (const auto& replica : replicas_) {
      CUDA_CHECK(cudaSetDevice(replica->device));
      CUDA_CHECK(cudaStreamSynchronize(replica->compute));
      all.push_back(replica->weights.Get());
    }
    return all;
  }

  void Exchange(sample::SavedState* state) override {
    for (const auto& replica : replicas_) {
      CUDA_CHECK(cudaSetDevice(replica->device));
      CUDA_CHECK(cudaStreamSynchronize(replica->compute));
      for (device::Array<float>* array : {&replica->weights, &replica->velocity}) array->Exchange(state);
    }
  }

 private:
  // A call for each rank of this process; those of one thread must be in a group.
  template <typename Call>
  void ForAll(const Call& call) {
    if (replicas_.size() == 1) return call(*replicas_[0]);
    NCCL_CHECK(ncclGroupStart());
    for (const auto& replica : replicas_) {
      CUDA_CHECK(cudaSetDevice(replica->device));
      call(*replica);
    }
    NCCL_CHECK(ncclGroupEnd());
  }

  void MakeCommunicator() {
    const ncclUniqueId id = ranks::ShareIds(environment_, 1)[0];
    ForAll([&](Replica& replica) { NCCL_CHECK(ncclCommInitRank(&replica.comm, ranks_, id, replica.rank)); });
  }

  // Rank 0 has the examples and the weights; the others get them from it.
  void Start() {
    for (const auto& replica : replicas_) {
      if (replica->rank != 0) continue;
      CUDA_CHECK(cudaSetDevice(replica->device));
      replica->weights.Set(StartAll(config_, layout_));
      device::MakeTable(config_.seed, config_.rows, config_.inputs, config_.outputs, replica->table.get(),
                        replica->compute);
    }
    Broadcast(&Replica::weights);
    Broadcast(&Replica::table);
  }

  using FloatsOfReplica = device::Array<float> Replica::*;
  void Broadcast(FloatsOfReplica floats) {
    ForAll([&](Replica& replica) {
      const device::Array<float>& array = replica.*floats;
      NCCL_CHECK(ncclBroadcast(array.get(), array.get(), array.count(), ncclFloat32, 0, replica.comm,
                               replica.compute));
    });
  }

  void Forward(int step, const Replica& replica) {
    CUDA_CHECK(cudaSetDevice(replica.device));
    CUDA_CHECK(cudaMemsetAsync(replica.gradient.get(), 0, replica.gradient.count() * sizeof(int64_t),
                               replica.compute));
    device::Take(replica.table.get(), config_.rows, {config_.batch, config_.inputs, config_.outputs},
                 config_.seed, step, replica.rank * config_.batch, replica.x[0].get(), replica.targets.get(),
                 replica.compute);
    const int layers = layout_.layers();
    for (int layer = 0; layer < layers; ++layer) {
      device::Forward(layout_.shapes[layer], replica.x[layer].get(),
                      replica.weights.get() + layout_.offsets[layer], layer + 1 < layers,
                      replica.x[layer + 1].get(), replica.compute);
    }
    device::AddLoss(config_.batch, config_.outputs, replica.x[layers].get(), replica.targets.get(),
                    replica.dx[layers].get(), replica.gradient.get() + layout_.weights, replica.compute);
  }

  void Backward(int layer, const Replica& replica) {
    CUDA_CHECK(cudaSetDevice(replica.device));
    const ranks::Shape& shape = layout_.shapes[layer];
    const float* const dy = replica.dx[layer + 1].get();
    device::AddGradient(shape, dy, replica.x[layer].get(), replica.gradient.get() + layout_.offsets[layer],
                        replica.compute);
    CUDA_CHECK(cudaEventRecord(replica.ready[layer], replica.compute));
    CUDA_CHECK(cudaStreamWaitEvent(replica.exchange, replica.ready[layer], 0));
    if (layer == 0) return;
    device::BackwardInput(shape, dy, replica.weights.get() + layout_.offsets[layer], replica.x[layer].get(),
                          true, replica.dx[layer].get(), replica.compute);
  }

  // The gradients of a layer, on the second stream while the layers before it are computed; the loss with
  // those of the last.
  void AddUp(int layer) {
    const size_t offset = layout_.offsets[layer];
    const size_t end = layer + 1 < layout_.layers() ? layout_.offsets[layer + 1] : layout_.weights + 1;
    ForAll([&](Replica& replica) {
      int64_t* const gradient = replica.gradient.get() + offset;
      NCCL_CHECK(ncclAllReduce(gradient, gradient, end - offset, ncclInt64, ncclSum, replica.comm,
                               replica.exchange));
    });
  }

  const Config config_;
  const Layout layout_;
  const ranks::Environment environment_;
  const int ranks_;
  sample::Pace pace_;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

}  // namespace

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config) {
  return std::make_unique<DeviceTrainer>(config);
}

}  // namespace ddp

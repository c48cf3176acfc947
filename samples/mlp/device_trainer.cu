// The training on a CUDA device: all work on one stream, all memory from one caching pool.
#include <stasis/memory.h>
#include <string.h>

#include <algorithm>

#include "../common/cuda_check.h"
#include "../common/device_pool.h"
#include "../common/layers.h"
#include "kernels.h"
#include "trainer.h"

namespace mlp {
namespace {

using sample::DevicePool;
using sample::ImageSet;
using sample::Matrix;
using sample::PoolArray;

constexpr int kTestRows = 1000;  // test images classified at a time
constexpr size_t kMiB = size_t{1} << 20;

size_t BlockBytes(size_t count) { return DevicePool::BlockSize(count * sizeof(float)); }

// What is live at once at most: images, weights with their Adam state, the values of a forward pass, and one
// layer's gradient and slopes.
size_t PeakBytes(const Config& config, const std::vector<int>& sizes, const ImageSet& train,
                 const ImageSet& test) {
  size_t total = DevicePool::BlockSize(train.images.size()) + DevicePool::BlockSize(test.images.size());
  total += DevicePool::BlockSize(train.labels.size()) + DevicePool::BlockSize(test.labels.size());
  total += BlockBytes(train.count);
  const size_t rows = std::max(config.batch, kTestRows);
  size_t gradient = 0;
  size_t slope = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    total += BlockBytes(rows * sizes[i]);
    slope = std::max(slope, BlockBytes(rows * sizes[i]));
    if (i == 0) continue;
    const size_t weights = BlockBytes(static_cast<size_t>(sizes[i - 1]) * sizes[i]) + BlockBytes(sizes[i]);
    total += 3 * weights;
    gradient = std::max(gradient, weights);
  }
  return total + gradient + 2 * slope;
}

// Memory of the host that the device reads and writes without the processor's help.
template <typename T>
class PinnedArray {
 public:
  explicit PinnedArray(size_t count) { CUDA_CHECK(cudaMallocHost(&data_, count * sizeof(T))); }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  ~PinnedArray() { cudaFreeHost(data_); }

  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

class Stream {
 public:
  explicit Stream(int device) {
    CUDA_CHECK(cudaSetDevice(device));
    CUDA_CHECK(cudaStreamCreate(&stream_));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

template <typename T>
PoolArray<T> Upload(DevicePool* pool, const std::vector<T>& values, cudaStream_t stream) {
  PoolArray<T> array(pool, values.size());
  CUDA_CHECK(cudaMemcpyAsync(array.data(), values.data(), array.bytes(), cudaMemcpyHostToDevice, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));  // the caller may let go of its values
  return array;
}

std::vector<float> Download(const PoolArray<float>& array, cudaStream_t stream) {
  std::vector<float> values(array.count());
  CUDA_CHECK(cudaMemcpyAsync(values.data(), array.data(), array.bytes(), cudaMemcpyDeviceToHost, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  return values;
}

// A trained array with its Adam state.
struct Parameter {
  Parameter(DevicePool* pool, const std::vector<float>& initial, cudaStream_t stream)
      : value(Upload(pool, initial, stream)), mean(pool, initial.size()), variance(pool, initial.size()) {
    CUDA_CHECK(cudaMemsetAsync(mean.data(), 0, mean.bytes(), stream));
    CUDA_CHECK(cudaMemsetAsync(variance.data(), 0, variance.bytes(), stream));
  }

  void Update(const sample::AdamStep& step, const PoolArray<float>& gradient, cudaStream_t stream) {
    sample::ApplyAdam(step, gradient.data(), value.data(), mean.data(), variance.data(), value.count(),
                      stream);
  }

  void Exchange(sample::SavedState* state, cudaStream_t stream) {
    for (PoolArray<float>* array : {&value, &mean, &variance}) {
      std::vector<float> values = Download(*array, stream);
      state->Values(&values);
      CUDA_CHECK(
          cudaMemcpyAsync(array->data(), values.data(), array->bytes(), cudaMemcpyHostToDevice, stream));
      CUDA_CHECK(cudaStreamSynchronize(stream));
    }
  }

  PoolArray<float> value;
  PoolArray<float> mean;
  PoolArray<float> variance;
};

struct DenseLayer {
  DenseLayer(DevicePool* pool, const Layer& layer, cudaStream_t stream)
      : inputs(layer.inputs),
        outputs(layer.outputs),
        weights(pool, layer.weights, stream),
        bias(pool, layer.bias, stream) {}

  Matrix WeightMatrix() const { return {weights.value.data(), inputs, outputs}; }

  int inputs;
  int outputs;
  Parameter weights;
  Parameter bias;
};

class DeviceTrainer : public Trainer {
 public:
  DeviceTrainer(const Config& config, const Model& initial, const ImageSet& train, const ImageSet& test)
      : config_(config),
        test_count_(test.count),
        pixels_(train.pixels),
        stream_(config.device),
        pool_(PoolBytes(config, train, test)),
        pinned_order_(train.count),
        pinned_loss_(1),
        train_images_(Upload(&pool_, train.images, stream_.get())),
        train_labels_(Upload(&pool_, train.labels, stream_.get())),
        test_images_(Upload(&pool_, test.images, stream_.get())),
        test_labels_(Upload(&pool_, test.labels, stream_.get())),
        order_(&pool_, train.count),
        loss_(&pool_, 1) {
    for (const Layer& layer : initial) layers_.emplace_back(&pool_, layer, stream_.get());
  }

  void SetOrder(const std::vector<int>& order) override {
    // The previous order may still be on its way to the device.
    CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    memcpy(pinned_order_.data(), order.data(), order.size() * sizeof(int));
    CUDA_CHECK(cudaMemcpyAsync(order_.data(), pinned_order_.data(), order_.bytes(), cudaMemcpyHostToDevice,
                               stream_.get()));
  }

  void Step(int first) override {
    Train(order_.data() + first);
    stasis_iteration();
  }

  float Loss() override {
    CUDA_CHECK(cudaMemcpyAsync(pinned_loss_.data(), loss_.data(), sizeof(float), cudaMemcpyDeviceToHost,
                               stream_.get()));
    CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    return *pinned_loss_.data();
  }

  int CountCorrect() override {
    std::vector<int> identity(test_count_);
    for (int i = 0; i < test_count_; ++i) identity[i] = i;
    const PoolArray<int> indices = Upload(&pool_, identity, stream_.get());
    const PoolArray<int> correct = Upload(&pool_, std::vector<int>{0}, stream_.get());
    for (int first = 0; first < test_count_; first += kTestRows) {
      const int rows = std::min(kTestRows, test_count_ - first);
      const std::vector<PoolArray<float>> values = Forward(test_images_.data(), indices.data() + first, rows);
      const Matrix logits = {values.back().data(), rows, layers_.back().outputs};
      mlp::CountCorrect(logits, test_labels_.data() + first, correct.data(), stream_.get());
    }
    int result = 0;
    CUDA_CHECK(cudaMemcpyAsync(&result, correct.data(), sizeof(int), cudaMemcpyDeviceToHost, stream_.get()));
    CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    return result;
  }

  Model Weights() override {
    Model model;
    for (const DenseLayer& layer : layers_) {
      model.push_back({layer.inputs, layer.outputs, Download(layer.weights.value, stream_.get()),
                       Download(layer.bias.value, stream_.get())});
    }
    return model;
  }

  void Exchange(sample::SavedState* state) override {
    state->Value(&step_);
    for (DenseLayer& layer : layers_) {
      layer.weights.Exchange(state, stream_.get());
      layer.bias.Exchange(state, stream_.get());
    }
  }

  std::string MemoryLine() const override {
    char line[128];
    snprintf(line, sizeof(line), "memory reserved %.1f MiB live %.1f MiB peak %.1f MiB",
             static_cast<double>(pool_.reserved()) / kMiB, static_cast<double>(pool_.live()) / kMiB,
             static_cast<double>(pool_.peak()) / kMiB);
    return line;
  }

 private:
  void Train(const int* indices) {
    const std::vector<PoolArray<float>> values = Forward(train_images_.data(), indices, config_.batch);
    ComputeLoss(indices, values.back());
    if (Learns(config_, ++step_)) Backward(values, sample::MakeAdamStep(config_.learning_rate, 0, step_));
  }

  static size_t PoolBytes(const Config& config, const ImageSet& train, const ImageSet& test) {
    if (config.pool_mib > 0) return config.pool_mib * kMiB;
    return config.reserve * PeakBytes(config, LayerSizes(config, train.pixels), train, test);
  }

  // The values between the layers: the scaled pixels first, the logits last.
  std::vector<PoolArray<float>> Forward(const uint8_t* images, const int* indices, int rows) {
    std::vector<PoolArray<float>> values;
    values.emplace_back(&pool_, static_cast<size_t>(rows) * pixels_);
    GatherImages(images, indices, {values[0].data(), rows, pixels_}, stream_.get());
    for (size_t i = 0; i < layers_.size(); ++i) {
      const DenseLayer& layer = layers_[i];
      values.emplace_back(&pool_, static_cast<size_t>(rows) * layer.outputs);
      const Matrix out = {values[i + 1].data(), rows, layer.outputs};
      sample::Multiply({values[i].data(), rows, layer.inputs}, layer.WeightMatrix(), out, stream_.get());
      const auto add_bias = i + 1 < layers_.size() ? AddBiasRectify : sample::AddBias;
      add_bias(out, layer.bias.value.data(), stream_.get());
    }
    return values;
  }

  // Also turns the logits into the slope of the loss.
  void ComputeLoss(const int* indices, const PoolArray<float>& logits) {
    const PoolArray<int> labels(&pool_, config_.batch);
    const PoolArray<float> losses(&pool_, config_.batch);
    GatherLabels(train_labels_.data(), indices, config_.batch, labels.data(), stream_.get());
    SoftmaxLoss({logits.data(), config_.batch, layers_.back().outputs}, labels.data(), losses.data(),
                stream_.get());
    sample::Mean(losses.data(), config_.batch, loss_.data(), stream_.get());
  }

  void Backward(const std::vector<PoolArray<float>>& values, const sample::AdamStep& adam) {
    PoolArray<float> held;
    Matrix slope = {values.back().data(), config_.batch, layers_.back().outputs};
    for (size_t i = layers_.size(); i-- > 0;) {
      const Matrix in = {values[i].data(), config_.batch, layers_[i].inputs};
      PoolArray<float> in_slope;
      if (i > 0) in_slope = InputSlope(layers_[i], in, slope);
      UpdateLayer(&layers_[i], in, slope, adam);
      held = std::move(in_slope);
      slope = {held.data(), config_.batch, layers_[i].inputs};
    }
  }

  PoolArray<float> InputSlope(const DenseLayer& layer, Matrix in, Matrix slope) {
    PoolArray<float> in_slope(&pool_, static_cast<size_t>(in.rows) * in.columns);
    const Matrix out = {in_slope.data(), in.rows, in.columns};
    sample::MultiplyTransposedRight(slope, layer.WeightMatrix(), out, stream_.get());
    MaskSlope(in, out, stream_.get());
    return in_slope;
  }

  void UpdateLayer(DenseLayer* layer, Matrix in, Matrix slope, const sample::AdamStep& adam) {
    const PoolArray<float> weights(&pool_, layer->weights.value.count());
    const PoolArray<float> bias(&pool_, layer->bias.value.count());
    sample::MultiplyTransposedLeft(in, slope, {weights.data(), layer->inputs, layer->outputs}, stream_.get());
    sample::SumRows(slope, bias.data(), stream_.get());
    layer->weights.Update(adam, weights, stream_.get());
    layer->bias.Update(adam, bias, stream_.get());
  }

  const Config config_;
  const int test_count_;
  const int pixels_;
  Stream stream_;
  DevicePool pool_;
  PinnedArray<int> pinned_order_;
  PinnedArray<float> pinned_loss_;
  PoolArray<uint8_t> train_images_;
  PoolArray<uint8_t> train_labels_;
  PoolArray<uint8_t> test_images_;
  PoolArray<uint8_t> test_labels_;
  PoolArray<int> order_;
  PoolArray<float> loss_;
  std::vector<DenseLayer> layers_;
  int step_ = 0;
};

}  // namespace

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config, const Model& initial, const ImageSet& train,
                                           const ImageSet& test) {
  return std::make_unique<DeviceTrainer>(config, initial, train, test);
}

}  // namespace mlp

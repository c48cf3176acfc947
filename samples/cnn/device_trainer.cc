// The training on a CUDA device: all work on one stream.
#include <string.h>

#include <algorithm>

#include "kernels.h"
#include "layers.h"
#include "trainer.h"

namespace cnn {
namespace {

using sample::ImageSet;
using sample::kClasses;

constexpr int kTestRows = 500;

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
OnDevice<T> Uploaded(const std::vector<T>& values, cudaStream_t stream) {
  OnDevice<T> array(values.size());
  Upload(values, array, stream);
  return array;
}

struct BlockWeights {
  BlockWeights(const BlockModel& model, cudaStream_t stream)
      : filter(model.filter, stream),
        scale(model.scale, stream),
        shift(model.shift, stream),
        running{Uploaded(model.mean, stream), Uploaded(model.variance, stream)} {}

  Parameter filter;
  Parameter scale;
  Parameter shift;
  Statistics running;
};

struct DenseWeights {
  DenseWeights(const DenseModel& model, cudaStream_t stream)
      : weights(model.weights, stream), bias(model.bias, stream) {}

  Parameter weights;
  Parameter bias;
};

struct Weights {
  Weights(const Model& model, cudaStream_t stream)
      : first(model.blocks[0], stream),
        second(model.blocks[1], stream),
        hidden(model.hidden, stream),
        classes(model.classes, stream) {}

  std::vector<Parameter*> All() {
    return {&first.filter, &first.scale,    &first.shift, &second.filter,   &second.scale,
            &second.shift, &hidden.weights, &hidden.bias, &classes.weights, &classes.bias};
  }

  BlockWeights first;
  BlockWeights second;
  DenseWeights hidden;
  DenseWeights classes;
};

// The layers for one number of images, with what lies between them.
class Network {
 public:
  Network(const Config& config, const Setting& setting, int images, Weights* weights)
      : setting_(setting),
        shape_{images, 1, kSide, kSide},
        pixels_(shape_.Count()),
        labels_(images),
        probabilities_(static_cast<size_t>(images) * kClasses) {
    AddBlock(config.channels, &weights->first);
    AddBlock(2 * config.channels, &weights->second);
    Add(MakeDropout(setting, shape_, config.dropout, config.seed));
    AddDense(config.hidden, &weights->hidden);
    Add(MakeRelu(setting, shape_));
    AddDense(kClasses, &weights->classes);
    Describe(classes_desc_, shape_);
  }

  // The classes' probabilities for the images that the indices name.
  void Forward(const DeviceImages& images, const int* indices) {
    Gather(images, indices, shape_.images, pixels_.data(), labels_.data(), setting_.stream);
    const float* values = pixels_.data();
    for (const auto& layer : layers_) {
      layer->Forward(values);
      values = layer->y();
    }
    const float one = 1;
    const float zero = 0;
    CUDNN_CHECK(cudnnSoftmaxForward(setting_.handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one,
                                    classes_desc_.get(), values, &zero, classes_desc_.get(),
                                    probabilities_.data()));
  }

  // The gradients of the mean loss, whose parts go to `losses`.
  void Backward(float* losses) {
    LossSlope(probabilities_.data(), labels_.data(), shape_.images, kClasses, losses, setting_.stream);
    const float* slope = probabilities_.data();
    for (size_t i = layers_.size(); i-- > 0;) {
      layers_[i]->Backward(i > 0 ? layers_[i - 1]->y() : pixels_.data(), slope);
      slope = layers_[i]->dx();
    }
  }

  void Exchange(sample::SavedState* state) {
    for (const auto& layer : layers_) layer->ExchangeOwn(state);
  }

  // Of the first `rows` images of the latest Forward().
  void AddCorrect(int rows, int* correct) {
    CountCorrect(probabilities_.data(), labels_.data(), rows, kClasses, correct, setting_.stream);
  }

 private:
  void Add(std::unique_ptr<Layer> layer) {
    shape_ = layer->out();
    layers_.push_back(std::move(layer));
  }

  void AddBlock(int channels, BlockWeights* block) {
    Add(MakeConvolution(setting_, shape_, channels, 3, 1, &block->filter, nullptr));
    Add(MakeNorm(setting_, shape_, &block->scale, &block->shift, &block->running));
    Add(MakeRelu(setting_, shape_));
    Add(MakePool(setting_, shape_));
  }

  void AddDense(int outputs, DenseWeights* dense) {
    Add(MakeConvolution(setting_, shape_, outputs, shape_.height, 0, &dense->weights, &dense->bias));
  }

  const Setting setting_;
  Shape shape_;  // of what the latest layer gives
  OnDevice<float> pixels_;
  OnDevice<int> labels_;
  OnDevice<float> probabilities_;
  TensorDescriptor classes_desc_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

class DeviceTrainer : public Trainer {
 public:
  DeviceTrainer(const Config& config, const Model& initial, const ImageSet& train, const ImageSet& test)
      : config_(config),
        model_(initial),
        stream_(config.device),
        train_pixels_(Uploaded(train.images, stream_.get())),
        train_labels_(Uploaded(train.labels, stream_.get())),
        test_pixels_(Uploaded(test.images, stream_.get())),
        test_labels_(Uploaded(test.labels, stream_.get())),
        order_(train.count),
        losses_(config.batch),
        loss_(1),
        weights_(initial, stream_.get()) {
    CUDNN_CHECK(cudnnSetStream(handle_.get(), stream_.get()));
    const Setting setting = {handle_.get(), stream_.get(), true};
    network_ = std::make_unique<Network>(config, setting, config.batch, &weights_);
  }

  void SetOrder(const std::vector<int>& order) override { Upload(order, order_, stream_.get()); }

  void Step(int first) override {
    network_->Forward({train_pixels_.data(), train_labels_.data(), kSide * kSide}, order_.data() + first);
    network_->Backward(losses_.data());
    sample::Mean(losses_.data(), config_.batch, loss_.data(), stream_.get());
    const sample::AdamStep adam = sample::MakeAdamStep(config_.learning_rate, 0, ++step_);
    for (Parameter* parameter : weights_.All()) parameter->Update(adam, stream_.get());
  }

  float Loss() override { return Download(loss_, stream_.get())[0]; }

  int CountCorrect(int images) override {
    const Setting setting = {handle_.get(), stream_.get(), false};
    const int rows = std::min(kTestRows, images);
    Network network(config_, setting, rows, &weights_);
    const OnDevice<int> correct = Uploaded(std::vector<int>{0}, stream_.get());
    const DeviceImages set = {test_pixels_.data(), test_labels_.data(), kSide * kSide};
    // The last images fill up with the last one, which then is not counted again.
    std::vector<int> indices((images + rows - 1) / rows * rows);
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = std::min(static_cast<int>(i), images - 1);
    const OnDevice<int> on_device = Uploaded(indices, stream_.get());
    for (int first = 0; first < images; first += rows) {
      network.Forward(set, on_device.data() + first);
      network.AddCorrect(std::min(rows, images - first), correct.data());
    }
    return Download(correct, stream_.get())[0];
  }

  Model Weights() override {
    Model model = model_;
    DownloadBlock(weights_.first, &model.blocks[0]);
    DownloadBlock(weights_.second, &model.blocks[1]);
    DownloadDense(weights_.hidden, &model.hidden);
    DownloadDense(weights_.classes, &model.classes);
    return model;
  }

  void Exchange(sample::SavedState* state) override {
    state->Value(&step_);
    for (Parameter* parameter : weights_.All()) {
      for (const OnDevice<float>* array : {&parameter->value, &parameter->mean, &parameter->variance})
        cnn::Exchange(state, *array, stream_.get());
    }
    ExchangeRunning(state, weights_.first);
    ExchangeRunning(state, weights_.second);
    network_->Exchange(state);
  }

 private:
  void ExchangeRunning(sample::SavedState* state, const BlockWeights& block) {
    cnn::Exchange(state, block.running.mean, stream_.get());
    cnn::Exchange(state, block.running.variance, stream_.get());
  }

  void DownloadBlock(const BlockWeights& block, BlockModel* model) {
    model->filter = Download(block.filter.value, stream_.get());
    model->scale = Download(block.scale.value, stream_.get());
    model->shift = Download(block.shift.value, stream_.get());
    model->mean = Download(block.running.mean, stream_.get());
    model->variance = Download(block.running.variance, stream_.get());
  }

  void DownloadDense(const DenseWeights& dense, DenseModel* model) {
    model->weights = Download(dense.weights.value, stream_.get());
    model->bias = Download(dense.bias.value, stream_.get());
  }

  const Config config_;
  const Model model_;
  Stream stream_;
  Handle handle_;
  OnDevice<uint8_t> train_pixels_;
  OnDevice<uint8_t> train_labels_;
  OnDevice<uint8_t> test_pixels_;
  OnDevice<uint8_t> test_labels_;
  OnDevice<int> order_;
  OnDevice<float> losses_;
  OnDevice<float> loss_;
  cnn::Weights weights_;
  std::unique_ptr<Network> network_;
  int step_ = 0;
};

}  // namespace

std::unique_ptr<Trainer> MakeDeviceTrainer(const Config& config, const Model& initial, const ImageSet& train,
                                           const ImageSet& test) {
  return std::make_unique<DeviceTrainer>(config, initial, train, test);
}

}  // namespace cnn

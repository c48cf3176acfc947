#include "layers.h"

#include <algorithm>

namespace cnn {
namespace {

constexpr float kOne = 1;
constexpr float kZero = 0;

// The first algorithm that gives the same bits every time.
template <typename Perf>
Perf Deterministic(const std::vector<Perf>& candidates) {
  for (const Perf& perf : candidates) {
    if (perf.status == CUDNN_STATUS_SUCCESS && perf.determinism == CUDNN_DETERMINISTIC) return perf;
  }
  sample::Fail(sample::kExitFailure, "cuDNN has no deterministic algorithm for a convolution");
}

class Convolution : public Layer {
 public:
  Convolution(const Setting& setting, const Shape& in, const Shape& out, int window, int pad,
              Parameter* weights, Parameter* bias)
      : Layer(setting, in, out), weights_(weights), bias_(bias), workspace_(Prepare(window, pad)) {}

  void Forward(const float* x) override {
    CUDNN_CHECK(cudnnConvolutionForward(setting_.handle, &kOne, x_desc_.get(), x, filter_.get(),
                                        weights_->value.data(), convolution_.get(), forward_,
                                        workspace_.data(), workspace_.bytes(), &kZero, y_desc_.get(), y()));
    if (bias_ == nullptr) return;
    CUDNN_CHECK(cudnnAddTensor(setting_.handle, &kOne, bias_desc_.get(), bias_->value.data(), &kOne,
                               y_desc_.get(), y()));
  }

  void Backward(const float* x, const float* dy) override {
    CUDNN_CHECK(cudnnConvolutionBackwardFilter(
        setting_.handle, &kOne, x_desc_.get(), x, y_desc_.get(), dy, convolution_.get(), backward_filter_,
        workspace_.data(), workspace_.bytes(), &kZero, filter_.get(), weights_->gradient.data()));
    CUDNN_CHECK(cudnnConvolutionBackwardData(
        setting_.handle, &kOne, filter_.get(), weights_->value.data(), y_desc_.get(), dy, convolution_.get(),
        backward_data_, workspace_.data(), workspace_.bytes(), &kZero, x_desc_.get(), dx()));
    if (bias_ == nullptr) return;
    CUDNN_CHECK(cudnnConvolutionBackwardBias(setting_.handle, &kOne, y_desc_.get(), dy, &kZero,
                                             bias_desc_.get(), bias_->gradient.data()));
  }

 private:
  // Describes the convolution, picks its algorithms, and says what workspace they need.
  size_t Prepare(int window, int pad) {
    CUDNN_CHECK(cudnnSetFilter4dDescriptor(filter_.get(), CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, out_.channels,
                                           in_.channels, window, window));
    CUDNN_CHECK(cudnnSetConvolution2dDescriptor(convolution_.get(), pad, pad, 1, 1, 1, 1,
                                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    // In single precision throughout.
    CUDNN_CHECK(cudnnSetConvolutionMathType(convolution_.get(), CUDNN_FMA_MATH));
    Describe(bias_desc_, {1, out_.channels, 1, 1});
    size_t bytes = PickForward();
    if (setting_.trains) bytes = std::max({bytes, PickBackwardData(), PickBackwardFilter()});
    return bytes;
  }

  size_t PickForward() {
    int count = 0;
    CUDNN_CHECK(cudnnGetConvolutionForwardAlgorithmMaxCount(setting_.handle, &count));
    std::vector<cudnnConvolutionFwdAlgoPerf_t> found(count);
    CUDNN_CHECK(cudnnGetConvolutionForwardAlgorithm_v7(setting_.handle, x_desc_.get(), filter_.get(),
                                                       convolution_.get(), y_desc_.get(), count, &count,
                                                       found.data()));
    found.resize(count);
    const auto best = Deterministic(found);
    forward_ = best.algo;
    return best.memory;
  }

  size_t PickBackwardData() {
    int count = 0;
    CUDNN_CHECK(cudnnGetConvolutionBackwardDataAlgorithmMaxCount(setting_.handle, &count));
    std::vector<cudnnConvolutionBwdDataAlgoPerf_t> found(count);
    CUDNN_CHECK(cudnnGetConvolutionBackwardDataAlgorithm_v7(setting_.handle, filter_.get(), y_desc_.get(),
                                                            convolution_.get(), x_desc_.get(), count, &count,
                                                            found.data()));
    found.resize(count);
    const auto best = Deterministic(found);
    backward_data_ = best.algo;
    return best.memory;
  }

  size_t PickBackwardFilter() {
    int count = 0;
    CUDNN_CHECK(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(setting_.handle, &count));
    std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> found(count);
    CUDNN_CHECK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(setting_.handle, x_desc_.get(), y_desc_.get(),
                                                              convolution_.get(), filter_.get(), count,
                                                              &count, found.data()));
    found.resize(count);
    const auto best = Deterministic(found);
    backward_filter_ = best.algo;
    return best.memory;
  }

  Parameter* const weights_;
  Parameter* const bias_;
  FilterDescriptor filter_;
  ConvolutionDescriptor convolution_;
  TensorDescriptor bias_desc_;
  cudnnConvolutionFwdAlgo_t forward_{};
  cudnnConvolutionBwdDataAlgo_t backward_data_{};
  cudnnConvolutionBwdFilterAlgo_t backward_filter_{};
  const OnDevice<char> workspace_;
};

class Norm : public Layer {
 public:
  Norm(const Setting& setting, const Shape& in, Parameter* scale, Parameter* shift, Statistics* running)
      : Layer(setting, in, in),
        scale_(scale),
        shift_(shift),
        running_(running),
        saved_mean_(in.channels),
        saved_inverse_(in.channels) {
    CUDNN_CHECK(cudnnDeriveBNTensorDescriptor(param_desc_.get(), x_desc_.get(), CUDNN_BATCHNORM_SPATIAL));
  }

  void Forward(const float* x) override {
    if (!setting_.trains) {
      CUDNN_CHECK(cudnnBatchNormalizationForwardInference(
          setting_.handle, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, x_desc_.get(), x, y_desc_.get(), y(),
          param_desc_.get(), scale_->value.data(), shift_->value.data(), running_->mean.data(),
          running_->variance.data(), kEpsilon));
      return;
    }
    CUDNN_CHECK(cudnnBatchNormalizationForwardTraining(
        setting_.handle, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, x_desc_.get(), x, y_desc_.get(), y(),
        param_desc_.get(), scale_->value.data(), shift_->value.data(), kMomentum, running_->mean.data(),
        running_->variance.data(), kEpsilon, saved_mean_.data(), saved_inverse_.data()));
  }

  void Backward(const float* x, const float* dy) override {
    CUDNN_CHECK(cudnnBatchNormalizationBackward(setting_.handle, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero,
                                                &kOne, &kZero, x_desc_.get(), x, y_desc_.get(), dy,
                                                x_desc_.get(), dx(), param_desc_.get(), scale_->value.data(),
                                                scale_->gradient.data(), shift_->gradient.data(), kEpsilon,
                                                saved_mean_.data(), saved_inverse_.data()));
  }

 private:
  Parameter* const scale_;
  Parameter* const shift_;
  Statistics* const running_;
  OnDevice<float> saved_mean_;
  OnDevice<float> saved_inverse_;
  TensorDescriptor param_desc_;
};

class Relu : public Layer {
 public:
  Relu(const Setting& setting, const Shape& in) : Layer(setting, in, in) {
    CUDNN_CHECK(cudnnSetActivationDescriptor(relu_.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
  }

  void Forward(const float* x) override {
    CUDNN_CHECK(cudnnActivationForward(setting_.handle, relu_.get(), &kOne, x_desc_.get(), x, &kZero,
                                       y_desc_.get(), y()));
  }

  void Backward(const float* x, const float* dy) override {
    CUDNN_CHECK(cudnnActivationBackward(setting_.handle, relu_.get(), &kOne, y_desc_.get(), y(),
                                        y_desc_.get(), dy, x_desc_.get(), x, &kZero, x_desc_.get(), dx()));
  }

 private:
  ActivationDescriptor relu_;
};

class Pool : public Layer {
 public:
  Pool(const Setting& setting, const Shape& in, const Shape& out) : Layer(setting, in, out) {
    CUDNN_CHECK(cudnnSetPooling2dDescriptor(pool_.get(), CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN,
                                            2, 2, 0, 0, 2, 2));
  }

  void Forward(const float* x) override {
    CUDNN_CHECK(cudnnPoolingForward(setting_.handle, pool_.get(), &kOne, x_desc_.get(), x, &kZero,
                                    y_desc_.get(), y()));
  }

  void Backward(const float* x, const float* dy) override {
    CUDNN_CHECK(cudnnPoolingBackward(setting_.handle, pool_.get(), &kOne, y_desc_.get(), y(), y_desc_.get(),
                                     dy, x_desc_.get(), x, &kZero, x_desc_.get(), dx()));
  }

 private:
  PoolingDescriptor pool_;
};

class Dropout : public Layer {
 public:
  Dropout(const Setting& setting, const Shape& in, double share, uint64_t seed)
      : Layer(setting, in, in), states_(StatesBytes()), reserve_(ReserveBytes()) {
    const float dropped = setting.trains ? static_cast<float>(share) : 0.0f;
    CUDNN_CHECK(cudnnSetDropoutDescriptor(dropout_.get(), setting_.handle, dropped, states_.data(),
                                          states_.bytes(), seed));
  }

  void Forward(const float* x) override {
    CUDNN_CHECK(cudnnDropoutForward(setting_.handle, dropout_.get(), x_desc_.get(), x, y_desc_.get(), y(),
                                    reserve_.data(), reserve_.bytes()));
  }

  void Backward(const float*, const float* dy) override {
    CUDNN_CHECK(cudnnDropoutBackward(setting_.handle, dropout_.get(), y_desc_.get(), dy, x_desc_.get(), dx(),
                                     reserve_.data(), reserve_.bytes()));
  }

  void ExchangeOwn(sample::SavedState* state) override { Exchange(state, states_, setting_.stream); }

 private:
  size_t StatesBytes() const {
    size_t bytes = 0;
    CUDNN_CHECK(cudnnDropoutGetStatesSize(setting_.handle, &bytes));
    return bytes;
  }

  size_t ReserveBytes() const {
    size_t bytes = 0;
    CUDNN_CHECK(cudnnDropoutGetReserveSpaceSize(x_desc_.get(), &bytes));
    return bytes;
  }

  OnDevice<char> states_;
  OnDevice<char> reserve_;
  DropoutDescriptor dropout_;
};

}  // namespace

Parameter::Parameter(const std::vector<float>& initial, cudaStream_t stream)
    : value(initial.size()), gradient(initial.size()), mean(initial.size()), variance(initial.size()) {
  CUDA_CHECK(cudaMemsetAsync(mean.data(), 0, mean.bytes(), stream));
  CUDA_CHECK(cudaMemsetAsync(variance.data(), 0, variance.bytes(), stream));
  Upload(initial, value, stream);
}

void Parameter::Update(const sample::AdamStep& step, cudaStream_t stream) {
  sample::ApplyAdam(step, gradient.data(), value.data(), mean.data(), variance.data(), value.count(), stream);
}

Layer::Layer(const Setting& setting, const Shape& in, const Shape& out)
    : setting_(setting), in_(in), out_(out), y_(out.Count()), dx_(setting.trains ? in.Count() : 0) {
  Describe(x_desc_, in);
  Describe(y_desc_, out);
}

std::unique_ptr<Layer> MakeConvolution(const Setting& setting, const Shape& in, int filters, int window,
                                       int pad, Parameter* weights, Parameter* bias) {
  const Shape out = {in.images, filters, in.height + 2 * pad - window + 1, in.width + 2 * pad - window + 1};
  return std::make_unique<Convolution>(setting, in, out, window, pad, weights, bias);
}

std::unique_ptr<Layer> MakeNorm(const Setting& setting, const Shape& in, Parameter* scale, Parameter* shift,
                                Statistics* running) {
  return std::make_unique<Norm>(setting, in, scale, shift, running);
}

std::unique_ptr<Layer> MakeRelu(const Setting& setting, const Shape& in) {
  return std::make_unique<Relu>(setting, in);
}

std::unique_ptr<Layer> MakePool(const Setting& setting, const Shape& in) {
  return std::make_unique<Pool>(setting, in, Shape{in.images, in.channels, in.height / 2, in.width / 2});
}

std::unique_ptr<Layer> MakeDropout(const Setting& setting, const Shape& in, double share, uint64_t seed) {
  return std::make_unique<Dropout>(setting, in, share, seed);
}

}  // namespace cnn

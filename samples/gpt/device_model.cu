// The transformer on a CUDA device: all work on one stream. Each block is
//   x = x + out(attend(norm(x)));  x = x + hidden_out(gelu(hidden_in(norm(x))))
// and what the backward pass needs of it is kept.
#include <string.h>

#include "../common/layers.h"
#include "device_array.h"
#include "kernels.h"
#include "model.h"
#include "products.h"

namespace gpt {
namespace {

using sample::Matrix;

// Values of one norm, for all rows.
struct NormValues {
  explicit NormValues(const Config& config)
      : out(size_t(config.Rows()) * config.width), mean(config.Rows()), inverse_deviation(config.Rows()) {}

  NormStatistics Statistics() const { return {mean.data(), inverse_deviation.data()}; }

  DeviceArray<float> out;
  DeviceArray<float> mean;
  DeviceArray<float> inverse_deviation;
};

// What the forward pass leaves for the backward pass of one block.
struct BlockValues {
  explicit BlockValues(const Config& config)
      : in(size_t(config.Rows()) * config.width),
        attention_norm(config),
        query_key_value(3 * in.count()),
        weights(size_t(config.batch) * config.heads * config.context * config.context),
        attended(in.count()),
        middle(in.count()),
        hidden_norm(config),
        hidden(kExpansion * in.count()),
        activated(kExpansion * in.count()) {}

  DeviceArray<float> in;
  NormValues attention_norm;
  DeviceArray<float> query_key_value;
  DeviceArray<float> weights;
  DeviceArray<float> attended;
  DeviceArray<float> middle;
  NormValues hidden_norm;
  DeviceArray<float> hidden;
  DeviceArray<float> activated;
};

// Space that the backward pass uses anew for each block, and the forward pass for what it need not keep.
struct Scratch {
  explicit Scratch(const Config& config)
      : narrow(size_t(config.Rows()) * config.width),
        wide(kExpansion * narrow.count()),
        scores(size_t(config.batch) * config.heads * config.context * config.context) {}

  DeviceArray<float> narrow;
  DeviceArray<float> wide;
  DeviceArray<float> scores;
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

class DeviceModel : public Model {
 public:
  DeviceModel(const Config& config, const Parameters& parameters, const std::vector<float>& initial)
      : config_(config),
        parameters_(parameters),
        stream_(config.device),
        products_(config.blas ? MakeBlasProducts(stream_.get()) : MakeKernelProducts(stream_.get())),
        values_(parameters.count),
        slopes_(parameters.count),
        adam_mean_(parameters.count),
        adam_variance_(parameters.count),
        tokens_(config.Rows()),
        targets_(config.Rows()),
        out_(size_t(config.Rows()) * config.width),
        final_norm_(config),
        logits_(size_t(config.Rows()) * parameters.head.columns),
        losses_(config.Rows()),
        loss_(1),
        slope_(out_.count()),
        scratch_(config) {
    for (int i = 0; i < config.layers; ++i) blocks_.emplace_back(config);
    CUDA_CHECK(cudaDeviceSynchronize());  // the arrays have been cleared
    Copy(values_.data(), initial.data(), values_.bytes(), cudaMemcpyHostToDevice);
  }

  void Step(const Batch& batch) override {
    Copy(tokens_.data(), batch.tokens.data(), tokens_.bytes(), cudaMemcpyHostToDevice);
    Copy(targets_.data(), batch.targets.data(), targets_.bytes(), cudaMemcpyHostToDevice);
    Forward();
    Backward();
    Update();
  }

  float Loss() override {
    float loss = 0;
    Copy(&loss, loss_.data(), sizeof(loss), cudaMemcpyDeviceToHost);
    return loss;
  }

  std::vector<float> Values() override {
    std::vector<float> values(values_.count());
    Copy(values.data(), values_.data(), values_.bytes(), cudaMemcpyDeviceToHost);
    return values;
  }

  void Exchange(sample::SavedState* state) override {
    state->Value(&step_);
    for (DeviceArray<float>* array : {&values_, &adam_mean_, &adam_variance_}) {
      std::vector<float> values(array->count());
      Copy(values.data(), array->data(), array->bytes(), cudaMemcpyDeviceToHost);
      state->Values(&values);
      Copy(array->data(), values.data(), array->bytes(), cudaMemcpyHostToDevice);
    }
  }

 private:
  cudaStream_t stream() const { return stream_.get(); }

  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream()));
    CUDA_CHECK(cudaStreamSynchronize(stream()));
  }

  Matrix Rows(const DeviceArray<float>& array, int columns) const {
    return {array.data(), config_.Rows(), columns};
  }
  Matrix Narrow(const DeviceArray<float>& array) const { return Rows(array, config_.width); }
  Matrix Wide(const DeviceArray<float>& array) const { return Rows(array, kExpansion * config_.width); }

  Matrix Value(const Tensor& tensor) const {
    return {values_.data() + tensor.offset, tensor.rows, tensor.columns};
  }
  Matrix Slope(const Tensor& tensor) const {
    return {slopes_.data() + tensor.offset, tensor.rows, tensor.columns};
  }

  AttentionShape Shape() const {
    return {config_.batch, config_.context, config_.heads, config_.HeadWidth()};
  }

  void ForwardNorm(const NormTensors& tensors, Matrix in, const NormValues& values) {
    Normalise(in, Value(tensors.scale).data, Value(tensors.shift).data, values.Statistics(),
              Narrow(values.out), stream());
  }

  void ForwardLinear(const LinearTensors& tensors, Matrix in, Matrix out) {
    products_->Multiply(in, Value(tensors.weights), out);
    sample::AddBias(out, Value(tensors.bias).data, stream());
  }

  void ForwardBlock(const BlockTensors& tensors, const BlockValues& values, Matrix out) {
    ForwardNorm(tensors.attention_norm, Narrow(values.in), values.attention_norm);
    ForwardLinear(tensors.query_key_value, Narrow(values.attention_norm.out),
                  Rows(values.query_key_value, 3 * config_.width));
    Attend(Shape(), values.query_key_value.data(), values.weights.data(), values.attended.data(), stream());
    ForwardLinear(tensors.attention_out, Narrow(values.attended), Narrow(scratch_.narrow));
    Add(Narrow(values.in), Narrow(scratch_.narrow), Narrow(values.middle), stream());
    ForwardNorm(tensors.hidden_norm, Narrow(values.middle), values.hidden_norm);
    ForwardLinear(tensors.hidden_in, Narrow(values.hidden_norm.out), Wide(values.hidden));
    Gelu(Wide(values.hidden), Wide(values.activated), stream());
    ForwardLinear(tensors.hidden_out, Wide(values.activated), Narrow(scratch_.narrow));
    Add(Narrow(values.middle), Narrow(scratch_.narrow), out, stream());
  }

  void Forward() {
    Embed(tokens_.data(), Value(parameters_.characters), Value(parameters_.positions), Narrow(blocks_[0].in),
          stream());
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const DeviceArray<float>& out = i + 1 < blocks_.size() ? blocks_[i + 1].in : out_;
      ForwardBlock(parameters_.blocks[i], blocks_[i], Narrow(out));
    }
    ForwardNorm(parameters_.final_norm, Narrow(out_), final_norm_);
    const Matrix logits = Rows(logits_, parameters_.head.columns);
    products_->Multiply(Narrow(final_norm_.out), Value(parameters_.head), logits);
    SoftmaxLoss(logits, targets_.data(), losses_.data(), stream());
    sample::Mean(losses_.data(), config_.Rows(), loss_.data(), stream());
  }

  // Adds to slope_, the slope of what the norm was applied to.
  void BackwardNorm(const NormTensors& tensors, Matrix in, const NormValues& values, Matrix out_slope) {
    NormaliseSlope(in, Value(tensors.scale).data, values.Statistics(), out_slope, Narrow(slope_),
                   Slope(tensors.scale).data, Slope(tensors.shift).data, stream());
  }

  void BackwardLinear(const LinearTensors& tensors, Matrix in, Matrix out_slope, Matrix in_slope) {
    products_->MultiplyTransposedLeft(in, out_slope, Slope(tensors.weights));
    sample::SumRows(out_slope, Slope(tensors.bias).data, stream());
    products_->MultiplyTransposedRight(out_slope, Value(tensors.weights), in_slope);
  }

  void BackwardHidden(const BlockTensors& tensors, const BlockValues& values) {
    const Matrix wide = Wide(scratch_.wide);
    BackwardLinear(tensors.hidden_out, Wide(values.activated), Narrow(slope_), wide);
    GeluSlope(Wide(values.hidden), wide, stream());
    BackwardLinear(tensors.hidden_in, Narrow(values.hidden_norm.out), wide, Narrow(scratch_.narrow));
    BackwardNorm(tensors.hidden_norm, Narrow(values.middle), values.hidden_norm, Narrow(scratch_.narrow));
  }

  void BackwardAttention(const BlockTensors& tensors, const BlockValues& values) {
    const Matrix triple = Rows(scratch_.wide, 3 * config_.width);
    BackwardLinear(tensors.attention_out, Narrow(values.attended), Narrow(slope_), Narrow(scratch_.narrow));
    AttendSlope(Shape(), values.query_key_value.data(), values.weights.data(), scratch_.narrow.data(),
                scratch_.scores.data(), triple.data, stream());
    BackwardLinear(tensors.query_key_value, Narrow(values.attention_norm.out), triple,
                   Narrow(scratch_.narrow));
    BackwardNorm(tensors.attention_norm, Narrow(values.in), values.attention_norm, Narrow(scratch_.narrow));
  }

  void Backward() {
    const Matrix logits = Rows(logits_, parameters_.head.columns);
    products_->MultiplyTransposedLeft(Narrow(final_norm_.out), logits, Slope(parameters_.head));
    products_->MultiplyTransposedRight(logits, Value(parameters_.head), Narrow(scratch_.narrow));
    CUDA_CHECK(cudaMemsetAsync(slope_.data(), 0, slope_.bytes(), stream()));
    BackwardNorm(parameters_.final_norm, Narrow(out_), final_norm_, Narrow(scratch_.narrow));
    for (size_t i = blocks_.size(); i-- > 0;) {
      BackwardHidden(parameters_.blocks[i], blocks_[i]);
      BackwardAttention(parameters_.blocks[i], blocks_[i]);
    }
    EmbedSlope(tokens_.data(), Narrow(slope_), Slope(parameters_.characters), Slope(parameters_.positions),
               stream());
  }

  void Update() {
    ++step_;
    for (const Tensor& tensor : parameters_.all) {
      const double decay = tensor.is_matrix() ? config_.weight_decay : 0;
      sample::ApplyAdam(sample::MakeAdamStep(config_.learning_rate, decay, step_),
                        slopes_.data() + tensor.offset, values_.data() + tensor.offset,
                        adam_mean_.data() + tensor.offset, adam_variance_.data() + tensor.offset,
                        tensor.count(), stream());
    }
  }

  const Config config_;
  const Parameters parameters_;
  Stream stream_;
  const std::unique_ptr<Products> products_;
  DeviceArray<float> values_;
  DeviceArray<float> slopes_;
  DeviceArray<float> adam_mean_;
  DeviceArray<float> adam_variance_;
  DeviceArray<int> tokens_;
  DeviceArray<int> targets_;
  std::vector<BlockValues> blocks_;
  DeviceArray<float> out_;
  NormValues final_norm_;
  DeviceArray<float> logits_;  // becomes its own slope
  DeviceArray<float> losses_;
  DeviceArray<float> loss_;
  DeviceArray<float> slope_;  // of the values between the blocks
  Scratch scratch_;
  int step_ = 0;
};

}  // namespace

std::unique_ptr<Model> MakeDeviceModel(const Config& config, const Parameters& parameters,
                                       const std::vector<float>& initial) {
  return std::make_unique<DeviceModel>(config, parameters, initial);
}

}  // namespace gpt

#include "../common/cuda_check.h"
#include "examples.h"
#include "network_device.h"

namespace ranks {
namespace device {
namespace {

constexpr int kThreads = 128;

int Blocks(size_t count) { return static_cast<int>((count + kThreads - 1) / kThreads); }

__device__ size_t Index() { return static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; }

__device__ long long ToFixed(float value) {
  return __double2ll_rn(__dmul_rn(static_cast<double>(value), kFixed));
}

// Two roundings, as on a host that does not contract.
__device__ float MultiplyAdd(float a, float b, float sum) { return __fadd_rn(sum, __fmul_rn(a, b)); }

__device__ float Dot(const float* a, const float* b, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum = MultiplyAdd(a[i], b[i], sum);
  return sum;
}

__device__ float DotDown(const float* row, const float* matrix, int columns, int column, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum = MultiplyAdd(row[i], matrix[i * columns + column], sum);
  return sum;
}

__global__ void ForwardKernel(Shape shape, const float* x, const float* w, bool rectify, float* y) {
  const size_t at = Index();
  if (at >= static_cast<size_t>(shape.batch) * shape.outputs) return;
  const int row = at / shape.outputs, out = at % shape.outputs;
  const float value = Dot(x + row * shape.inputs, w + out * shape.inputs, shape.inputs);
  y[at] = rectify && value < 0 ? 0 : value;
}

__global__ void ForwardFixedKernel(Shape shape, const float* x, const float* w, int64_t* sum) {
  const size_t at = Index();
  if (at >= static_cast<size_t>(shape.batch) * shape.outputs) return;
  const int row = at / shape.outputs, out = at % shape.outputs;
  sum[at] = ToFixed(Dot(x + row * shape.inputs, w + out * shape.inputs, shape.inputs));
}

__global__ void BackwardInputKernel(Shape shape, const float* dy, const float* w, const float* x, bool mask,
                                    float* dx) {
  const size_t at = Index();
  if (at >= static_cast<size_t>(shape.batch) * shape.inputs) return;
  const int row = at / shape.inputs, in = at % shape.inputs;
  dx[at] = mask && x[at] <= 0 ? 0 : DotDown(dy + row * shape.outputs, w, shape.inputs, in, shape.outputs);
}

__global__ void BackwardInputFixedKernel(Shape shape, const float* dy, const float* w, int64_t* sum) {
  const size_t at = Index();
  if (at >= static_cast<size_t>(shape.batch) * shape.inputs) return;
  const int row = at / shape.inputs, in = at % shape.inputs;
  sum[at] = ToFixed(DotDown(dy + row * shape.outputs, w, shape.inputs, in, shape.outputs));
}

__global__ void AddGradientKernel(Shape shape, const float* dy, const float* x, int64_t* gradient) {
  const size_t at = Index();
  if (at >= static_cast<size_t>(shape.outputs) * shape.inputs) return;
  const int out = at / shape.inputs, in = at % shape.inputs;
  float sum = 0;
  for (int row = 0; row < shape.batch; ++row)
    sum = MultiplyAdd(dy[row * shape.outputs + out], x[row * shape.inputs + in], sum);
  gradient[at] += ToFixed(sum);
}

__global__ void AddLossKernel(int batch, int outputs, const float* y, const float* targets, float* dy,
                              unsigned long long* loss) {
  const size_t row = Index();
  if (row >= static_cast<size_t>(batch)) return;
  float sum = 0;
  for (int out = 0; out < outputs; ++out) {
    const size_t at = row * outputs + out;
    dy[at] = __fsub_rn(y[at], targets[at]);
    sum = MultiplyAdd(dy[at], dy[at], sum);
  }
  // Whole numbers: their order does not matter.
  atomicAdd(loss, static_cast<unsigned long long>(ToFixed(__fmul_rn(0.5f, sum))));
}

__global__ void UpdateKernel(Step step, const int64_t* gradient, float* w, float* velocity, size_t count) {
  const size_t at = Index();
  if (at >= count) return;
  const float mean = __double2float_rn(__dmul_rn(static_cast<double>(gradient[at]), step.scale));
  velocity[at] = MultiplyAdd(velocity[at], kMomentum, mean);
  w[at] = __fsub_rn(w[at], __fmul_rn(step.rate, velocity[at]));
}

__global__ void AddFixedKernel(const float* x, const int64_t* sum, float* y, size_t count) {
  const size_t at = Index();
  if (at >= count) return;
  y[at] = __fadd_rn(x[at], __double2float_rn(__dmul_rn(static_cast<double>(sum[at]), 1.0 / kFixed)));
}

__global__ void MakeTableKernel(uint64_t seed, int rows, int inputs, int outputs, float* table) {
  const size_t at = Index();
  const int columns = inputs + outputs;
  if (at >= static_cast<size_t>(rows) * columns) return;
  const int row = at / columns, column = at % columns, out = column - inputs;
  table[at] = out < 0 ? Feature(seed, row, column)
                      : Target(Feature(seed, row, out % inputs), Feature(seed, row, (out + 1) % inputs));
}

__global__ void TakeKernel(const float* table, int rows, Shape shape, uint64_t seed, int step, int first,
                           float* x, float* targets) {
  const size_t at = Index();
  const int columns = shape.inputs + shape.outputs;
  if (at >= static_cast<size_t>(shape.batch) * columns) return;
  const int i = at / columns, column = at % columns, out = column - shape.inputs;
  const float value = table[static_cast<size_t>(RowOf(seed, step, first + i, rows)) * columns + column];
  (out < 0 ? x[i * shape.inputs + column] : targets[i * shape.outputs + out]) = value;
}

size_t Outputs(const Shape& shape) { return static_cast<size_t>(shape.batch) * shape.outputs; }
size_t Inputs(const Shape& shape) { return static_cast<size_t>(shape.batch) * shape.inputs; }
size_t Weights(const Shape& shape) { return static_cast<size_t>(shape.outputs) * shape.inputs; }

}  // namespace

void Forward(const Shape& shape, const float* x, const float* w, bool rectify, float* y,
             cudaStream_t stream) {
  ForwardKernel<<<Blocks(Outputs(shape)), kThreads, 0, stream>>>(shape, x, w, rectify, y);
  CUDA_CHECK_LAUNCH();
}

void ForwardFixed(const Shape& shape, const float* x, const float* w, int64_t* sum, cudaStream_t stream) {
  ForwardFixedKernel<<<Blocks(Outputs(shape)), kThreads, 0, stream>>>(shape, x, w, sum);
  CUDA_CHECK_LAUNCH();
}

void BackwardInput(const Shape& shape, const float* dy, const float* w, const float* x, bool mask, float* dx,
                   cudaStream_t stream) {
  BackwardInputKernel<<<Blocks(Inputs(shape)), kThreads, 0, stream>>>(shape, dy, w, x, mask, dx);
  CUDA_CHECK_LAUNCH();
}

void BackwardInputFixed(const Shape& shape, const float* dy, const float* w, int64_t* sum,
                        cudaStream_t stream) {
  BackwardInputFixedKernel<<<Blocks(Inputs(shape)), kThreads, 0, stream>>>(shape, dy, w, sum);
  CUDA_CHECK_LAUNCH();
}

void AddGradient(const Shape& shape, const float* dy, const float* x, int64_t* gradient,
                 cudaStream_t stream) {
  AddGradientKernel<<<Blocks(Weights(shape)), kThreads, 0, stream>>>(shape, dy, x, gradient);
  CUDA_CHECK_LAUNCH();
}

void AddLoss(int batch, int outputs, const float* y, const float* targets, float* dy, int64_t* loss,
             cudaStream_t stream) {
  AddLossKernel<<<Blocks(batch), kThreads, 0, stream>>>(batch, outputs, y, targets, dy,
                                                        reinterpret_cast<unsigned long long*>(loss));
  CUDA_CHECK_LAUNCH();
}

void Update(const Step& step, const int64_t* gradient, float* w, float* velocity, size_t count,
            cudaStream_t stream) {
  UpdateKernel<<<Blocks(count), kThreads, 0, stream>>>(step, gradient, w, velocity, count);
  CUDA_CHECK_LAUNCH();
}

void AddFixed(const float* x, const int64_t* sum, float* y, size_t count, cudaStream_t stream) {
  AddFixedKernel<<<Blocks(count), kThreads, 0, stream>>>(x, sum, y, count);
  CUDA_CHECK_LAUNCH();
}

void MakeTable(uint64_t seed, int rows, int inputs, int outputs, float* table, cudaStream_t stream) {
  const size_t count = static_cast<size_t>(rows) * (inputs + outputs);
  MakeTableKernel<<<Blocks(count), kThreads, 0, stream>>>(seed, rows, inputs, outputs, table);
  CUDA_CHECK_LAUNCH();
}

void Take(const float* table, int rows, const Shape& shape, uint64_t seed, int step, int first, float* x,
          float* targets, cudaStream_t stream) {
  const size_t count = static_cast<size_t>(shape.batch) * (shape.inputs + shape.outputs);
  TakeKernel<<<Blocks(count), kThreads, 0, stream>>>(table, rows, shape, seed, step, first, x, targets);
  CUDA_CHECK_LAUNCH();
}

template <typename T>
Array<T>::Array(size_t count) : count_(count) {
  CUDA_CHECK(cudaMalloc(&data_, count * sizeof(T)));
  CUDA_CHECK(cudaMemset(data_, 0, count * sizeof(T)));
}

template <typename T>
Array<T>::~Array() {
  if (data_ != nullptr) CUDA_CHECK(cudaFree(data_));
}

template <typename T>
void Array<T>::Set(const std::vector<T>& values) {
  CUDA_CHECK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}

template <typename T>
std::vector<T> Array<T>::Get() const {
  std::vector<T> values(count_);
  CUDA_CHECK(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

template class Array<float>;
template class Array<int64_t>;

}  // namespace device
}  // namespace ranks

// Kernels that both networks need: bias, sums over rows, mean, and the Adam update. All sums have a fixed
// order.
#pragma once

#include <cuda_runtime.h>
#include <stddef.h>

#include "gemm.h"

namespace sample {

// Adds bias[column] to every element.
void AddBias(Matrix values, const float* bias, cudaStream_t stream);

// out[column] = sum over the rows, from the first to the last.
void SumRows(Matrix values, float* out, cudaStream_t stream);

// *out = mean of the values.
void Mean(const float* values, int count, float* out, cudaStream_t stream);

// One step of Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
struct AdamStep {
  float rate;  // learning rate with both bias corrections applied
  float beta1;
  float beta1_rest;  // 1 - beta1, rounded once
  float beta2;
  float beta2_rest;
  float epsilon;
  float decay;  // learning rate times weight decay
};

constexpr double kAdamBeta1 = 0.9;
constexpr double kAdamBeta2 = 0.999;
constexpr double kAdamEpsilon =
    1e-6;  // large enough that rounding errors of tiny gradients do not become steps

// The step with number `step`, counted from 1.
AdamStep MakeAdamStep(double learning_rate, double weight_decay, int step);

void ApplyAdam(const AdamStep& step, const float* gradient, float* values, float* mean, float* variance,
               size_t count, cudaStream_t stream);

}  // namespace sample

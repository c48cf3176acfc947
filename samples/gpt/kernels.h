// Kernels that only the transformer needs. All sums have a fixed order; none uses floating-point atomics.
#pragma once

#include <cuda_runtime.h>

#include "../common/gemm.h"

namespace gpt {

// pointwise.cu

// out[row] = characters[tokens[row]] + positions[row mod context]
void Embed(const int* tokens, sample::Matrix characters, sample::Matrix positions, sample::Matrix out,
           cudaStream_t stream);

// The slopes of both tables, from that of the embedded rows.
void EmbedSlope(const int* tokens, sample::Matrix slope, sample::Matrix characters, sample::Matrix positions,
                cudaStream_t stream);

// out = a + b; out may be a or b.
void Add(sample::Matrix a, sample::Matrix b, sample::Matrix out, cudaStream_t stream);

// The Gaussian error linear unit in its tanh form, and its slope: slope *= derivative at in.
void Gelu(sample::Matrix in, sample::Matrix out, cudaStream_t stream);
void GeluSlope(sample::Matrix in, sample::Matrix slope, cudaStream_t stream);

// losses[row] = cross-entropy of the row; the logits become the slope of the mean over all rows.
void SoftmaxLoss(sample::Matrix logits, const int* targets, float* losses, cudaStream_t stream);

// norm.cu

// What the backward pass needs of each row.
struct NormStatistics {
  float* mean;
  float* inverse_deviation;
};

// Each row, shifted and scaled to mean zero and variance one, then times `scale` plus `shift`.
void Normalise(sample::Matrix in, const float* scale, const float* shift, NormStatistics statistics,
               sample::Matrix out, cudaStream_t stream);

// Adds to in_slope; sets the slopes of scale and shift.
void NormaliseSlope(sample::Matrix in, const float* scale, NormStatistics statistics,
                    sample::Matrix out_slope, sample::Matrix in_slope, float* scale_slope, float* shift_slope,
                    cudaStream_t stream);

// attention.cu

struct AttentionShape {
  int batch;
  int context;
  int heads;
  int head_width;

  __host__ __device__ int Width() const { return heads * head_width; }
  __host__ __device__ int Rows() const { return batch * context; }
  // One weight for each head and pair of positions.
  __host__ __device__ size_t WeightCount() const {
    return static_cast<size_t>(batch) * heads * context * context;
  }
};

// Causal attention. query_key_value is rows x (3 * width); weights keeps the softmax for the backward pass.
void Attend(AttentionShape shape, const float* query_key_value, float* weights, float* out,
            cudaStream_t stream);

// Sets the slope of query_key_value; score_slope is scratch space of the size of the weights.
void AttendSlope(AttentionShape shape, const float* query_key_value, const float* weights,
                 const float* out_slope, float* score_slope, float* query_key_value_slope,
                 cudaStream_t stream);

}  // namespace gpt

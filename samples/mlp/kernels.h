// Kernels that only this network needs.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "../common/gemm.h"

namespace mlp {

// out[row] = images[indices[row]], scaled from bytes to 0..1.
void GatherImages(const uint8_t* images, const int* indices, sample::Matrix out, cudaStream_t stream);

// out[row] = labels[indices[row]]
void GatherLabels(const uint8_t* labels, const int* indices, int rows, int* out, cudaStream_t stream);

// Adds the bias and replaces negative values by zero.
void AddBiasRectify(sample::Matrix values, const float* bias, cudaStream_t stream);

// Sets slope to zero wherever the rectified value is zero.
void MaskSlope(sample::Matrix values, sample::Matrix slope, cudaStream_t stream);

// losses[row] = cross-entropy of the row; the logits become the slope of the mean over all rows.
void SoftmaxLoss(sample::Matrix logits, const int* labels, float* losses, cudaStream_t stream);

// *correct += number of rows whose largest value is at the label.
void CountCorrect(sample::Matrix logits, const uint8_t* labels, int* correct, cudaStream_t stream);

}  // namespace mlp

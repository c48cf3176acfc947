// What cuDNN does not do: fetching the batch, the loss, and counting.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

namespace cnn {

// A set of images in device memory.
struct DeviceImages {
  const uint8_t* pixels;  // of `size` an image
  const uint8_t* labels;
  int size;
};

// values[row] = image indices[row], scaled from bytes to 0..1; labels[row] = its label.
void Gather(DeviceImages images, const int* indices, int rows, float* values, int* labels,
            cudaStream_t stream);

// losses[row] = cross-entropy of the row's probabilities, which become the slope of the mean over all rows in
// what the softmax was applied to.
void LossSlope(float* probabilities, const int* labels, int rows, int classes, float* losses,
               cudaStream_t stream);

// *correct += number of rows whose largest value is at the label.
void CountCorrect(const float* values, const int* labels, int rows, int classes, int* correct,
                  cudaStream_t stream);

}  // namespace cnn

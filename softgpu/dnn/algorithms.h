// The algorithms of convolutions. All give the same bits; some ask the program for space.
#ifndef SOFTGPU_DNN_ALGORITHMS_H_
#define SOFTGPU_DNN_ALGORITHMS_H_

#include "softgpu/dnn/convolution.h"
#include "softgpu/dnn/descriptors.h"
#include "softgpu/dnn/handle.h"

namespace softgpu::dnn {

struct Algorithm {
  int value;
  bool offered;
  bool takes_workspace;
};

// In the order in which they are recommended.
struct Algorithms {
  const Algorithm* list;
  int count;
};

extern const Algorithms kForwardAlgorithms;
extern const Algorithms kBackwardDataAlgorithms;
extern const Algorithms kBackwardFilterAlgorithms;

ConvolutionParams ParamsOf(const cudnnConvolutionStruct& conv);

// Whether descriptors describe a convolution that is offered, whatever its direction.
cudnnStatus_t CheckConvolution(const char* function, const cudnnConvolutionStruct& conv, const Shape& x,
                               const Shape& w, const Shape& y);

// The workspace that the algorithm needs; BAD_PARAM for what is none, NOT_SUPPORTED for one not offered.
cudnnStatus_t WorkspaceBytes(const char* function, const Algorithms& algorithms, int algo,
                             const ConvolutionParams& params, const Shape& x, const Shape& w, size_t* bytes);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_ALGORITHMS_H_

// Operations element by element, with broadcasting, and reductions.
#ifndef SOFTGPU_DNN_POINTWISE_H_
#define SOFTGPU_DNN_POINTWISE_H_

#include "softgpu/dnn/values.h"

namespace softgpu::dnn {

// Whether each dimension of `part` is that of `whole`, or 1.
bool Broadcasts(const Shape& part, const Shape& whole);

// y = alpha * x + beta * y, x being repeated along the dimensions where it has size 1.
void AddTensor(const Blend& blend, const Source& x, const Target& y, Arena* arena);

// All elements = the one at `value`, which has the tensor's type; types of a byte or more.
void SetTensor(const Target& y, const void* value);

// Part of kernel arguments.
struct OpParams {
  int32_t op = CUDNN_OP_TENSOR_ADD;
  int32_t propagate_nan = 0;
  double alpha1 = 1;
  double alpha2 = 1;
};

// c = op(alpha1 * a, alpha2 * b) + beta * c; b is repeated, and absent where the operation has one operand.
void OpTensor(const OpParams& params, double beta, const Source& a, const Source& b, const Target& c,
              Arena* arena);

// Part of kernel arguments.
struct ReduceParams {
  int32_t op = CUDNN_REDUCE_TENSOR_ADD;
  int32_t propagate_nan = 0;
};

// c = alpha * reduce(a) + beta * c over the dimensions where c has size 1. With `indices`, of c's count,
// where a minimum or maximum was found: its place among the reduced elements.
void ReduceTensor(const ReduceParams& params, const Blend& blend, const Source& a, const Target& c,
                  uint32_t* indices, Arena* arena);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_POINTWISE_H_

// Batch normalisation as launched by both families of functions, cudnnBatchNormalization* and
// cudnnNormalization*.
#ifndef SOFTGPU_DNN_NORM_CALLS_H_
#define SOFTGPU_DNN_NORM_CALLS_H_

#include "softgpu/dnn/descriptors.h"
#include "softgpu/dnn/handle.h"
#include "softgpu/dnn/norm.h"

namespace softgpu::dnn {

// How the data is normalised and what comes after.
struct NormKind {
  bool known = false;  // false: the program named no such mode or operation
  bool per_channel = false;
  bool adds = false;
  bool activates = false;
};

NormKind KindOf(cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops);
NormKind KindOf(cudnnNormMode_t mode, cudnnNormOps_t ops);

// The functions' arguments; pointers may be null where a function has no such argument.
struct NormForwardArguments {
  cudnnHandle_t handle;
  NormKind kind;
  const void* alpha;
  const void* beta;
  cudnnTensorDescriptor_t x_desc, z_desc, y_desc, param_desc;
  const void* x;
  const void* z;
  void* y;
  const void* scale;
  const void* bias;
  double factor;
  // In inference these two are read.
  void* running_mean;
  void* running_variance;
  double epsilon;
  void* saved_mean;
  void* saved_inverse;
  cudnnActivationDescriptor_t activation;
  void* reserve;
  size_t reserve_bytes;
};

cudnnStatus_t LaunchForwardTraining(const char* function, const NormForwardArguments& arguments);
cudnnStatus_t LaunchForwardInference(const char* function, const NormForwardArguments& arguments);

struct NormBackwardArguments {
  cudnnHandle_t handle;
  NormKind kind;
  const void* data_alpha;
  const void* data_beta;
  const void* param_alpha;
  const void* param_beta;
  cudnnTensorDescriptor_t x_desc, dy_desc, dz_desc, dx_desc, param_desc;
  const void* x;
  const void* dy;
  void* dz;
  void* dx;
  const void* scale;
  void* dscale;
  void* dbias;
  double epsilon;
  const void* saved_mean;
  const void* saved_inverse;
  cudnnActivationDescriptor_t activation;
  void* workspace;
  size_t workspace_bytes;
  void* reserve;
  size_t reserve_bytes;
};

cudnnStatus_t LaunchBackward(const char* function, const NormBackwardArguments& arguments);

// Sizes that the functions ask for. Only what activates needs any.
size_t NormReserveBytes(const NormKind& kind, const Shape& x);
size_t NormBackwardWorkspaceBytes(const NormKind& kind, const Shape& x);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_NORM_CALLS_H_

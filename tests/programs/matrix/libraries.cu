// Handles of the CUDA libraries: their settings, what they compute, and what they have to do with streams and graphs.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cudnn.h>
#include <nccl.h>

#include <vector>

#include "matrix.h"

namespace {

using matrix::Say;
using matrix::SayHash;

void Expect(bool right, const char* call, int status, int line) {
  if (right) return;
  Say("%s: %d", call, status);
  matrix::Check(cudaErrorUnknown, call, line);
}
#define LIBRARY(call, success)                                   \
  do {                                                           \
    const auto library_status = (call);                          \
    Expect(library_status == (success), #call, static_cast<int>(library_status), __LINE__); \
  } while (0)
#define BLAS(call) LIBRARY(call, CUBLAS_STATUS_SUCCESS)
#define DNN(call) LIBRARY(call, CUDNN_STATUS_SUCCESS)
#define NCCL(call) LIBRARY(call, ncclSuccess)

constexpr int kSize = 24;
constexpr size_t kBytes = kSize * kSize * sizeof(float);

// Small whole numbers, so that sums are exact in any order.
void FillSmall(float* matrix, unsigned seed, int count = kSize * kSize) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>((i * 7 + seed * 13) % 5) - 2;
  CHECK(cudaMemcpy(matrix, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
}

float *a, *b, *c;
cudaStream_t stream;

void MakeMatrices() {
  for (float** matrix : {&a, &b, &c}) CHECK(cudaMalloc(matrix, kBytes));
  FillSmall(a, 1);
  FillSmall(b, 2);
  FillSmall(c, 3);
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
}

void EndMatrices() {
  CHECK(cudaStreamDestroy(stream));
  for (float* matrix : {a, b, c}) CHECK(cudaFree(matrix));
}

// ---- cuBLAS: a handle with all its settings, and one that lives for a step.

cublasHandle_t blas, passing;
void* workspace;
float *alpha, *beta;  // on the device

void Multiply(cublasHandle_t handle, const float* one, const float* zero) {
  BLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, kSize, kSize, kSize, one, a, kSize, b, kSize, zero, c, kSize));
}

void MakeBlas() {
  MakeMatrices();
  const float one = 1, zero = 0;
  for (float** scalar : {&alpha, &beta}) CHECK(cudaMalloc(scalar, sizeof(float)));
  CHECK(cudaMemcpy(alpha, &one, sizeof one, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(beta, &zero, sizeof zero, cudaMemcpyHostToDevice));
  CHECK(cudaMalloc(&workspace, 4 << 20));
  BLAS(cublasCreate(&blas));
  BLAS(cublasSetStream(blas, stream));
  BLAS(cublasSetPointerMode(blas, CUBLAS_POINTER_MODE_DEVICE));
  BLAS(cublasSetMathMode(blas, CUBLAS_PEDANTIC_MATH));
  BLAS(cublasSetAtomicsMode(blas, CUBLAS_ATOMICS_ALLOWED));
  BLAS(cublasSetWorkspace(blas, workspace, 4 << 20));
}

void StepBlas(unsigned number) {
  cublasPointerMode_t pointer;
  cublasMath_t math;
  cublasAtomicsMode_t atomics;
  cudaStream_t now = nullptr;
  Multiply(blas, alpha, beta);
  CHECK(cudaStreamSynchronize(stream));
  SayHash("product", c, kBytes);
  BLAS(cublasGetPointerMode(blas, &pointer));
  BLAS(cublasGetMathMode(blas, &math));
  BLAS(cublasGetAtomicsMode(blas, &atomics));
  BLAS(cublasGetStream(blas, &now));
  Say("pointer %d math %d atomics %d same-stream %d", pointer, math, atomics, now == stream);
  FillSmall(a, number);
  if (passing != nullptr) {
    const float two = 2, zero = 0;
    Multiply(passing, &two, &zero);
    SayHash("passing", c, kBytes);
    BLAS(cublasDestroy(passing));
  }
  BLAS(cublasCreate(&passing));
}

void EndBlas() {
  BLAS(cublasDestroy(passing));
  BLAS(cublasDestroy(blas));
  for (void* block : {workspace, static_cast<void*>(alpha), static_cast<void*>(beta)}) CHECK(cudaFree(block));
  EndMatrices();
}
MATRIX_CASE(cublas, "cublas-handle", "kCublas", MakeBlas, StepBlas, EndBlas);

// ---- Pair: a handle that is bound to a stream which was destroyed, and then to another one.

void MakeDangling() {
  MakeMatrices();
  BLAS(cublasCreate(&blas));
}

void StepDangling(unsigned number) {
  const float one = 1, zero = 0;
  cudaStream_t brief = nullptr;
  CHECK(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking));
  BLAS(cublasSetStream(blas, brief));
  Multiply(blas, &one, &zero);
  CHECK(cudaStreamSynchronize(brief));
  SayHash("product", c, kBytes);
  CHECK(cudaStreamDestroy(brief));
  FillSmall(a, number);
}

void EndDangling() {
  BLAS(cublasDestroy(blas));
  EndMatrices();
}
MATRIX_CASE(dangling, "cublas-of-a-destroyed-stream", "kCublas kStream", MakeDangling, StepDangling, EndDangling);

// ---- Pair: a graph that holds a library's calls.

cudaGraph_t graph;
cudaGraphExec_t exec;

void MakeCapturedCalls() {
  MakeMatrices();
  const float one = 1, zero = 0;
  BLAS(cublasCreate(&blas));
  BLAS(cublasSetStream(blas, stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Multiply(blas, &one, &zero);
  BLAS(cublasSscal(blas, kSize, &one, c, 1));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
}

void StepCapturedCalls(unsigned number) {
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  SayHash("product", c, kBytes);
  FillSmall(a, number);
}

void EndCapturedCalls() {
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  EndDangling();
}
MATRIX_CASE(captured_calls, "cublas-in-a-graph", "kCublas kGraph kGraphExec kStream", MakeCapturedCalls, StepCapturedCalls,
            EndCapturedCalls);

// ---- cuBLASLt: a handle with descriptors, layouts, a preference and an algorithm that were made before.

cublasLtHandle_t lt;
cublasLtMatmulDesc_t operation;
cublasLtMatrixLayout_t layout;
cublasLtMatmulPreference_t preference;
cublasLtMatmulHeuristicResult_t heuristic;
size_t lt_workspace = 1 << 20;

void MakeLt() {
  MakeMatrices();
  int found = 0;
  CHECK(cudaMalloc(&workspace, lt_workspace));
  BLAS(cublasLtCreate(&lt));
  BLAS(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  BLAS(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, kSize, kSize, kSize));
  BLAS(cublasLtMatmulPreferenceCreate(&preference));
  BLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &lt_workspace, sizeof lt_workspace));
  BLAS(cublasLtMatmulAlgoGetHeuristic(lt, operation, layout, layout, layout, layout, preference, 1, &heuristic, &found));
  Say("found %d", found);
}

void StepLt(unsigned number) {
  const float one = 1, zero = 0;
  BLAS(cublasLtMatmul(lt, operation, &one, a, layout, b, layout, &zero, c, layout, c, layout, &heuristic.algo, workspace,
                      lt_workspace, stream));
  CHECK(cudaStreamSynchronize(stream));
  SayHash("product", c, kBytes);
  FillSmall(a, number);
}

void EndLt() {
  BLAS(cublasLtMatmulPreferenceDestroy(preference));
  BLAS(cublasLtMatrixLayoutDestroy(layout));
  BLAS(cublasLtMatmulDescDestroy(operation));
  BLAS(cublasLtDestroy(lt));
  CHECK(cudaFree(workspace));
  EndMatrices();
}
MATRIX_CASE(cublaslt, "cublaslt-handle", "kCublasLt", MakeLt, StepLt, EndLt);

// ---- cuDNN: a handle with a stream, a convolution, an activation.

cudnnHandle_t dnn;
cudnnTensorDescriptor_t image, result;
cudnnFilterDescriptor_t filter;
cudnnConvolutionDescriptor_t convolution;
cudnnActivationDescriptor_t activation;
size_t dnn_workspace;
float *pixels, *weights, *answers;
constexpr int kImage = 2 * 3 * 8 * 8, kFilter = 4 * 3 * 3 * 3, kAnswer = 2 * 4 * 8 * 8;
constexpr cudnnConvolutionFwdAlgo_t kAlgorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;

void MakeDnn() {
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&pixels, kImage * sizeof(float)));
  CHECK(cudaMalloc(&weights, kFilter * sizeof(float)));
  CHECK(cudaMalloc(&answers, kAnswer * sizeof(float)));
  FillSmall(pixels, 1, kImage);
  FillSmall(weights, 2, kFilter);
  DNN(cudnnCreate(&dnn));
  DNN(cudnnSetStream(dnn, stream));
  DNN(cudnnCreateTensorDescriptor(&image));
  DNN(cudnnCreateTensorDescriptor(&result));
  DNN(cudnnCreateFilterDescriptor(&filter));
  DNN(cudnnCreateConvolutionDescriptor(&convolution));
  DNN(cudnnCreateActivationDescriptor(&activation));
  DNN(cudnnSetTensor4dDescriptor(image, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 8, 8));
  DNN(cudnnSetTensor4dDescriptor(result, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 8, 8));
  DNN(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 3, 3, 3));
  DNN(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  DNN(cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
  DNN(cudnnGetConvolutionForwardWorkspaceSize(dnn, image, filter, convolution, result, kAlgorithm, &dnn_workspace));
  CHECK(cudaMalloc(&workspace, dnn_workspace + 1));
  CHECK(cudaDeviceSynchronize());
}

void StepDnn(unsigned number) {
  const float one = 1, zero = 0;
  cudaStream_t now = nullptr;
  DNN(cudnnConvolutionForward(dnn, &one, image, pixels, filter, weights, convolution, kAlgorithm, workspace, dnn_workspace, &zero,
                              result, answers));
  CHECK(cudaStreamSynchronize(stream));
  SayHash("convolved", answers, kAnswer * sizeof(float));
  DNN(cudnnActivationForward(dnn, activation, &one, result, answers, &zero, result, answers));
  CHECK(cudaStreamSynchronize(stream));
  SayHash("activated", answers, kAnswer * sizeof(float));
  DNN(cudnnGetStream(dnn, &now));
  Say("same-stream %d", now == stream);
  FillSmall(weights, number, kFilter);
}

void EndDnn() {
  DNN(cudnnDestroyActivationDescriptor(activation));
  DNN(cudnnDestroyConvolutionDescriptor(convolution));
  DNN(cudnnDestroyFilterDescriptor(filter));
  DNN(cudnnDestroyTensorDescriptor(result));
  DNN(cudnnDestroyTensorDescriptor(image));
  DNN(cudnnDestroy(dnn));
  for (void* block : {static_cast<void*>(pixels), static_cast<void*>(weights), static_cast<void*>(answers), workspace})
    CHECK(cudaFree(block));
  CHECK(cudaStreamDestroy(stream));
}
MATRIX_CASE(cudnn, "cudnn-handle", "kCudnn", MakeDnn, StepDnn, EndDnn);

// ---- Pair: a graph that holds a convolution, and a handle that makes others between its launches.

void MakeDnnGraph() {
  MakeDnn();
  const float one = 1, zero = 0;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  DNN(cudnnConvolutionForward(dnn, &one, image, pixels, filter, weights, convolution, kAlgorithm, workspace, dnn_workspace, &zero,
                              result, answers));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
}

void StepDnnGraph(unsigned number) {
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  SayHash("launched", answers, kAnswer * sizeof(float));
  StepDnn(number);
}

void EndDnnGraph() {
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  EndDnn();
}
MATRIX_CASE(dnn_graph, "cudnn-in-a-graph", "kCudnn kGraph kGraphExec kStream", MakeDnnGraph, StepDnnGraph, EndDnnGraph);

// ---- NCCL: two ranks in one process.

ncclComm_t ranks[2];
cudaStream_t rank_streams[2];
float *sent[2], *received[2];
constexpr int kWords = 300;

void MakeRanks() {
  const int devices[2] = {0, 1};
  NCCL(ncclCommInitAll(ranks, 2, devices));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(cudaSetDevice(rank));
    CHECK(cudaStreamCreateWithFlags(&rank_streams[rank], cudaStreamNonBlocking));
    CHECK(cudaMalloc(&sent[rank], kWords * sizeof(float)));
    CHECK(cudaMalloc(&received[rank], kWords * sizeof(float)));
    FillSmall(sent[rank], 5 + rank, kWords);
    CHECK(cudaDeviceSynchronize());
  }
}

void StepRanks(unsigned number) {
  NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank)
    NCCL(ncclAllReduce(sent[rank], received[rank], kWords, ncclFloat, ncclSum, ranks[rank], rank_streams[rank]));
  NCCL(ncclGroupEnd());
  for (int rank = 0; rank < 2; ++rank) {
    int count = 0, who = -1;
    CHECK(cudaSetDevice(rank));
    CHECK(cudaStreamSynchronize(rank_streams[rank]));
    SayHash("reduced", received[rank], kWords * sizeof(float));
    NCCL(ncclCommCount(ranks[rank], &count));
    NCCL(ncclCommUserRank(ranks[rank], &who));
    Say("rank %d of %d", who, count);
    FillSmall(sent[rank], number + rank, kWords);
    CHECK(cudaDeviceSynchronize());
  }
}

void EndRanks() {
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(cudaSetDevice(rank));
    NCCL(ncclCommDestroy(ranks[rank]));
    CHECK(cudaStreamDestroy(rank_streams[rank]));
    CHECK(cudaFree(sent[rank]));
    CHECK(cudaFree(received[rank]));
  }
}
MATRIX_CASE(nccl, "nccl-communicators", "kNccl", MakeRanks, StepRanks, EndRanks);

// ---- Pair: a communicator that is split in every step, the part being used in the next.

ncclComm_t parts[2];

void StepSplit(unsigned number) {
  if (parts[0] != nullptr) {
    NCCL(ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank)
      NCCL(ncclBroadcast(sent[rank], received[rank], kWords, ncclFloat, 1, parts[rank], rank_streams[rank]));
    NCCL(ncclGroupEnd());
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(cudaSetDevice(rank));
      CHECK(cudaStreamSynchronize(rank_streams[rank]));
      SayHash("from-one", received[rank], kWords * sizeof(float));
      NCCL(ncclCommDestroy(parts[rank]));
    }
  }
  NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) NCCL(ncclCommSplit(ranks[rank], 0, 1 - rank, &parts[rank], nullptr));
  NCCL(ncclGroupEnd());
  StepRanks(number);
}

void EndSplit() {
  for (ncclComm_t part : parts) NCCL(ncclCommDestroy(part));
  EndRanks();
}
MATRIX_CASE(split, "nccl-split", "kNccl", MakeRanks, StepSplit, EndSplit);

}  // namespace

// Handles: what they keep, what they refuse, threads, streams, graphs.
#include <cublasLt.h>

#include <cmath>
#include <thread>

#include "softgpu/blas/blas_testing.h"
#include "softgpu/native/native.h"

namespace softgpu::blas {
namespace {

class HandleTest : public BlasTest {
 protected:
  static size_t Free() {
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return FreeBytes();
  }
};

TEST_F(HandleTest, HidesDeviceMemoryAndGivesItBack) {
  { TestHandle warm; }
  size_t before = Free();
  {
    TestHandle handle;
    EXPECT_LE(Free(), before - (8u << 20));
  }
  EXPECT_EQ(Free(), before);
}

TEST_F(HandleTest, RemembersWhatIsSet) {
  TestHandle handle;
  CUstream stream = nullptr, got_stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  OK(cublasGetStream(handle, &got_stream));
  EXPECT_EQ(got_stream, nullptr);
  OK(cublasSetStream(handle, stream));
  OK(cublasGetStream(handle, &got_stream));
  EXPECT_EQ(got_stream, stream);
  cublasPointerMode_t mode{};
  OK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
  OK(cublasGetPointerMode(handle, &mode));
  EXPECT_EQ(mode, CUBLAS_POINTER_MODE_DEVICE);
  cublasAtomicsMode_t atomics{};
  OK(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_ALLOWED));
  OK(cublasGetAtomicsMode(handle, &atomics));
  EXPECT_EQ(atomics, CUBLAS_ATOMICS_ALLOWED);
  cublasMath_t math{};
  OK(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
  OK(cublasGetMathMode(handle, &math));
  EXPECT_EQ(math, CUBLAS_TF32_TENSOR_OP_MATH);
  int offset = 0, *count = nullptr;
  OK(cublasSetFixedPointEmulationMantissaBitOffset(handle, -3));
  OK(cublasGetFixedPointEmulationMantissaBitOffset(handle, &offset));
  EXPECT_EQ(offset, -3);
  OK(cublasSetFixedPointEmulationMantissaBitCountPointer(handle, &offset));
  OK(cublasGetFixedPointEmulationMantissaBitCountPointer(handle, &count));
  EXPECT_EQ(count, &offset);
  int sms = -1, version = 0, major = 0;
  OK(cublasSetSmCountTarget(handle, 3));
  OK(cublasGetSmCountTarget(handle, &sms));
  EXPECT_EQ(sms, 3);
  OK(cublasGetVersion(handle, &version));
  EXPECT_EQ(version, CUBLAS_VERSION);
  OK(cublasGetProperty(MAJOR_VERSION, &major));
  EXPECT_EQ(major, CUBLAS_VER_MAJOR);
  EXPECT_EQ(cublasLtGetVersion(), static_cast<size_t>(CUBLAS_VERSION));
  ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(HandleTest, RefusesWhatIsWrong) {
  TestHandle handle;
  EXPECT_EQ(cublasCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetPointerMode(handle, static_cast<cublasPointerMode_t>(7)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetMathMode(handle, static_cast<cublasMath_t>(77)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetSmCountTarget(handle, -1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasGetStream(handle, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetWorkspace(handle, reinterpret_cast<void*>(1), 4096), CUBLAS_STATUS_INVALID_VALUE);
  float one = 1;
  Numbers m(CUDA_R_32F, 64, &random_);
  auto* p = m.at<float>();
  auto gemm = [&](cublasOperation_t op, int rows, int lda, const float* alpha, float* c) {
    return cublasSgemm(handle, op, CUBLAS_OP_N, rows, 4, 4, alpha, p, lda, p, 4, &one, c, 8);
  };
  EXPECT_EQ(gemm(static_cast<cublasOperation_t>(9), 4, 4, &one, p), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(CUBLAS_OP_N, -1, 4, &one, p), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(CUBLAS_OP_N, 4, 3, &one, p), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(CUBLAS_OP_N, 4, 4, nullptr, p), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(CUBLAS_OP_N, 4, 4, &one, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, p, CUDA_R_64F, 4, p, CUDA_R_32F, 4,
                         &one, p, CUDA_R_32F, 4, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasSgetrfBatched(handle, 4, nullptr, 4, nullptr, nullptr, 1), CUBLAS_STATUS_NOT_SUPPORTED)
      << "by name";
  EXPECT_STREQ(cublasGetStatusName(CUBLAS_STATUS_EXECUTION_FAILED), "CUBLAS_STATUS_EXECUTION_FAILED");
  EXPECT_STRNE(cublasGetStatusString(CUBLAS_STATUS_SUCCESS), "");
}

TEST_F(HandleTest, TellsHandlesThatAreNone) {
  cublasHandle_t gone = nullptr;
  OK(cublasCreate(&gone));
  OK(cublasDestroy(gone));
  int something = 0;
  float one = 1;
  CUstream stream = nullptr;
  for (cublasHandle_t handle :
       {gone, static_cast<cublasHandle_t>(nullptr), reinterpret_cast<cublasHandle_t>(&something)}) {
    EXPECT_EQ(cublasDestroy(handle), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(cublasGetStream(handle, &stream), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(cublasSetStream(handle, nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(cublasSscal(handle, 1, &one, &one, 1), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, &one, 1, &one, 1, &one, &one, 1),
              CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(cublasLtDestroy(reinterpret_cast<cublasLtHandle_t>(handle)), CUBLAS_STATUS_NOT_INITIALIZED);
  }
}

// What several threads compute at once, each with a handle and a stream of its own, or all with one handle.
void ComputeInThreads(bool shared) {
  constexpr int kThreads = 4, kRounds = 20, kCount = 100;
  cublasHandle_t common = nullptr;
  OK(cublasCreate(&common));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++) {
    threads.emplace_back([shared, common, t] {
      UseDevice();
      cublasHandle_t handle = common;
      CUstream stream = nullptr;
      if (!shared) {
        OK(cublasCreate(&handle));
        ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        OK(cublasSetStream(handle, stream));
      }
      {
        Numbers x(CUDA_R_32F, std::vector<Complex64>(kCount, Complex64(t + 1)));
        for (int round = 0; round < kRounds; round++) {
          float dot = 0, sum = 0;
          OK(cublasSdot(handle, kCount, x.at<float>(), 1, x.at<float>(), 1, &dot));
          OK(cublasSasum(handle, kCount, x.at<float>(), 1, &sum));
          EXPECT_EQ(dot, static_cast<float>(kCount * (t + 1) * (t + 1)));
          EXPECT_EQ(sum, static_cast<float>(kCount * (t + 1)));
        }
      }
      if (shared) return;
      OK(cublasDestroy(handle));
      ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
  OK(cublasDestroy(common));
}
TEST_F(HandleTest, EachThreadItsHandle) { ComputeInThreads(false); }
TEST_F(HandleTest, OneHandleForAllThreads) { ComputeInThreads(true); }

// Products that take OpenBLAS's threads of execution at the same time give what they give alone.
TEST_F(HandleTest, ProductsInSeveralStreamsAtOnce) {
  constexpr int kSize = 150, kStreams = 4, kRounds = 8;
  Numbers a(CUDA_R_32F, kSize * kSize, &random_), b(CUDA_R_64F, kSize * kSize, &random_);
  std::vector<std::unique_ptr<Numbers>> single, wide;
  std::vector<std::unique_ptr<TestHandle>> handles;
  std::vector<CUstream> streams(kStreams);
  float one = 1, zero = 0;
  double one_wide = 1, zero_wide = 0;
  for (int i = 0; i < kStreams; i++) {
    handles.push_back(std::make_unique<TestHandle>());
    single.push_back(std::make_unique<Numbers>(CUDA_R_32F, kSize * kSize, &random_));
    wide.push_back(std::make_unique<Numbers>(CUDA_R_64F, kSize * kSize, &random_));
    ASSERT_EQ(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    OK(cublasSetStream(*handles[i], streams[i]));
  }
  auto run = [&](int i) {
    OK(cublasSgemm(*handles[i], CUBLAS_OP_N, CUBLAS_OP_T, kSize, kSize, kSize, &one, a.at<float>(), kSize,
                   a.at<float>(), kSize, &zero, single[i]->at<float>(), kSize));
    OK(cublasDgemm(*handles[i], CUBLAS_OP_T, CUBLAS_OP_N, kSize, kSize, kSize, &one_wide, b.at<double>(),
                   kSize, b.at<double>(), kSize, &zero_wide, wide[i]->at<double>(), kSize));
  };
  run(0);
  std::vector<unsigned char> want = single[0]->Bytes(), want_wide = wide[0]->Bytes();
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < kStreams; i++) run(i);
  }
  for (int i = 0; i < kStreams; i++) {
    EXPECT_EQ(single[i]->Bytes(), want) << i;
    EXPECT_EQ(wide[i]->Bytes(), want_wide) << i;
  }
  handles.clear();
  for (CUstream stream : streams) ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(HandleTest, AThreadWithoutAContextMayUseAHandle) {
  TestHandle handle;
  Numbers x(CUDA_R_64F, {Complex64(3), Complex64(4)});
  std::thread([&] {
    double norm = 0;
    OK(cublasDnrm2(handle, 2, x.at<double>(), 1, &norm));
    EXPECT_EQ(norm, 5);
    CUcontext current = nullptr;
    EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr) << "as it was";
  }).join();
}

// Halves of one workspace's time: products of narrow types in two streams of one handle do not disturb each
// other.
TEST_F(HandleTest, StreamsShareAWorkspaceInTurn) {
  constexpr int kSize = 96, kRounds = 12;
  TestHandle handle;
  float one = 1, zero = 0;
  Numbers a(CUDA_R_16F, kSize * kSize, &random_), b(CUDA_R_16F, kSize * kSize, &random_);
  std::vector<CUstream> streams(2);
  for (CUstream& stream : streams) ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  std::vector<std::unique_ptr<Numbers>> results;
  for (int i = 0; i < kRounds; i++) {
    results.push_back(std::make_unique<Numbers>(CUDA_R_16F, kSize * kSize, &random_));
    OK(cublasSetStream(handle, streams[i % 2]));
    bool swapped = i % 2 == 1;
    OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, swapped ? b.at() : a.at(),
                    CUDA_R_16F, kSize, swapped ? a.at() : b.at(), CUDA_R_16F, kSize, &zero, results[i]->at(),
                    CUDA_R_16F, kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }
  for (int i = 2; i < kRounds; i++) EXPECT_EQ(results[i]->Bytes(), results[i % 2]->Bytes());
  EXPECT_NE(results[0]->Bytes(), results[1]->Bytes());
  for (CUstream stream : streams) ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

// In order behind what the stream already has.
TEST_F(HandleTest, WorksInTheOrderOfItsStream) {
  TestHandle handle;
  TestKernel spin(kTestPtx, "spin"), store(kTestPtx, "store");
  uint32_t* flag = nullptr;
  ASSERT_EQ(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 64, 0), CUDA_SUCCESS);
  *flag = 0;
  Numbers x(CUDA_R_32F, {Complex64(1)});
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  OK(cublasSetStream(handle, stream));
  float two = 2;
  ASSERT_EQ(spin.Launch({reinterpret_cast<uint64_t>(flag)}, stream), CUDA_SUCCESS);
  OK(cublasSscal(handle, 1, &two, x.at<float>(), 1));
  two = 100;  // the host's scalars were taken
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
  EXPECT_EQ(x.Now()[0], Complex64(2));
  OK(cublasSetStream(handle, nullptr));
  ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeHost(flag), CUDA_SUCCESS);
}

class CaptureTest : public HandleTest {
 protected:
  CaptureTest() {
    EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_OK(cublasSetStream(handle_, stream_));
  }
  ~CaptureTest() override { EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS); }
  void Begin() {
    ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  }

  TestHandle handle_;
  CUstream stream_ = nullptr;
};

// Scalars of the host are those of the capture, scalars on the device are read at each replay.
TEST_F(CaptureTest, GraphsReplay) {
  Numbers x(CUDA_R_32F, {Complex64(1)}), a(CUDA_R_16F, {Complex64(2)}), c(CUDA_R_16F, {Complex64(1)});
  Numbers factor(CUDA_R_32F, {Complex64(3)});
  float two = 2, one = 1;
  Begin();
  OK(cublasSscal(handle_, 1, &two, x.at<float>(), 1));
  OK(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.at(), CUDA_R_16F, 1, a.at(), CUDA_R_16F,
                  1, &one, c.at(), CUDA_R_16F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  OK(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE));
  OK(cublasSscal(handle_, 1, factor.at<float>(), x.at<float>(), 1));
  OK(cublasSnrm2(handle_, 1, x.at<float>(), 1, factor.at<float>()));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  two = 100;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  for (int i = 0; i < 2; i++) ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(x.Now()[0], Complex64(72)) << "1 * 2 * 3, and that * 2 * 6";
  EXPECT_EQ(factor.Now()[0], Complex64(72));
  EXPECT_EQ(c.Now()[0], Complex64(9));
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, AGraphOutlivesItsHandle) {
  Numbers a(CUDA_R_16F, {Complex64(2)}), c(CUDA_R_16F, {Complex64(1)});
  float one = 1;
  cublasHandle_t handle = nullptr;
  OK(cublasCreate(&handle));
  OK(cublasSetStream(handle, stream_));
  Begin();
  OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.at(), CUDA_R_16F, 1, a.at(), CUDA_R_16F,
                  1, &one, c.at(), CUDA_R_16F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  OK(cublasDestroy(handle));
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(c.Now()[0], Complex64(5));
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(CaptureTest, AResultForTheHostIsRefused) {
  Numbers x(CUDA_R_32F, {Complex64(1)});
  float result = -1;
  Begin();
  EXPECT_NE(cublasSdot(handle_, 1, x.at<float>(), 1, x.at<float>(), 1, &result), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result, -1);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cublasSdot(handle_, 1, x.at<float>(), 1, x.at<float>(), 1, &result));
  EXPECT_EQ(result, 1);
}

TEST_F(HandleTest, ForbiddenMemoryBreaksTheContext) {
  cublasHandle_t handle = nullptr;
  OK(cublasCreate(&handle));
  float two = 2;
  OK(cublasSscal(handle, 1, &two, reinterpret_cast<float*>(64), 1));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cublasSscal(handle, 1, &two, reinterpret_cast<float*>(64), 1), CUBLAS_STATUS_EXECUTION_FAILED);
  cublasHandle_t other = nullptr;
  EXPECT_NE(cublasCreate(&other), CUBLAS_STATUS_SUCCESS);
  EXPECT_OK(cublasDestroy(handle));
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  UseDevice();
}

}  // namespace
}  // namespace softgpu::blas

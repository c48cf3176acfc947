// Works with handles of the CUDA libraries: one step a line of its input, one line of answers a step, which depend on
// nothing but the step; or, given a FILE, step after step until it is there.
//
// usage: libraries state|many|full:MIB|threads|blocked|broken [FILE]
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

void Expect(int status, int wanted, const char* call, int line) {
  if (status == wanted) return;
  std::printf("line %d: %s: %d\n", line, call, status);
  std::fflush(stdout);
  std::_Exit(1);
}
#define CUDA(call) Expect((call), cudaSuccess, #call, __LINE__)
#define BLAS(call) Expect((call), CUBLAS_STATUS_SUCCESS, #call, __LINE__)
#define DNN(call) Expect((call), CUDNN_STATUS_SUCCESS, #call, __LINE__)

constexpr int kSize = 16;
constexpr int kCount = kSize * kSize;

// Square matrices of small whole numbers on the current device.
class Matrices {
 public:
  Matrices() {
    for (float** matrix : {&a_, &b_, &c_}) CUDA(cudaMalloc(matrix, kCount * sizeof(float)));
    Fill(1);
  }
  ~Matrices() {
    for (float* matrix : {a_, b_, c_}) CUDA(cudaFree(matrix));
  }
  void Fill(unsigned seed) {
    std::vector<float> values(kCount);
    for (float* matrix : {a_, b_, c_}) {
      for (int i = 0; i < kCount; ++i) values[i] = static_cast<float>((i * 7 + seed++ * 13) % 5) - 2;
      CUDA(cudaMemcpy(matrix, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
    }
  }
  float* a() { return a_; }
  float* b() { return b_; }
  float* c() { return c_; }
  // Of c, after what is in the stream.
  unsigned Sum(cudaStream_t stream) {
    std::vector<float> values(kCount);
    CUDA(cudaMemcpyAsync(values.data(), c_, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    unsigned sum = 0;
    for (float value : values) sum = (sum ^ static_cast<unsigned>(static_cast<int>(value))) * 16777619u;
    return sum;
  }

 private:
  float *a_, *b_, *c_;
};

cublasStatus_t Multiply(cublasHandle_t handle, Matrices& m, const float* alpha, const float* beta) {
  return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, kSize, kSize, kSize, alpha, m.a(), kSize, m.b(), kSize, beta,
                     m.c(), kSize);
}

void MultiplyLight(cublasLtHandle_t handle, Matrices& m, cudaStream_t stream) {
  const float one = 1, zero = 0;
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t layout;
  BLAS(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  BLAS(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, kSize, kSize, kSize));
  BLAS(cublasLtMatmul(handle, operation, &one, m.a(), layout, m.b(), layout, &zero, m.c(), layout, m.c(), layout,
                      nullptr, nullptr, 0, stream));
  BLAS(cublasLtMatrixLayoutDestroy(layout));
  BLAS(cublasLtMatmulDescDestroy(operation));
}

void Activate(cudnnHandle_t handle, Matrices& m) {
  const float one = 1, zero = 0;
  cudnnTensorDescriptor_t tensor;
  cudnnActivationDescriptor_t activation;
  DNN(cudnnCreateTensorDescriptor(&tensor));
  DNN(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, kSize, kSize));
  DNN(cudnnCreateActivationDescriptor(&activation));
  DNN(cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
  DNN(cudnnActivationForward(handle, activation, &one, tensor, m.a(), &zero, tensor, m.c()));
  DNN(cudnnDestroyActivationDescriptor(activation));
  DNN(cudnnDestroyTensorDescriptor(tensor));
}

class Mode {
 public:
  virtual ~Mode() = default;
  // One line of answers.
  std::string Answer(unsigned number) {
    said_.clear();
    Step(number);
    return said_;
  }

 protected:
  virtual void Step(unsigned number) = 0;
  void Say(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    said_ += text;
  }

 private:
  std::string said_;
};

// Handles with every setting changed, on both devices; streams that end before their handles; a captured call.
class State final : public Mode {
 public:
  State() {
    const float scalars[] = {1, 0};
    CUDA(cudaMalloc(&scalars_, sizeof scalars));
    CUDA(cudaMemcpy(scalars_, scalars, sizeof scalars, cudaMemcpyHostToDevice));
    CUDA(cudaMalloc(&workspace_, kWorkspace));
    CUDA(cudaStreamCreate(&stream_));
    BLAS(cublasCreate(&blas_));
    BLAS(cublasSetStream(blas_, stream_));
    BLAS(cublasSetPointerMode(blas_, CUBLAS_POINTER_MODE_DEVICE));
    BLAS(cublasSetAtomicsMode(blas_, CUBLAS_ATOMICS_ALLOWED));
    BLAS(cublasSetMathMode(blas_, CUBLAS_PEDANTIC_MATH));
    BLAS(cublasSetSmCountTarget(blas_, 1));
    BLAS(cublasSetEmulationStrategy(blas_, CUBLAS_EMULATION_STRATEGY_EAGER));
    BLAS(cublasSetEmulationSpecialValuesSupport(blas_, CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_NAN));
    BLAS(cublasSetFixedPointEmulationMantissaControl(blas_, CUDA_EMULATION_MANTISSA_CONTROL_FIXED));
    BLAS(cublasSetFixedPointEmulationMaxMantissaBitCount(blas_, 40));
    BLAS(cublasSetFixedPointEmulationMantissaBitOffset(blas_, -3));
    BLAS(cublasSetFixedPointEmulationMantissaBitCountPointer(blas_, &bits_));
    BLAS(cublasSetWorkspace(blas_, workspace_, kWorkspace));
    BLAS(cublasLtCreate(&light_));
    DNN(cudnnCreate(&dnn_));
    DNN(cudnnSetStream(dnn_, stream_));
    MakeOnOtherDevice();
    MakeStale();
    MakeGraph();
  }
  ~State() override {
    CUDA(cudaGraphExecDestroy(exec_));
    for (cublasHandle_t handle : {blas_, other_blas_, stale_blas_, captured_blas_}) BLAS(cublasDestroy(handle));
    if (passing_ != nullptr) BLAS(cublasDestroy(passing_));
    BLAS(cublasLtDestroy(light_));
    for (cudnnHandle_t handle : {dnn_, stale_dnn_}) DNN(cudnnDestroy(handle));
    CUDA(cudaStreamDestroy(stream_));
    CUDA(cudaFree(workspace_));
    CUDA(cudaFree(scalars_));
  }

  void Step(unsigned number) override {
    m_.Fill(number);
    BLAS(Multiply(blas_, m_, scalars_, scalars_ + 1));
    Say("blas %x", m_.Sum(stream_));
    SaySettings();
    MultiplyLight(light_, m_, stream_);
    Say(" light %x", m_.Sum(stream_));
    // A handle of cuBLAS is one of cuBLASLt.
    MultiplyLight(reinterpret_cast<cublasLtHandle_t>(blas_), m_, stream_);
    Say(" both %x", m_.Sum(stream_));
    Activate(dnn_, m_);
    cudaStream_t stream = nullptr;
    DNN(cudnnGetStream(dnn_, &stream));
    Say(" dnn %x stream %d", m_.Sum(stream_), stream == stream_);
    StepOnOtherDevice(number);
    StepStale();
    CUDA(cudaGraphLaunch(exec_, stream_));
    Say(" graph %x", m_.Sum(stream_));
    StepPassing();
  }

 private:
  static constexpr size_t kWorkspace = 1 << 20;

  void SaySettings() {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t pointer;
    cublasAtomicsMode_t atomics;
    cublasMath_t math;
    int count = 0;
    BLAS(cublasGetStream(blas_, &stream));
    BLAS(cublasGetPointerMode(blas_, &pointer));
    BLAS(cublasGetAtomicsMode(blas_, &atomics));
    BLAS(cublasGetMathMode(blas_, &math));
    BLAS(cublasGetSmCountTarget(blas_, &count));
    Say(" stream %d pointer %d atomics %d math %d sms %d", stream == stream_, pointer, atomics, math, count);
    SayEmulation();
  }
  void SayEmulation() {
    cublasEmulationStrategy_t strategy;
    cudaEmulationSpecialValuesSupport special;
    cudaEmulationMantissaControl control;
    int most = 0, offset = 0;
    int* bits = nullptr;
    BLAS(cublasGetEmulationStrategy(blas_, &strategy));
    BLAS(cublasGetEmulationSpecialValuesSupport(blas_, &special));
    BLAS(cublasGetFixedPointEmulationMantissaControl(blas_, &control));
    BLAS(cublasGetFixedPointEmulationMaxMantissaBitCount(blas_, &most));
    BLAS(cublasGetFixedPointEmulationMantissaBitOffset(blas_, &offset));
    BLAS(cublasGetFixedPointEmulationMantissaBitCountPointer(blas_, &bits));
    Say(" emulation %d %d %d %d %d %d", strategy, special, control, most, offset, bits == &bits_);
  }

  void MakeOnOtherDevice() {
    CUDA(cudaSetDevice(1));
    other_ = std::make_unique<Matrices>();
    BLAS(cublasCreate(&other_blas_));
    CUDA(cudaSetDevice(0));
  }
  void StepOnOtherDevice(unsigned number) {
    const float two = 2, zero = 0;
    CUDA(cudaSetDevice(1));
    other_->Fill(number + 100);
    BLAS(Multiply(other_blas_, *other_, &two, &zero));
    Say(" other %x", other_->Sum(nullptr));
    CUDA(cudaSetDevice(0));
  }

  // The program has destroyed their stream.
  void MakeStale() {
    CUDA(cudaStreamCreate(&gone_));
    BLAS(cublasCreate(&stale_blas_));
    BLAS(cublasSetStream(stale_blas_, gone_));
    DNN(cudnnCreate(&stale_dnn_));
    DNN(cudnnSetStream(stale_dnn_, gone_));
    CUDA(cudaStreamDestroy(gone_));
  }
  void StepStale() {
    const float one = 1, zero = 0;
    cudaStream_t of_blas = nullptr, of_dnn = nullptr;
    BLAS(cublasGetStream(stale_blas_, &of_blas));
    DNN(cudnnGetStream(stale_dnn_, &of_dnn));
    Say(" stale %d %d fails %d", of_blas == gone_, of_dnn == gone_, Multiply(stale_blas_, m_, &one, &zero));
  }

  void MakeGraph() {
    const float three = 3, zero = 0;
    cudaGraph_t graph;
    BLAS(cublasCreate(&captured_blas_));
    BLAS(cublasSetStream(captured_blas_, stream_));
    CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    BLAS(Multiply(captured_blas_, m_, &three, &zero));
    CUDA(cudaStreamEndCapture(stream_, &graph));
    CUDA(cudaGraphInstantiate(&exec_, graph, 0));
    CUDA(cudaGraphDestroy(graph));
  }

  // Lives from one step to the next.
  void StepPassing() {
    const float one = 1, zero = 0;
    if (passing_ != nullptr) {
      BLAS(Multiply(passing_, m_, &one, &zero));
      Say(" passing %x", m_.Sum(nullptr));
      BLAS(cublasDestroy(passing_));
    }
    BLAS(cublasCreate(&passing_));
  }

  Matrices m_;
  std::unique_ptr<Matrices> other_;
  float* scalars_ = nullptr;  // on the device
  int bits_ = 0;
  void* workspace_ = nullptr;
  cudaStream_t stream_ = nullptr, gone_ = nullptr;
  cublasHandle_t blas_ = nullptr, other_blas_ = nullptr, stale_blas_ = nullptr, captured_blas_ = nullptr;
  cublasHandle_t passing_ = nullptr;
  cublasLtHandle_t light_ = nullptr;
  cudnnHandle_t dnn_ = nullptr, stale_dnn_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

// 64 handles.
class Many : public Mode {
 public:
  Many() {
    for (cublasHandle_t& handle : blas_) BLAS(cublasCreate(&handle));
    for (cublasLtHandle_t& handle : light_) BLAS(cublasLtCreate(&handle));
    for (cudnnHandle_t& handle : dnn_) DNN(cudnnCreate(&handle));
  }
  ~Many() override {
    for (cublasHandle_t handle : blas_) BLAS(cublasDestroy(handle));
    for (cublasLtHandle_t handle : light_) BLAS(cublasLtDestroy(handle));
    for (cudnnHandle_t handle : dnn_) DNN(cudnnDestroy(handle));
  }
  void Step(unsigned number) override {
    const float one = 1, zero = 0;
    unsigned sum = 0;
    m_.Fill(number);
    for (cublasHandle_t handle : blas_) {
      BLAS(Multiply(handle, m_, &one, &zero));
      sum = (sum ^ m_.Sum(nullptr)) * 16777619u;
    }
    for (cublasLtHandle_t handle : light_) {
      MultiplyLight(handle, m_, nullptr);
      sum = (sum ^ m_.Sum(nullptr)) * 16777619u;
    }
    for (cudnnHandle_t handle : dnn_) {
      Activate(handle, m_);
      sum = (sum ^ m_.Sum(nullptr)) * 16777619u;
    }
    Say("many %x", sum);
  }

 private:
  Matrices m_;
  cublasHandle_t blas_[24];
  cublasLtHandle_t light_[16];
  cudnnHandle_t dnn_[24];
};

// The same beside memory of the program's own.
class Full final : public Many {
 public:
  explicit Full(size_t mib) : bytes_(mib << 20) {
    CUDA(cudaMalloc(&memory_, bytes_));
    CUDA(cudaMemset(memory_, 0x5a, bytes_));
  }
  ~Full() override { CUDA(cudaFree(memory_)); }
  void Step(unsigned number) override {
    Many::Step(number);
    std::vector<unsigned char> bytes(4096);
    size_t wrong = 0;
    for (size_t at = 0; at < bytes_; at += 1 << 20) {
      CUDA(cudaMemcpy(bytes.data(), memory_ + at, bytes.size(), cudaMemcpyDeviceToHost));
      for (unsigned char byte : bytes) wrong += byte != 0x5a;
    }
    Say(" wrong %zu", wrong);
  }

 private:
  const size_t bytes_;
  unsigned char* memory_ = nullptr;
};

// A call that comes back when the program is told so. The step says that it has begun.
class Blocked final : public Mode {
 public:
  Blocked() {
    CUDA(cudaStreamCreate(&stream_));
    BLAS(cublasCreate(&blas_));
    BLAS(cublasSetStream(blas_, stream_));
  }
  ~Blocked() override {
    if (thread_.joinable()) thread_.join();
    BLAS(cublasDestroy(blas_));
  }
  void Step(unsigned number) override {
    if (number > 1) {
      go_on_.set_value();
      thread_.join();
      Say("dot %d", static_cast<int>(result_));
      return;
    }
    CUDA(cudaLaunchHostFunc(stream_, [](void* self) {
      auto* blocked = static_cast<Blocked*>(self);
      blocked->begun_.set_value();
      blocked->go_on_.get_future().wait();
    }, this));
    begun_.get_future().wait();
    std::promise<pid_t> id;
    thread_ = std::thread([this, &id] {
      id.set_value(gettid());
      BLAS(cublasSdot(blas_, kSize, m_.a(), 1, m_.a(), 1, &result_));
    });
    const pid_t caller = id.get_future().get();
    // Nothing but the call makes it sleep.
    while (StateOf(caller) != 'S') std::this_thread::yield();
    Say("begun");
  }

 private:
  static char StateOf(pid_t thread) {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    std::getline(stat, text);
    return text[text.rfind(')') + 2];
  }

  Matrices m_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  float result_ = 0;
  std::promise<void> begun_, go_on_;
  std::thread thread_;
};

// Threads that create, use and destroy handles all the time; a step waits until each has come some way further.
class Threads final : public Mode {
 public:
  Threads() {
    for (int i = 0; i < 2; ++i) {
      Start([this] { WorkBlas(); });
      Start([this] { WorkLight(); });
      Start([this] { WorkDnn(); });
    }
  }
  ~Threads() override {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  void Step(unsigned) override {
    std::vector<unsigned> wanted;
    for (auto& count : counts_) wanted.push_back(count->load() + 2);
    for (size_t i = 0; i < counts_.size(); ++i)
      while (static_cast<int>(counts_[i]->load() - wanted[i]) < 0) std::this_thread::yield();
    Say("all go on");
  }

 private:
  void Start(std::function<void()> work) {
    counts_.push_back(std::make_unique<std::atomic<unsigned>>(0));
    std::atomic<unsigned>* count = counts_.back().get();
    threads_.emplace_back([this, work, count] {
      while (!stop_) {
        work();
        count->fetch_add(1);
      }
    });
  }
  void Same(unsigned sum, std::atomic<unsigned>* first, const char* what) {
    unsigned before = 0;
    if (first->compare_exchange_strong(before, sum) || before == sum) return;
    std::printf("%s: %x, not %x\n", what, sum, before);
    std::fflush(stdout);
    std::_Exit(1);
  }
  void WorkBlas() {
    const float one = 1, zero = 0;
    Matrices m;
    cudaStream_t stream, now;
    cublasHandle_t handle;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    BLAS(cublasCreate(&handle));
    BLAS(cublasSetStream(handle, stream));
    for (int i = 0; i < 3; ++i) BLAS(Multiply(handle, m, &one, &zero));
    Same(m.Sum(stream), &blas_sum_, "cuBLAS");
    BLAS(cublasGetStream(handle, &now));
    Expect(now == stream, true, "the handle's stream", __LINE__);
    CUDA(cudaStreamDestroy(stream));
    BLAS(cublasDestroy(handle));
  }
  void WorkLight() {
    Matrices m;
    cublasLtHandle_t handle;
    BLAS(cublasLtCreate(&handle));
    for (int i = 0; i < 3; ++i) MultiplyLight(handle, m, cudaStreamPerThread);
    Same(m.Sum(cudaStreamPerThread), &light_sum_, "cuBLASLt");
    BLAS(cublasLtDestroy(handle));
  }
  void WorkDnn() {
    Matrices m;
    cudnnHandle_t handle;
    DNN(cudnnCreate(&handle));
    DNN(cudnnSetStream(handle, cudaStreamPerThread));
    for (int i = 0; i < 3; ++i) Activate(handle, m);
    Same(m.Sum(cudaStreamPerThread), &dnn_sum_, "cuDNN");
    DNN(cudnnDestroy(handle));
  }

  std::atomic<bool> stop_{false};
  std::atomic<unsigned> blas_sum_{0}, light_sum_{0}, dnn_sum_{0};
  std::vector<std::unique_ptr<std::atomic<unsigned>>> counts_;
  std::vector<std::thread> threads_;
};

// Says what the libraries answer, whatever that is.
class Broken final : public Mode {
 public:
  Broken() {
    BLAS(cublasCreate(&blas_));
    DNN(cudnnCreate(&dnn_));
  }
  void Step(unsigned) override {
    const float one = 1, zero = 0;
    cudaStream_t stream;
    Say("blas %d dnn %d", Multiply(blas_, m_, &one, &zero), cudnnGetStream(dnn_, &stream));
  }

 private:
  Matrices m_;
  cublasHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
};

std::unique_ptr<Mode> Make(const std::string& name) {
  if (name == "state") return std::make_unique<State>();
  if (name == "many") return std::make_unique<Many>();
  if (name == "threads") return std::make_unique<Threads>();
  if (name == "blocked") return std::make_unique<Blocked>();
  if (name == "broken") return std::make_unique<Broken>();
  if (name.rfind("full:", 0) == 0) return std::make_unique<Full>(std::strtoul(name.c_str() + 5, nullptr, 10));
  return nullptr;
}

void Print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void ByInput(Mode& mode) {
  Print("ready");
  char line[16];
  for (unsigned number = 1; std::fgets(line, sizeof line, stdin) != nullptr && line[0] != 'q'; ++number)
    Print("step " + std::to_string(number) + ": " + mode.Answer(number));
}

// The same few steps again and again until the file is there; each must answer as it did at first.
int UntilFile(Mode& mode, const char* path) {
  constexpr unsigned kSteps = 4;
  std::string first[kSteps];
  mode.Answer(0);
  for (unsigned i = 0; i < kSteps; ++i) first[i] = mode.Answer(i);
  Print("ready");
  for (unsigned i = 0; access(path, F_OK) != 0; i = (i + 1) % kSteps) {
    const std::string answer = mode.Answer(i);
    if (answer == first[i]) continue;
    Print("step " + std::to_string(i) + ": " + answer + "\n    not " + first[i]);
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<Mode> mode = Make(argc >= 2 ? argv[1] : "");
  if (mode == nullptr) return 2;
  if (argc < 3) {
    ByInput(*mode);
  } else if (UntilFile(*mode, argv[2]) != 0) {
    return 1;
  }
  mode.reset();
  Print("done");
  return 0;
}

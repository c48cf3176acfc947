#include "softgpu/blas/lt_logger.h"

#include <cstdio>
#include <mutex>

#include "softgpu/blas/status.h"

namespace softgpu::blas {

namespace {

constexpr int kErrors = 1, kMostDetail = 5;

struct Logger {
  std::mutex mutex;
  cublasLtLoggerCallback_t callback = nullptr;
  FILE* file = nullptr;
  bool owns_file = false;
  bool on = false;  // errors are asked for
  bool disabled = false;

  void SetFileLocked(FILE* to, bool own) {
    if (owns_file) fclose(file);
    file = to;
    owns_file = own;
  }
};
constinit Logger g_logger;

}  // namespace

void LogCall(const char* function, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  char text[128];
  snprintf(text, sizeof text, "%s", StatusName(status));
  cublasLtLoggerCallback_t callback = nullptr;
  {
    std::lock_guard lock(g_logger.mutex);
    if (!g_logger.on || g_logger.disabled) return;
    callback = g_logger.callback;
    if (g_logger.file != nullptr) {
      fprintf(g_logger.file, "[cublasLt][Error][%s] %s\n", function, text);
      fflush(g_logger.file);
    }
  }
  if (callback != nullptr) callback(kErrors, function, text);
}

}  // namespace softgpu::blas

using softgpu::blas::g_logger;

extern "C" {

cublasStatus_t cublasLtLoggerSetCallback(cublasLtLoggerCallback_t callback) {
  std::lock_guard lock(g_logger.mutex);
  g_logger.callback = callback;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerSetFile(FILE* file) {
  std::lock_guard lock(g_logger.mutex);
  g_logger.SetFileLocked(file, false);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerOpenFile(const char* logFile) {
  FILE* file = logFile == nullptr ? nullptr : fopen(logFile, "ae");
  if (file == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::lock_guard lock(g_logger.mutex);
  g_logger.SetFileLocked(file, true);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerSetLevel(int level) {
  if (level < 0 || level > softgpu::blas::kMostDetail) return CUBLAS_STATUS_INVALID_VALUE;
  std::lock_guard lock(g_logger.mutex);
  g_logger.on = level >= softgpu::blas::kErrors;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerSetMask(int mask) {
  std::lock_guard lock(g_logger.mutex);
  g_logger.on = (mask & softgpu::blas::kErrors) != 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtLoggerForceDisable() {
  std::lock_guard lock(g_logger.mutex);
  g_logger.disabled = true;
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

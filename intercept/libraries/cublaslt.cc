// cuBLASLt handles: they have no settings.
#include "cublaslt_hooks.h"
#include "intercept/libraries/handle_library.h"

namespace stasis::libraries {
namespace {

Status CublasStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const bool no_room = status == CUBLAS_STATUS_ALLOC_FAILED;
  return Errorf(no_room ? StatusCode::kResourceExhausted : StatusCode::kDriver, "%s: status %d", call,
                static_cast<int>(status));
}

class Handle final : public HandleObject {
 public:
  void Read(void*) override {}
  Status Apply(void*) override { return {}; }
};

class CublasLt final : public HandleLibrary {
 public:
  static CublasLt& Get() {
    static CublasLt* const library = Registered(new CublasLt);
    return *library;
  }
  const char* Name() const override { return "cuBLASLt"; }

 protected:
  Result<void*> Create() override {
    cublasLtHandle_t handle = nullptr;
    RETURN_IF_ERROR(CublasStatus(cublasLtCreate(&handle), "cublasLtCreate"));
    return static_cast<void*>(handle);
  }
  Status Destroy(void* real) override {
    return CublasStatus(cublasLtDestroy(static_cast<cublasLtHandle_t>(real)), "cublasLtDestroy");
  }
};

}  // namespace

namespace hooks {

cublasStatus_t cublasLtCreate(const LibraryCall& call, cublasLtHandle_t* lightHandle) {
  const cublasStatus_t status = call.Real<decltype(&::cublasLtCreate)>()(lightHandle);
  if (status == CUBLAS_STATUS_SUCCESS && !call.OfALibrary())
    *lightHandle =
        static_cast<cublasLtHandle_t>(CublasLt::Get().Made(*lightHandle, std::make_shared<Handle>()));
  return status;
}

cublasStatus_t cublasLtDestroy(const LibraryCall& call, cublasLtHandle_t lightHandle) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  CublasLt::Get().Destroyed(lightHandle, [&](void* real) {
    status = call.Real<decltype(&::cublasLtDestroy)>()(static_cast<cublasLtHandle_t>(real));
    return status == CUBLAS_STATUS_SUCCESS;
  });
  return status;
}

}  // namespace hooks
}  // namespace stasis::libraries

// cuBLAS handles.
#include <optional>

#include "cublas_hooks.h"
#include "intercept/libraries/handle_library.h"
#include "intercept/libraries/handles.h"
#include "intercept/libraries/stream_of.h"

namespace stasis::libraries {
namespace {

Status CublasStatus(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const bool no_room = status == CUBLAS_STATUS_ALLOC_FAILED;
  return Errorf(no_room ? StatusCode::kResourceExhausted : StatusCode::kDriver, "%s: status %d", call,
                static_cast<int>(status));
}

// A setting with a getter. What this library does not know stays what it is.
template <typename T>
class Setting {
 public:
  using Get = cublasStatus_t (*)(cublasHandle_t, T*);
  using Set = cublasStatus_t (*)(cublasHandle_t, T);
  Setting(Get get, Set set, const char* name) : get_(get), set_(set), name_(name) {}

  void Read(cublasHandle_t handle) {
    T value{};
    value_.reset();
    if (get_(handle, &value) == CUBLAS_STATUS_SUCCESS) value_ = value;
  }
  // What a new handle has by itself is not set: not every library takes its own defaults.
  Status Apply(cublasHandle_t handle) const {
    T now{};
    if (!value_ || (get_(handle, &now) == CUBLAS_STATUS_SUCCESS && now == *value_)) return {};
    return CublasStatus(set_(handle, *value_), name_);
  }

 private:
  const Get get_;
  const Set set_;
  const char* const name_;
  std::optional<T> value_;
};

#define STASIS_SETTING(type, member, name) \
  Setting<type> member { cublasGet##name, cublasSet##name, "cublasSet" #name }

class Handle final : public HandleObject {
 public:
  void Read(void* real) override {
    const auto handle = static_cast<cublasHandle_t>(real);
    stream_.Read(
        [&](cudaStream_t* stream) { return cublasGetStream_v2(handle, stream) == CUBLAS_STATUS_SUCCESS; });
    (void)ForEach([&](auto& setting) {
      setting.Read(handle);
      return Status();
    });
  }
  // The workspace last: setting the stream takes it away.
  Status Apply(void* real) override {
    const auto handle = static_cast<cublasHandle_t>(real);
    RETURN_IF_ERROR(stream_.Apply([&](cudaStream_t stream) {
      return CublasStatus(cublasSetStream_v2(handle, stream), "cublasSetStream");
    }));
    RETURN_IF_ERROR(ForEach([&](auto& setting) { return setting.Apply(handle); }));
    if (!workspace_) return {};
    return CublasStatus(cublasSetWorkspace_v2(handle, workspace_->address, workspace_->bytes),
                        "cublasSetWorkspace");
  }

  StreamOf& stream() { return stream_; }
  void SetWorkspace(void* address, size_t bytes) { workspace_ = {address, bytes}; }
  void ForgetWorkspace() { workspace_.reset(); }

 private:
  struct Workspace {
    void* address;
    size_t bytes;
  };

  template <typename Visit>
  Status ForEach(Visit visit) {
    RETURN_IF_ERROR(visit(pointer_mode_));
    RETURN_IF_ERROR(visit(atomics_mode_));
    RETURN_IF_ERROR(visit(math_mode_));
    RETURN_IF_ERROR(visit(sm_count_));
    RETURN_IF_ERROR(visit(emulation_));
    RETURN_IF_ERROR(visit(special_values_));
    RETURN_IF_ERROR(visit(mantissa_control_));
    RETURN_IF_ERROR(visit(mantissa_max_bits_));
    RETURN_IF_ERROR(visit(mantissa_offset_));
    return visit(mantissa_bits_pointer_);
  }

  StreamOf stream_;
  std::optional<Workspace> workspace_;  // guarded by the library's mutex
  Setting<cublasPointerMode_t> pointer_mode_{cublasGetPointerMode_v2, cublasSetPointerMode_v2,
                                             "cublasSetPointerMode"};
  STASIS_SETTING(cublasAtomicsMode_t, atomics_mode_, AtomicsMode);
  STASIS_SETTING(cublasMath_t, math_mode_, MathMode);
  STASIS_SETTING(int, sm_count_, SmCountTarget);
  STASIS_SETTING(cublasEmulationStrategy_t, emulation_, EmulationStrategy);
  STASIS_SETTING(cudaEmulationSpecialValuesSupport, special_values_, EmulationSpecialValuesSupport);
  STASIS_SETTING(cudaEmulationMantissaControl, mantissa_control_, FixedPointEmulationMantissaControl);
  STASIS_SETTING(int, mantissa_max_bits_, FixedPointEmulationMaxMantissaBitCount);
  STASIS_SETTING(int, mantissa_offset_, FixedPointEmulationMantissaBitOffset);
  STASIS_SETTING(int*, mantissa_bits_pointer_, FixedPointEmulationMantissaBitCountPointer);
};

class Cublas final : public HandleLibrary {
 public:
  static Cublas& Get() {
    static Cublas* const library = Registered(new Cublas);
    return *library;
  }
  const char* Name() const override { return "cuBLAS"; }

  template <typename Change>
  void With(cublasHandle_t visible, Change change) {
    HandleLibrary::With(visible, [&](HandleObject& object) { change(static_cast<Handle&>(object)); });
  }

 protected:
  Result<void*> Create() override {
    cublasHandle_t handle = nullptr;
    RETURN_IF_ERROR(CublasStatus(cublasCreate_v2(&handle), "cublasCreate"));
    return static_cast<void*>(handle);
  }
  Status Destroy(void* real) override {
    return CublasStatus(cublasDestroy_v2(static_cast<cublasHandle_t>(real)), "cublasDestroy");
  }
};

}  // namespace

namespace hooks {

cublasStatus_t cublasCreate_v2(const LibraryCall& call, cublasHandle_t* handle) {
  const cublasStatus_t status = call.Real<decltype(&::cublasCreate_v2)>()(handle);
  if (status == CUBLAS_STATUS_SUCCESS && !call.OfALibrary())
    *handle = static_cast<cublasHandle_t>(Cublas::Get().Made(*handle, std::make_shared<Handle>()));
  return status;
}

cublasStatus_t cublasDestroy_v2(const LibraryCall& call, cublasHandle_t handle) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  Cublas::Get().Destroyed(handle, [&](void* real) {
    status = call.Real<decltype(&::cublasDestroy_v2)>()(static_cast<cublasHandle_t>(real));
    return status == CUBLAS_STATUS_SUCCESS;
  });
  return status;
}

// Gives the handle the library's own workspace again.
cublasStatus_t cublasSetStream_v2(const LibraryCall& call, cublasHandle_t handle, cudaStream_t streamId) {
  const cublasStatus_t status = call.Real<decltype(&::cublasSetStream_v2)>()(ToReal(handle), streamId);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Cublas::Get().With(handle, [](Handle& object) {
    object.ForgetWorkspace();
    object.stream().Forget();
  });
  return status;
}

cublasStatus_t cublasGetStream_v2(const LibraryCall& call, cublasHandle_t handle, cudaStream_t* streamId) {
  const cublasStatus_t status = call.Real<decltype(&::cublasGetStream_v2)>()(ToReal(handle), streamId);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Cublas::Get().With(handle, [&](Handle& object) { *streamId = object.stream().Visible(*streamId); });
  return status;
}

cublasStatus_t cublasSetWorkspace_v2(const LibraryCall& call, cublasHandle_t handle, void* workspace,
                                     size_t workspaceSizeInBytes) {
  const cublasStatus_t status =
      call.Real<decltype(&::cublasSetWorkspace_v2)>()(ToReal(handle), workspace, workspaceSizeInBytes);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Cublas::Get().With(handle, [&](Handle& object) { object.SetWorkspace(workspace, workspaceSizeInBytes); });
  return status;
}

}  // namespace hooks
}  // namespace stasis::libraries

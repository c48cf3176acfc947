#include "replay/jit_options.h"

namespace stasis::replay {

namespace {

enum class OptionClass { kValue, kOutput, kPointers };

OptionClass ClassOf(CUjit_option option) {
  switch (static_cast<int>(option)) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
      return OptionClass::kOutput;
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT:
      return OptionClass::kPointers;
    default:
      return OptionClass::kValue;
  }
}

}  // namespace

JitOptions::JitOptions(unsigned count, const CUjit_option* options, void* const* values) {
  for (unsigned i = 0; options != nullptr && values != nullptr && i < count; ++i) {
    const OptionClass kind = ClassOf(options[i]);
    if (kind == OptionClass::kPointers) unsupported_ = "CUjit_option " + std::to_string(options[i]);
    if (kind != OptionClass::kValue) continue;
    options_.push_back(options[i]);
    values_.push_back(values[i]);
  }
}

Status JitOptions::Check() const {
  if (unsupported_.empty()) return {};
  return Errorf(StatusCode::kUnsupported, "it was loaded with %s", unsupported_.c_str());
}

}  // namespace stasis::replay

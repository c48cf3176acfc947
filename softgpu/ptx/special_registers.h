// The predefined special registers: PTX ISA 9.0, chapter 10.
#ifndef SOFTGPU_PTX_SPECIAL_REGISTERS_H_
#define SOFTGPU_PTX_SPECIAL_REGISTERS_H_

#include <string_view>

namespace softgpu::ptx {

// `name` is without '%' and without component, e.g. "tid", "envreg31".
bool IsSpecialRegister(std::string_view name);

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_SPECIAL_REGISTERS_H_

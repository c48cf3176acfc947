// The generated table of error codes (gen_driver.py).
#ifndef SOFTGPU_DRIVER_ERROR_TABLE_H_
#define SOFTGPU_DRIVER_ERROR_TABLE_H_

#include <cstddef>

#include "softgpu/driver/errors.h"

namespace softgpu {

extern const ErrorText kErrorTexts[];
extern const size_t kErrorTextCount;

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_ERROR_TABLE_H_

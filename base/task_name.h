// What tasks and jobs may be called.
#ifndef BASE_TASK_NAME_H_
#define BASE_TASK_NAME_H_

#include <string_view>

#include "base/status.h"

namespace stasis {

// kInvalidArgument unless `name` is usable as a folder's name and on a command line.
Status CheckTaskName(std::string_view name);

}  // namespace stasis

#endif  // BASE_TASK_NAME_H_

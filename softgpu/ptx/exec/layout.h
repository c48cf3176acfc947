// Order of basic blocks.
#ifndef SOFTGPU_PTX_EXEC_LAYOUT_H_
#define SOFTGPU_PTX_EXEC_LAYOUT_H_

#include <vector>

#include "softgpu/ptx/exec/lower.h"

namespace softgpu::exec {

// Reorders drafts (targets are draft indices) so that every path goes forward except along loops, and each
// loop is one stretch with its exits behind it: a weak topological order of the control flow graph
// (Bourdoncle, "Efficient chaotic iteration strategies with widenings", 1993). Running the lowest address
// first then makes diverged lanes meet at the earliest common block. Unreachable code is dropped. Adds the
// jumps that the new order needs, chooses the handlers of branches and inserts polls into long straight
// stretches.
void LayOut(std::vector<Draft>* drafts);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_LAYOUT_H_

// Renaming of module-scope symbols wherever a module refers to them.
#ifndef SOFTGPU_PTX_RENAME_H_
#define SOFTGPU_PTX_RENAME_H_

#include <string>
#include <unordered_map>

#include "softgpu/ptx/module.h"

namespace softgpu::ptx {

// Old name to new name.
using Renames = std::unordered_map<std::string, std::string>;

// Renames uses: operands, addresses in initialisers, call targets. A function's own local of the same name
// stays.
void RenameUses(const Renames& renames, Module* module);
// Renames the variables and functions themselves.
void RenameDeclarations(const Renames& renames, Module* module);

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_RENAME_H_

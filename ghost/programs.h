// The executables and libraries that a task has mapped, and whether they are still the same at restore.
#ifndef GHOST_PROGRAMS_H_
#define GHOST_PROGRAMS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "ghost/manifest.h"

namespace stasis {

// The GNU build id of an ELF file in hexadecimal; empty when it has none or is no ELF file.
std::string BuildIdOf(const std::string& path);
// A file as it is now; kNotFound.
Result<ManifestProgram> DescribeProgram(const std::string& path);
// Every file that some process of the tree has mapped executable. kUnsupported when one was deleted or
// replaced while mapped: what runs is then nowhere on disk.
Result<std::vector<ManifestProgram>> ProgramsOf(const std::vector<pid_t>& tree, std::string* remedy);
// kUnsupported when the file is missing or not the same any more, and how it differs.
Status CheckProgram(const ManifestProgram& was);
// The same of all, up to the first that differs.
Status CheckPrograms(const std::vector<ManifestProgram>& programs, std::string* remedy);

}  // namespace stasis

#endif  // GHOST_PROGRAMS_H_

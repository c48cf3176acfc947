// The files that `stasis` needs beside itself, in a build folder as in an installation.
#ifndef COORDINATOR_NODE_OWN_FILES_H_
#define COORDINATOR_NODE_OWN_FILES_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace stasis {

struct OwnFiles {
  std::string stasis;          // this program
  std::string preload;         // libstasis.so
  std::string init;            // stasis-init
  std::string ghost;           // stasis-ghost
  std::string simulator;       // stasis-sim
  std::string softgpu_folder;  // holds libcuda.so.1 and libcudart.so.13 of the software device
  std::string softgpud;
  std::string softgpu_smi;
};

// Each path is the first place where the file exists, else the first place where it should be: whoever needs
// the file asks RequireFile.
OwnFiles FindOwnFiles();
// The same for a `stasis` at `program`.
OwnFiles FindOwnFilesOf(const std::string& program);

// kNotFound with what is missing and how to get it. `mode` as for access(2).
Status RequireFile(const std::string& path, int mode, const char* what);

}  // namespace stasis

#endif  // COORDINATOR_NODE_OWN_FILES_H_

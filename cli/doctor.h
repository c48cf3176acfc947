// The checks behind `stasis doctor`. Each looks at one thing the machine must offer and changes nothing
// lasting.
#ifndef CLI_DOCTOR_H_
#define CLI_DOCTOR_H_

#include <string>
#include <vector>

#include "cli/verbs.h"

namespace stasis {

// What stops working when a check fails; each needs all before it.
enum class Needed { kRun, kPause, kCheckpoint, kNothing };
const char* NeededName(Needed needed);

struct Finding {
  std::string name;  // "criu"
  Needed needed = Needed::kNothing;
  bool ok = false;
  std::string detail;  // what was found
  std::string remedy;  // how to mend it; only with !ok
};

// What the system around offers: kernel, namespaces, capabilities, CRIU, freezer.
std::vector<Finding> ExamineSystem();
// What belongs to Stasis and its tasks: own files, folders, drivers, toolkit.
std::vector<Finding> ExamineInstallation(const Context& context);
// Of what NVIDIA's driver can do by itself, which is what a pause of programs on NVIDIA's runtime needs of
// it: `version` as cuDriverGetVersion.
Finding CheckDriverVersion(int version);

// True when every finding that `what` needs is ok.
bool Works(const std::vector<Finding>& findings, Needed what);

}  // namespace stasis

#endif  // CLI_DOCTOR_H_

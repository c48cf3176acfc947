#include "cli/verbs.h"
namespace stasis {
int DoctorVerb(const Options&, Context& context) {
  return context.reporter.Fail(Status(StatusCode::kInternal, "being built"));
}
}  // namespace stasis

// What a scheduler reads back from its store, and the files of a simulation. The first byte says which.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "scheduler/live/fact.h"
#include "scheduler/sim/cost_model.h"
#include "scheduler/sim/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::istringstream stream(text);
  using namespace stasis::scheduler;
  switch (data[0] % 7) {
    case 0: {
      stasis::Result<Fact> fact = ParseFact(text);
      if (fact.ok() && !ParseFact(FactText(*fact)).ok()) __builtin_trap();
      break;
    }
    case 1:
      (void)ParseWeights(stream, "fuzz");
      break;
    case 2:
      (void)ParseCostSamples(stream, "fuzz");
      break;
    default:
      (void)ParseTrace(stream, "fuzz", static_cast<TraceLayout>(data[0] % 7 - 3), {});
  }
  return 0;
}

#include "proto/rpc/actor.h"

namespace stasis {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kReader:
      return "reader";
    case Role::kOperator:
      return "operator";
    case Role::kScheduler:
      return "scheduler";
    case Role::kAgent:
      return "agent";
    case Role::kItself:
      return "itself";
  }
  return "?";
}

}  // namespace stasis

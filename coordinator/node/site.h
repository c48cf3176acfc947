// What every verb needs to know of the machine it is carried out on.
#ifndef COORDINATOR_NODE_SITE_H_
#define COORDINATOR_NODE_SITE_H_

#include "coordinator/node/layout.h"
#include "coordinator/node/own_files.h"

namespace stasis {

struct Site {
  Folders folders;
  OwnFiles files;
};

}  // namespace stasis

#endif  // COORDINATOR_NODE_SITE_H_

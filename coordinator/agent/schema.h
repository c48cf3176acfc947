// The tables of agent.db.
#ifndef COORDINATOR_AGENT_SCHEMA_H_
#define COORDINATOR_AGENT_SCHEMA_H_

#include <string>
#include <vector>

namespace stasis {

// Of all modules, as Database::Open() takes them.
const std::vector<std::string>& SchemaSteps();

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEMA_H_

// Who does the work: an agent, or this process itself.
#ifndef CLI_NODE_CHOICE_H_
#define CLI_NODE_CHOICE_H_

#include <string>

#include "base/status.h"
#include "cli/options.h"
#include "coordinator/node/layout.h"

namespace stasis {

// What the options or $STASIS_NODE name; "" where they name none, or ask for none.
std::string NamedNode(const Options& options);
// Where the agent of this site listens.
std::string LocalNode(const Folders& folders);
// True when somebody listens there. Costs a connect(2), and nothing of gRPC.
bool AnswersLocally(const Folders& folders);

// The endpoint to use, or "" for this process: what is named, else the local agent's where it answers.
// kInvalidArgument: --node with --embedded, or what is no endpoint.
Result<std::string> ChooseNode(const Options& options, const Folders& folders);

// The scheduler that the options or $STASIS_SCHEDULER name; "" where they name none, or a node to ask
// instead.
std::string NamedScheduler(const Options& options);
// The endpoint to use: what is named, else the scheduler of this site where it answers. kUnavailable: none.
Result<std::string> ChooseScheduler(const Options& options, const Folders& folders);

// An option of the verb that only this process itself understands ("--nodes"), or nullptr. Without a named
// node it is no reason to ask the local agent.
const char* EmbeddedOption(const Options& options);

}  // namespace stasis

#endif  // CLI_NODE_CHOICE_H_

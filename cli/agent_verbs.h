// The verbs carried out by an agent (context.node): the same output, documents and exit codes as without.
#ifndef CLI_AGENT_VERBS_H_
#define CLI_AGENT_VERBS_H_

#include <string>
#include <vector>

#include "cli/agent_client.h"
#include "cli/verbs.h"

namespace stasis {

int AgentRunVerb(const Options& options, Context& context);
int AgentPsVerb(const Options& options, Context& context);
int AgentLogsVerb(const Options& options, Context& context);
int AgentRmVerb(const Options& options, Context& context);

int AgentPauseVerb(const Options& options, Context& context);
int AgentResumeVerb(const Options& options, Context& context);
int AgentCheckpointVerb(const Options& options, Context& context);
int AgentRestoreVerb(const Options& options, Context& context);
int AgentMigrateVerb(const Options& options, Context& context);
int AgentCancelVerb(const Options& options, Context& context);

// `stasis ops ls|show|cancel`.
int OpsVerb(const Options& options, Context& context);
// Ids of the latest operations; none where they cannot be had.
std::vector<std::string> OperationIds(const std::string& node);
// `stasis schedule set|ls|rm`.
int ScheduleVerb(const Options& options, Context& context);
// Of several agents (options.node), or the local one.
int TopVerb(const Options& options, Context& context);

Status NoSuchTask(const std::string& name);
// The one job, or the one rank's task as a job of its own, of that name.
Result<v1::Job> FindJob(AgentClient& client, const std::string& name);
// Of the options that requests have in common.
v1::PauseOptions PauseOptionsOf(const Options& options);

}  // namespace stasis

#endif  // CLI_AGENT_VERBS_H_

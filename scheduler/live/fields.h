// The fields of what is part of facts and of a snapshot (scheduler/live/codec.h).
#ifndef SCHEDULER_LIVE_FIELDS_H_
#define SCHEDULER_LIVE_FIELDS_H_

#include "scheduler/live/codec.h"
#include "scheduler/live/fact.h"

namespace stasis::scheduler {

constexpr ActionKind LastOf(ActionKind) { return ActionKind::kResize; }

template <typename Codec>
void Fields(Codec& codec, JobRequest& request) {
  codec("name", request.name);
  codec("tenant", request.tenant);
  codec("argv", request.argv);
  codec("environment", request.environment);
  codec("folder", request.folder);
  codec("device", request.device);
  codec("gpus", request.gpus);
  codec("ranks", request.ranks);
  codec("priority", request.priority);
  codec("weight", request.weight);
  codec("estimate", request.estimate);
  codec("min_gpus", request.min_gpus);
  codec("max_gpus", request.max_gpus);
  codec("checkpoint_interval", request.checkpoint_interval);
  codec("max_restarts", request.max_restarts);
  codec.Optional("memory", request.memory);
  codec.Optional("utilization", request.utilization);
}

template <typename Codec>
void Fields(Codec& codec, SaveEnded& fact) {
  codec("job", fact.job);
  codec("node", fact.node);
  codec("saved", fact.saved);
  codec("message", fact.message);
  codec("image", fact.image);
}

}  // namespace stasis::scheduler

#endif  // SCHEDULER_LIVE_FIELDS_H_

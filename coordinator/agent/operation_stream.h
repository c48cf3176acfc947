// Agent.WatchOperation: an operation as it is, then after each change, to its end.
#ifndef COORDINATOR_AGENT_OPERATION_STREAM_H_
#define COORDINATOR_AGENT_OPERATION_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <memory>

#include "base/worker_pool.h"
#include "coordinator/agent/operations.h"
#include "stasis/v1/operation.pb.h"

namespace stasis {

// For a request that was admitted; the stream belongs to gRPC. `operations` and `pool` outlive it.
grpc::ServerWriteReactor<v1::Operation>* OpenOperationStream(Operations& operations, WorkerPool& pool,
                                                             const v1::WatchOperationRequest& request,
                                                             grpc::CallbackServerContext* context);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_OPERATION_STREAM_H_

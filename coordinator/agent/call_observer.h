// Sees every call of every service, also those that no service sees because their message cannot be read:
// counts them, and puts the unreadable ones on record.
#ifndef COORDINATOR_AGENT_CALL_OBSERVER_H_
#define COORDINATOR_AGENT_CALL_OBSERVER_H_

#include <grpcpp/support/server_interceptor.h>

#include "coordinator/agent/metrics.h"
#include "proto/rpc/audit.h"
#include "proto/rpc/gate.h"

namespace stasis {

// Of a server; all three outlive it.
class CallObserver final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  CallObserver(Gate& gate, Audit& audit, Metrics& metrics) : gate_(gate), audit_(audit), metrics_(metrics) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override;

 private:
  Gate& gate_;
  Audit& audit_;
  Metrics& metrics_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_CALL_OBSERVER_H_

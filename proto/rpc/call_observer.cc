#include "proto/rpc/call_observer.h"

#include <string>

#include "base/clock.h"

namespace stasis {
namespace {

using grpc::experimental::InterceptionHookPoints;

class Observed final : public grpc::experimental::Interceptor {
 public:
  Observed(grpc::experimental::ServerRpcInfo* info, Gate& gate, Audit& audit,
           const CallObserver::Ended& ended)
      : info_(info), gate_(gate), audit_(audit), ended_(ended), began_(Clock::Real().Now()) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      readable_ = methods->GetRecvMessage() != nullptr;
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      if (!readable_) Refuse(methods);
      Ended(methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  void Refuse(grpc::experimental::InterceptorBatchMethods* methods) {
    Status malformed(StatusCode::kInvalidArgument, "the message cannot be read");
    methods->ModifySendStatus(grpc::Status(grpc::INVALID_ARGUMENT, std::string(malformed.message())));
    Result<Actor> who = gate_.Identify(*info_->server_context());
    std::string method = info_->method();
    audit_.Record({who.ok() ? who->name : "", who.ok() ? RoleName(who->role) : "",
                   info_->server_context()->peer(), method.substr(method.rfind('/') + 1), "", "", malformed});
  }
  void Ended(int code) {
    bool at_once = info_->type() == grpc::experimental::ServerRpcInfo::Type::UNARY;
    double seconds = std::chrono::duration<double>(Clock::Real().Now() - began_).count();
    if (ended_) ended_(info_->method(), code, at_once ? seconds : -1);
  }

  grpc::experimental::ServerRpcInfo* const info_;
  Gate& gate_;
  Audit& audit_;
  const CallObserver::Ended& ended_;
  const MonotonicTime began_;
  bool readable_ = false;
};

}  // namespace

grpc::experimental::Interceptor* CallObserver::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new Observed(info, gate_, audit_, ended_);
}

}  // namespace stasis

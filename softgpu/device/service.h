// Service: everything softgpud decides, without its sockets. Messages and events of the world come in as
// calls, messages to clients and orders to drop them go out as values. Any input is survived.
// Single-threaded.
#ifndef SOFTGPU_DEVICE_SERVICE_H_
#define SOFTGPU_DEVICE_SERVICE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/message.h"
#include "base/unix_socket.h"
#include "softgpu/device/config.h"
#include "softgpu/device/environment.h"
#include "softgpu/device/protocol.h"
#include "softgpu/device/registry.h"
#include "softgpu/device/rendezvous.h"
#include "softgpu/device/slices.h"

namespace softgpu {

class Service {
 public:
  struct Output {
    std::vector<std::pair<ClientId, stasis::Message>> messages;  // in the order in which they must be sent
    std::vector<ClientId> dropped;                               // close these connections, then call Detach
  };

  // `environment` must outlive this. `config` has passed CheckConfig.
  Service(const NodeConfig& config, const std::string& identity, Environment* environment);
  ~Service();

  // A new connection. kNotFound: its process has already ended.
  stasis::Result<ClientId> Attach(const stasis::PeerCredentials& peer);
  // The connection is closed. Unknown ids are ignored.
  void Detach(ClientId client);
  // Not OK: the client broke the protocol and must be dropped.
  stasis::Status Handle(ClientId client, stasis::Message message);
  void TokenClosed(uint64_t token);
  void ProcessExited(pid_t pid);
  // To be called at NextTick() or soon after.
  void Tick();
  stasis::MonotonicTime NextTick() const;

  // What the calls since the last Take() have caused.
  Output Take() { return std::exchange(output_, Output{}); }
  // Whether anybody needs the daemon: a client that is no observer, memory, an exported token, a checkpointed
  // process.
  bool Busy() const;

 private:
  struct Client {
    stasis::PeerCredentials peer;
    std::string name;
    bool greeted = false;
    bool observer = false;
    bool said_bye = false;
  };
  struct Token {
    AllocId alloc = 0;
    std::pair<dev_t, ino_t> pipe;
    stasis::Fd read_end;
  };
  // The request being handled.
  struct Call {
    ClientId id;
    uint64_t request_id;
    Client& client;
  };

  void On(const Call& call, HelloRequest& request);
  void On(const Call& call, DevicesRequest& request);
  void On(const Call& call, CtxCreateRequest& request);
  void On(const Call& call, CtxDestroyRequest& request);
  void On(const Call& call, MemCreateRequest& request);
  void On(const Call& call, MemReleaseRequest& request);
  void On(const Call& call, MemExportRequest& request);
  void On(const Call& call, MemImportRequest& request);
  void On(const Call& call, MemInfoRequest& request);
  void On(const Call& call, SliceRequest& request);
  void On(const Call& call, SliceReleaseRequest& request);
  void On(const Call& call, CheckpointProcessRequest& request);
  void On(const Call& call, CheckpointReplyRequest& request);
  void On(const Call& call, InventoryRequest& request);
  void On(const Call& call, InjectFaultRequest& request);
  void On(const Call& call, ByeRequest& request);

  template <typename Body>
  void Answer(const Call& call, stasis::Result<Body> body);
  void Answer(const Call& call, const stasis::Status& status);
  void AnswerAllocation(const Call& call, const stasis::Result<Registry::AllocView>& view);
  void Send(ClientId client, Event event);
  void Send(const SliceScheduler::Notices& notices);
  void Send(Rendezvous::Output output);
  void LetGo(ClientId id);
  void AnnounceFault(uint32_t device, const Fault& fault);
  stasis::Result<stasis::Fd> MakeToken(AllocId alloc);
  bool DropClosedTokens();
  stasis::Result<AllocId> FindToken(int fd) const;
  Inventory MakeInventory() const;
  stasis::MonotonicTime Now() const { return environment_.clock().Now(); }

  NodeConfig config_;
  Environment& environment_;
  Registry registry_;
  SliceScheduler slices_;
  Rendezvous rendezvous_;
  std::map<ClientId, Client> clients_;
  std::map<uint64_t, Token> tokens_;
  std::map<std::pair<dev_t, ino_t>, uint64_t> token_of_pipe_;
  ClientId next_client_ = 1;
  uint64_t next_token_ = 1;
  Output output_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_SERVICE_H_

// The ghost's control socket (docs/ghost-protocol.md) and its life: one thread serves clients and watches the
// task, one runs the operation. What the operation asks the coordinator of the task's job goes through the
// first one, too.
#ifndef GHOST_SERVER_H_
#define GHOST_SERVER_H_

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/message.h"
#include "base/progress.h"
#include "base/unix_socket.h"
#include "ghost/coordination_remote.h"
#include "ghost/job.h"
#include "ghost/request.h"

namespace stasis {

class Server {
 public:
  Server(Job& job, UnixListener listener);
  ~Server();
  // Serves until there is nothing left to do. `expect_client`: one is about to connect.
  void Run(bool expect_client);

 private:
  struct Client {
    uint64_t id = 0;
    Fd socket;
    MessageDecoder decoder;
  };
  struct Asked {
    uint64_t client = 0;
    uint64_t request_id = 0;
    Request request;
  };
  struct Posted {
    uint64_t client = 0;  // 0: whoever waits for the operation that runs
    Message message;
    uint32_t question = 0;  // its number, of a question
  };

  bool Idle() const;
  bool LateClients();
  void Poll(int timeout_ms);
  void Accept();
  void Read(Client& client);
  void Handle(Client& client, Message message);
  void HandleRequest(Client& client, uint64_t request_id, Request request);
  void HandleAnswer(Client& client, const Message& message);
  bool HandleKnown(const Asked& asked);
  void HandleCancel(const Asked& asked);
  void Start(Asked asked);
  std::unique_ptr<RemoteCoordination> Meet(const Asked& asked);
  void Finish();
  void Post(uint64_t client, uint64_t request_id, uint32_t type, const Json& json);  // any thread
  void Post(Posted posted);                                                          // any thread
  void Flush();
  bool SendTo(Client* client, Message message);
  Client* FindClient(uint64_t id);
  void DropClients();
  Json StatusFields();
  void WatchTask();
  void WatchRank();

  Job& job_;
  UnixListener listener_;
  std::list<Client> clients_;
  uint64_t next_client_ = 1;
  Fd wake_;  // an eventfd: something is in posted_, or the operation has ended

  std::thread worker_;
  std::optional<Asked> running_;
  std::unique_ptr<RemoteCoordination> meeting_;  // of an operation that a job's coordinator leads
  std::optional<Asked> queued_;                  // a cancel that waits for the operation it gave up
  Fd root_;                                      // of the held task, to see its end

  std::mutex mutex_;
  std::vector<Posted> posted_;  // guarded by mutex_
  std::optional<Json> result_;  // of the operation that has ended; guarded by mutex_
};

}  // namespace stasis

#endif  // GHOST_SERVER_H_

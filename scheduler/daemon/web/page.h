// A page for people who want to see the cluster: read-only, in the clear, for who can reach its address.
#ifndef SCHEDULER_DAEMON_WEB_PAGE_H_
#define SCHEDULER_DAEMON_WEB_PAGE_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "proto/rpc/endpoint.h"
#include "scheduler/daemon/core.h"

struct mg_connection;
struct mg_context;

namespace stasis::scheduler {

// Serves the files of this folder, /snapshot.json, and /events (server-sent events), both
// with `?after=NUMBER` for newer events alone.
class WebPage {
 public:
  // Serves when it returns; a port 0 is any that is free. `core` outlives the object. kAlreadyExists:
  // somebody listens there; kUnsupported: IPv6, where the library knows none. On a loopback address only
  // requests for this machine's own names are answered, so that a page from elsewhere cannot have a browser
  // here ask.
  static Result<std::unique_ptr<WebPage>> Start(SchedulerCore& core, const Endpoint& endpoint);
  // Ends what is under way.
  ~WebPage();
  WebPage(const WebPage&) = delete;
  WebPage& operator=(const WebPage&) = delete;

  // "127.0.0.1:8480", with the port that was taken.
  std::string address() const { return endpoint_.Target(); }

 private:
  WebPage(SchedulerCore& core, const Endpoint& endpoint) : core_(core), endpoint_(endpoint) {}
  Status Begin();
  int Answer(mg_connection* connection);
  int AnswerStream(mg_connection* connection, uint64_t after);
  bool TellEvents(mg_connection* connection, uint64_t* after);
  bool IsForUs(const char* host) const;

  SchedulerCore& core_;
  Endpoint endpoint_;
  mg_context* context_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  int streams_ = 0;
  std::shared_ptr<void> subscription_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_WEB_PAGE_H_

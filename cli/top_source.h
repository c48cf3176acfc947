// What `stasis top` knows of the agents that it looks at, asked anew once a second by a thread for each.
#ifndef CLI_TOP_SOURCE_H_
#define CLI_TOP_SOURCE_H_

#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "cli/top_model.h"

namespace stasis {

// Once, now. An agent that does not answer has its `error`.
TopNode AskTopNode(const std::string& endpoint);

class TopSource {
 public:
  explicit TopSource(const std::vector<std::string>& endpoints);
  ~TopSource();
  TopSource(const TopSource&) = delete;
  TopSource& operator=(const TopSource&) = delete;

  // Polls readable when something is newer than what was taken last.
  int fd() const { return event_.get(); }
  std::vector<TopNode> Take();

 private:
  void Run(size_t index);

  const Fd event_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::vector<TopNode> nodes_;
  std::list<std::thread> threads_;
};

}  // namespace stasis

#endif  // CLI_TOP_SOURCE_H_

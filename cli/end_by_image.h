// Ending a task by an image, beside whoever follows it.
#ifndef CLI_END_BY_IMAGE_H_
#define CLI_END_BY_IMAGE_H_

#include <memory>
#include <optional>
#include <thread>

#include "base/fd.h"
#include "base/status.h"
#include "coordinator/node/site.h"

namespace stasis {

// Not thread-safe: one thread uses it, and another one, of its own, does the work.
class EndByImage {
 public:
  static Result<std::unique_ptr<EndByImage>> Create(TaskPaths paths, Site site);
  ~EndByImage();

  // Asks for a checkpoint that ends the task; what else is done to it is given up for that. False while an
  // earlier one is under way.
  bool Begin();
  // Polls readable when it has come to its end.
  int fd() const { return done_.get(); }
  // How: OK when the task has ended. Nothing while it is under way.
  std::optional<Status> Take();

 private:
  EndByImage(TaskPaths paths, Site site, Fd done)
      : paths_(std::move(paths)), site_(std::move(site)), done_(std::move(done)) {}

  const TaskPaths paths_;
  const Site site_;
  const Fd done_;
  std::thread worker_;
  Status result_;  // the worker's until done_ says so
};

}  // namespace stasis

#endif  // CLI_END_BY_IMAGE_H_

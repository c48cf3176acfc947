// Signals that end a task or job by an image, to a command that stays with it.
#ifndef CLI_END_BY_IMAGE_H_
#define CLI_END_BY_IMAGE_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "cli/report.h"
#include "coordinator/node/site.h"

namespace stasis {

// Used by one thread; another one, of its own, makes the image.
class EndByImage {
 public:
  struct Options {
    std::string name;               // of the task or job
    std::vector<int> signals;       // that ask for an image
    std::function<Status()> image;  // makes it, and ends what it is of; called by the other thread
    // For signals that do not ask for one, and for those that did in vain: whoever sends them does not wait
    // for an image that cannot be made.
    std::function<void(int)> pass_on;
  };
  static Result<std::unique_ptr<EndByImage>> Create(Options options, Reporter& reporter);
  // Waits for an image that is being made.
  ~EndByImage();

  void OnSignal(int signal);
  // Polls readable when OnReadable() is to be called.
  int fd() const { return done_.get(); }
  void OnReadable();

 private:
  EndByImage(Options options, Reporter& reporter, Fd done)
      : options_(std::move(options)), reporter_(reporter), done_(std::move(done)) {}

  const Options options_;
  Reporter& reporter_;
  const Fd done_;
  int signal_ = 0;  // that the image is made for
  std::thread worker_;
  Status result_;  // the worker's until done_ says so
};

// For Options::image. What else is done to the task or job is given up.
Status EndTaskByImage(const TaskPaths& paths, const Site& site);
Status EndJobByImage(const std::string& name, const Site& site);

}  // namespace stasis

#endif  // CLI_END_BY_IMAGE_H_

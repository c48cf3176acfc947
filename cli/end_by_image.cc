#include "cli/end_by_image.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "cli/exit_codes.h"
#include "coordinator/job_operation.h"
#include "coordinator/node/ghost_client.h"

namespace stasis {
namespace {

// Between a ghost's last word on an operation, in the record, and the moment it takes the next one nothing
// tells.
constexpr int kAskAgainMs = 200;

class NoInterrupt final : public Interrupt {
 public:
  int fd() const override { return -1; }
  bool Take() override { return false; }
};

Result<Json> Ask(const TaskPaths& paths, const Site& site, const Json& request) {
  NoInterrupt none;
  return AskGhost(paths, site, request, none, [](const Json&) {});
}

Status StatusOf(const Json& result) {
  if (BoolField(result, "ok")) return Status();
  std::string message = TextField(result, "message"), remedy = TextField(result, "remedy");
  if (!remedy.empty()) message += "; " + remedy;
  return Status(StatusCodeByName(TextField(result, "code")), std::move(message));
}

void TakeEvents(int fd, int timeout_ms) {
  pollfd wait = {fd, POLLIN, 0};
  poll(&wait, 1, timeout_ms);
  alignas(inotify_event) char buffer[16 << 10];
  while (read(fd, buffer, sizeof buffer) > 0) {
  }
}

// Until no operation runs on the task.
Status GiveUpOthers(const TaskPaths& paths, const Site& site) {
  Fd changes(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!changes.valid()) return ErrnoStatus(errno, "inotify_init");
  if (inotify_add_watch(changes.get(), paths.folder.c_str(), IN_MOVED_TO) < 0)
    return ErrnoStatus(errno, "watch " + paths.folder);
  for (;;) {
    ASSIGN_OR_RETURN(Json status, Ask(paths, site, {{"verb", "status"}}));
    RETURN_IF_ERROR(StatusOf(status));
    if (TextField(status, "operation").empty()) return Status();
    // It may have ended at this moment, which is as good.
    RETURN_IF_ERROR(Ask(paths, site, {{"verb", "cancel"}, {"what", "operation"}}).status());
    TakeEvents(changes.get(), kAskAgainMs);
  }
}

}  // namespace

Result<std::unique_ptr<EndByImage>> EndByImage::Create(Options options, Reporter& reporter) {
  Fd done(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!done.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<EndByImage>(new EndByImage(std::move(options), reporter, std::move(done)));
}

EndByImage::~EndByImage() {
  if (worker_.joinable()) worker_.join();
}

void EndByImage::OnSignal(int signal) {
  bool asks = std::find(options_.signals.begin(), options_.signals.end(), signal) != options_.signals.end();
  if (!asks) return options_.pass_on(signal);
  if (worker_.joinable()) return;  // it has been asked for already
  signal_ = signal;
  reporter_.Note(std::string(strsignal(signal)) + ": checkpointing " + options_.name);
  worker_ = std::thread([this] {
    result_ = options_.image();
    uint64_t one = 1;
    (void)!write(done_.get(), &one, sizeof one);
  });
}

void EndByImage::OnReadable() {
  uint64_t count;
  if (read(done_.get(), &count, sizeof count) != sizeof count) return;
  worker_.join();
  if (result_.ok()) return;
  reporter_.Note("no image, so the signal is passed on: " + result_.ToString());
  options_.pass_on(signal_);
}

Status EndTaskByImage(const TaskPaths& paths, const Site& site) {
  for (;;) {
    RETURN_IF_ERROR(GiveUpOthers(paths, site));
    ASSIGN_OR_RETURN(Json result, Ask(paths, site, {{"verb", "checkpoint"}, {"stop", true}}));
    Status status = StatusOf(result);
    if (status.code() != StatusCode::kFailedPrecondition) return status;
    // Somebody may have begun another operation in between.
    ASSIGN_OR_RETURN(Json now, Ask(paths, site, {{"verb", "status"}}));
    if (TextField(now, "operation").empty()) return status;
  }
}

Status EndJobByImage(const std::string& name, const Site& site) {
  ASSIGN_OR_RETURN(JobRecord record, ReadJobRecord(site.folders.state, name));
  JobPlace place{site.folders.state, site.folders.run, site.files.ghost};
  JobRequest give_up;
  give_up.verb = JobRequest::Verb::kCancel;
  give_up.whole_job = false;
  JobOperation(place, record, JobWatcher()).Run(give_up);  // fails where there is nothing to give up
  JobRequest request;
  request.verb = JobRequest::Verb::kCheckpoint;
  request.stop = true;
  request.seed = std::random_device()();
  return StatusOf(JobOperation(place, record, JobWatcher()).Run(request));
}

}  // namespace stasis

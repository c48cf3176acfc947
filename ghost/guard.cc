#include "ghost/guard.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <span>

#include "base/clock.h"
#include "base/files.h"
#include "base/message.h"
#include "base/raw_log.h"
#include "base/unix_socket.h"
#include "ghost/child.h"

namespace stasis {
namespace {

constexpr uint32_t kState = 1, kGoodbye = 2, kDone = 3;
constexpr MessageLimits kLimits = {1u << 30, 65535};
constexpr std::chrono::seconds kAnswerTime(30);
constexpr size_t kMaxAdopted = 1u << 30;

std::vector<std::byte> BytesOf(const std::string& text) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string TextOf(const std::vector<std::byte>& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<std::vector<Fd>> DuplicatesOf(const std::vector<Fd>& fds) {
  std::vector<Fd> copies;
  for (const Fd& fd : fds) {
    copies.push_back(fd.Duplicate());
    if (!copies.back().valid()) return ErrnoStatus(errno, "duplicate a descriptor");
  }
  return copies;
}

// Becomes the ghost. The state goes through a file in memory, descriptors by number.
int Become(const GhostArguments& arguments, const std::string& state, const std::vector<Fd>& fds,
           const Fd& lock) {
  (void)fcntl(lock.get(), F_SETFD, 0);
  Json numbers = Json::array();
  for (const Fd& fd : fds) {
    (void)fcntl(fd.get(), F_SETFD, 0);
    numbers.push_back(fd.get());
  }
  std::string text = "{\"fds\":" + JsonText(numbers) + ",\"lock\":" + std::to_string(lock.get()) +
                     ",\"state\":" + (state.empty() ? "{}" : state) + "}";
  Fd file(memfd_create("stasis-adopted", 0));
  if (!file.valid() || !WriteAt(file.get(), std::as_bytes(std::span(text)), 0).ok()) return 1;
  std::vector<std::string> argv = arguments.CommandLine();
  argv.insert(argv.end(), {"--adopt", std::to_string(file.get())});
  std::vector<char*> pointers;
  for (std::string& word : argv) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(pointers[0], pointers.data());
  RawLog(LogLevel::kError, "guardian: cannot start %s", argv[0].c_str());
  return 1;
}

}  // namespace

std::vector<std::string> GhostArguments::CommandLine() const {
  std::vector<std::string> argv = {program, "--task", task, "--state-dir", state_dir, "--run-dir", run_dir};
  if (!criu.empty()) argv.insert(argv.end(), {"--criu", criu});
  return argv;
}

Status Guard::Start() {
  Dismiss();
  ASSIGN_OR_RETURN(auto pair, UnixSocketPair());
  ChildOptions options;
  options.argv = arguments_.CommandLine();
  options.argv.insert(options.argv.end(), {"--guard", std::to_string(pair.second.get())});
  options.output = arguments_.state_dir + "/tasks/" + arguments_.task + "/ghost.log";
  options.inherit = {pair.second.get()};
  options.keep_environment = true;
  options.new_session = true;  // what ends the ghost's group does not end it
  ASSIGN_OR_RETURN(pid_, StartChild(options));
  socket_ = std::move(pair.first);
  return Status();
}

Status Guard::Exchange(uint32_t type, const Json& state, const std::vector<Fd>* fds) {
  Message message;
  message.type = type;
  if (type == kState) message.payload = BytesOf(JsonText({{"fds", fds != nullptr}, {"state", state}}));
  if (fds) {
    ASSIGN_OR_RETURN(message.fds, DuplicatesOf(*fds));
  }
  Deadline deadline = Deadline::After(kAnswerTime);
  RETURN_IF_ERROR(SendMessage(socket_.get(), std::move(message), deadline, kLimits));
  MessageDecoder decoder;
  return ReceiveMessage(socket_.get(), decoder, deadline).status();
}

Status Guard::Publish(const Json& state, const std::vector<Fd>* fds) {
  if (!running()) return Status(StatusCode::kPeerDied, "there is no guardian");
  return Exchange(kState, state, fds).WithContext("guardian");
}

void Guard::Dismiss() {
  if (!running()) return;
  (void)Exchange(kGoodbye, Json(), nullptr);
  Forget();
}

void Guard::Forget() {
  socket_.Reset();
  if (pid_ > 0) (void)WaitChild(pid_, Deadline::After(kAnswerTime));
  pid_ = 0;
}

int GuardMain(int socket_number, const GhostArguments& arguments) {
  // A fault that was meant for the ghost is not for its successor.
  unsetenv("STASIS_GHOST_FAULT");
  Fd socket(socket_number);
  (void)fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
  Result<Fd> lock = LockAsGuardian(arguments, /*wait=*/true);
  if (!lock.ok()) {
    RawLog(LogLevel::kError, "guardian: %s", lock.status().ToString().c_str());
    return 1;
  }
  MessageDecoder decoder(kLimits);
  std::string state;
  std::vector<Fd> fds;
  for (;;) {
    Result<Message> message = ReceiveMessage(socket.get(), decoder, Deadline::Never());
    if (!message.ok()) break;
    bool goodbye = message->type == kGoodbye;
    if (!goodbye) {
      Result<Json> told = ParseJsonObject(TextOf(message->payload));
      if (!told.ok()) break;
      if ((*told)["fds"] == true) fds = std::move(message->fds);
      state = JsonText((*told)["state"]);
    }
    Message done;
    done.type = kDone;
    (void)SendMessage(socket.get(), std::move(done), Deadline::After(kAnswerTime));
    if (goodbye) return 0;
  }
  RawLog(LogLevel::kWarning, "guardian: the ghost has died; taking its place");
  return Become(arguments, state, fds, *lock);
}

Result<Adopted> ReadAdopted(int number) {
  Fd file(number);
  ASSIGN_OR_RETURN(std::string text, ReadFile("/proc/self/fd/" + std::to_string(number), kMaxAdopted));
  ASSIGN_OR_RETURN(Json json, ParseJsonObject(text));
  JsonFields fields(json, "the guardian's legacy");
  Adopted adopted;
  adopted.state = fields.Object("state");
  adopted.lock = Fd(static_cast<int>(fields.Number("lock", 1 << 20)));
  RETURN_IF_ERROR(fields.Finish());
  for (const Json& element : json["fds"]) {
    if (!element.is_number_integer())
      return Status(StatusCode::kCorrupt, "the guardian's legacy names no descriptor");
    adopted.fds.emplace_back(element.get<int>());
    (void)fcntl(adopted.fds.back().get(), F_SETFD, FD_CLOEXEC);
  }
  (void)fcntl(adopted.lock.get(), F_SETFD, FD_CLOEXEC);
  return adopted;
}

Result<Fd> LockAsGuardian(const GhostArguments& arguments, bool wait) {
  std::string path = arguments.run_dir + "/tasks/" + arguments.task + "/guard.lock";
  ASSIGN_OR_RETURN(Fd lock, OpenFile(path, O_RDWR | O_CREAT | O_NOFOLLOW));
  while (flock(lock.get(), LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
    if (errno == EWOULDBLOCK) return Status(StatusCode::kAlreadyExists, "the task has a guardian");
    if (errno != EINTR) return ErrnoStatus(errno, "lock " + path);
  }
  return lock;
}

}  // namespace stasis

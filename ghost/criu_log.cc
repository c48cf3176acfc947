// What CRIU's log says, in words for the user.
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "ghost/criu.h"

namespace stasis {
namespace {

struct Explanation {
  const char* pattern;  // part of the error line
  const char* what;     // null: the line itself says it well
  const char* remedy;
};

// Facts of CRIU 4.x's messages. The first row that matches wins.
constexpr Explanation kExplanations[] = {
    {"Can't dump half of stream unix", "a unix socket is connected to a process outside of the task",
     "close the connection before the checkpoint, or run the peer inside the task"},
    {"External socket is used", "a unix socket is connected to a process outside of the task",
     "close the connection before the checkpoint, or run the peer inside the task"},
    {"Connected TCP socket", "a TCP connection is open", "close the connection before the checkpoint"},
    {"Failed to lock TCP connection", "a TCP connection is open, and cannot be held still",
     "close it before the checkpoint, or run the task as the machine's root, or in a network of its own"},
    {"In-flight connection", "a TCP connection is being opened", "try again in a moment"},
    {"has been killed", "a process of the task was killed meanwhile", "try again"},
    {"io_uring", "io_uring is in use", "run the program without io_uring"},
    {"Can't lookup mount", "a file lies on a mount that the task's mount namespace does not show",
     "close the file, or start the task where the mount is visible"},
    {"Can't create link remap", "a file that is open was deleted or replaced while other links to it exist",
     "close the file before the checkpoint"},
    {"--link-remap", "a file that is open was deleted or replaced while other links to it exist",
     "close the file before the checkpoint"},
    {"Can't dump ghost file", "a deleted file that is still open is too large",
     "close the file, or make it smaller"},
    {"session leader of", "the task is not the leader of a session of its own", "start it with: stasis run"},
    {"is outside of its pid namespace", "the task is not the leader of a session of its own",
     "start it with: stasis run"},
    {"A session leader of", "the task is not the leader of a session of its own",
     "start it with: stasis run"},
    {"tty is not slave", "a terminal is open", "connect the program to files instead of a terminal"},
    {"Found dangling tty", "a terminal is open", "connect the program to files instead of a terminal"},
    {"Don't know how to dump", nullptr, "close it before the checkpoint"},
    {"Unsupported file", nullptr, "close it before the checkpoint"},
    {"Can't dump file", nullptr, "close the file before the checkpoint"},
    {"unsupported inode", nullptr, "close it before the checkpoint"},
    {"has bad size", "a file has another size than at the checkpoint", "put the file back as it was"},
    {"has bad mode", "a file has another mode than at the checkpoint", "put the file back as it was"},
    {"has bad build-id", "a program or library was replaced since the checkpoint",
     "put the old version back"},
    {"Can't open file", nullptr, "put the file back as it was"},
    {"No space left", "the disk is full", "make room in the state folder"},
    {"Can't seize task", "a process is held by a debugger", "detach the debugger first"},
    {"is already being traced", "a process is held by a debugger", "detach the debugger first"},
    {"Timeout reached", "a process could not be stopped in time",
     "see whether it waits for a device or a dead file server"},
    {"Can't fork for", "the process ids of the task are in use",
     "restore it as root: then it gets a pid namespace"},
    {"Operation not permitted", nullptr, "run it as root, or with CAP_SYS_ADMIN"},
};

// What CRIU reports as errors without failing for them.
constexpr const char* kHarmless[] = {"rlimit: Can't setup RLIMIT_NOFILE", "Can't setup RLIMIT",
                                     "net: Unexpected error: -1(Operation not permitted)"};

bool IsHarmless(const std::string& line) {
  for (const char* text : kHarmless) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

// "Error (criu/sk-unix.c:873): unix: Can't dump ..." -> "unix: Can't dump ..."
std::string Message(const std::string& line) {
  size_t at = line.find("Error (");
  size_t end = at == std::string::npos ? at : line.find("): ", at);
  return end == std::string::npos ? line : line.substr(end + 3);
}

// Follows which process and descriptor the dump is at: "... Dumping opened files (pid: 17)", "17 fdinfo 5:
// ...".
struct Position {
  long pid = 0;
  long fd = -1;
  void Follow(const std::string& line) {
    size_t at = line.find("(pid: ");
    if (at != std::string::npos) {
      pid = std::strtol(line.c_str() + at + 6, nullptr, 10);
      fd = -1;
    }
    at = line.find(" fdinfo ");
    if (at != std::string::npos) fd = std::strtol(line.c_str() + at + 8, nullptr, 10);
  }
  std::string Text() const {
    if (pid == 0) return "";
    std::string text = "process " + std::to_string(pid);
    if (fd >= 0) text += ", descriptor " + std::to_string(fd);
    return text + ": ";
  }
};

}  // namespace

CriuFailure ExplainCriuLog(const std::string& log) {
  CriuFailure failure;
  Position position;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    bool error = line.find("Error (") != std::string::npos;
    if (!error) position.Follow(line);
    if (!error || IsHarmless(line)) continue;
    std::string message = Message(line);
    for (const Explanation& row : kExplanations) {
      if (message.find(row.pattern) == std::string::npos) continue;
      std::string said = row.what ? std::string(row.what) + " (" + message + ")" : message;
      return {position.Text() + said, row.remedy};
    }
    if (failure.message.empty()) failure.message = position.Text() + message;
  }
  return failure;
}

}  // namespace stasis

// Two processes that talk over TCP and fold all that they hear into device memory. What they say is known
// beforehand, so what they print at the end does not depend on when they were stopped meanwhile.
//
// usage: sockets stream ADDRESS ROUNDS COMMAND_FILE   both talk at once, all the time; before the last rounds
// one of
//                                                     them hears nothing more until the file is there
//        sockets idle ADDRESS COMMAND_FILE   connected, and nothing is said before the file is there
//        sockets listen ADDRESS COMMAND_FILE only a listening socket until then
//        sockets closed ADDRESS COMMAND_FILE the other process has said something, closed and ended; it is
//        heard then sockets half ADDRESS COMMAND_FILE   the other one has shut its half down and listens on
//        sockets outside ADDRESS PORT COMMAND_FILE   connected to somebody else
//        sockets none ADDRESS PORT COMMAND_FILE      not connected; a listening socket on that port
#include <arpa/inet.h>
#include <cuda_runtime.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    cudaError_t check_error = (call);                                                                    \
    if (check_error != cudaSuccess) {                                                                    \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_error)); \
      std::_Exit(3);                                                                                     \
    }                                                                                                    \
  } while (0)

constexpr int kWords = 4096;
constexpr int kLanes = 256;

[[noreturn]] static void Die(const char* what) {
  std::perror(what);
  std::_Exit(4);
}

__global__ void Fold(const uint32_t* words, uint32_t* lanes) {
  uint32_t lane = lanes[threadIdx.x];
  for (int i = threadIdx.x; i < kWords; i += kLanes) lane = lane * 1664525u + words[i];
  lanes[threadIdx.x] = lane;
}

// The words that one side says, in blocks.
class Voice {
 public:
  explicit Voice(uint32_t seed) : state_(seed) {}
  const std::vector<uint32_t>& Next() {
    for (uint32_t& word : words_) word = state_ = state_ * 22695477u + 1u;
    return words_;
  }

 private:
  uint32_t state_;
  std::vector<uint32_t> words_ = std::vector<uint32_t>(kWords);
};

class Ear {
 public:
  explicit Ear(int socket) : socket_(socket) {
    CHECK(cudaMalloc(&words_, kWords * sizeof(uint32_t)));
    CHECK(cudaMalloc(&lanes_, kLanes * sizeof(uint32_t)));
    CHECK(cudaMemset(lanes_, 0, kLanes * sizeof(uint32_t)));
  }
  void Hear() {
    std::vector<uint32_t> block(kWords);
    size_t size = kWords * sizeof(uint32_t), got = 0;
    while (got < size) {
      ssize_t n = recv(socket_, reinterpret_cast<char*>(block.data()) + got, size - got, 0);
      if (n <= 0) Die("recv");
      got += static_cast<size_t>(n);
    }
    CHECK(cudaMemcpy(words_, block.data(), size, cudaMemcpyHostToDevice));
    Fold<<<1, kLanes>>>(words_, lanes_);
    CHECK(cudaGetLastError());
  }
  void ExpectEnd() {
    char byte;
    if (recv(socket_, &byte, 1, 0) != 0) Die("the other end is not closed");
  }
  uint32_t Sum() const {
    uint32_t lanes[kLanes], sum = 0;
    CHECK(cudaMemcpy(lanes, lanes_, sizeof lanes, cudaMemcpyDeviceToHost));
    for (uint32_t lane : lanes) sum = sum * 31u + lane;
    return sum;
  }

 private:
  int socket_;
  uint32_t* words_ = nullptr;
  uint32_t* lanes_ = nullptr;
};

static void Speak(int socket, Voice* voice) {
  const std::vector<uint32_t>& words = voice->Next();
  size_t size = words.size() * sizeof(uint32_t), said = 0;
  while (said < size) {
    ssize_t n = send(socket, reinterpret_cast<const char*>(words.data()) + said, size - said, MSG_NOSIGNAL);
    if (n <= 0) Die("send");
    said += static_cast<size_t>(n);
  }
}

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
};

static Address Parse(const char* text, uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof *v4;
  } else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof *v6;
  } else {
    Die("address");
  }
  return address;
}

static int Listen(Address* address) {
  int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd < 0 || bind(fd, address->raw(), address->size) != 0 || listen(fd, 4) != 0 ||
      getsockname(fd, address->raw(), &address->size) != 0)
    Die("listen");
  return fd;
}

static int Connect(Address address) {
  int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, address.raw(), address.size) != 0) Die("connect");
  return fd;
}

static int Accept(int listener) {
  int fd = accept(listener, nullptr, nullptr);
  if (fd < 0) Die("accept");
  return fd;
}

static void Say(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
}

// Waits until the file exists. Its folder is watched, so that nothing is polled.
static void WaitFor(const char* path) {
  const std::string file(path), folder = file.substr(0, file.rfind('/'));
  const int watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0 || inotify_add_watch(watch, folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) Die("watch");
  while (access(path, F_OK) != 0) {
    char events[4096];
    if (read(watch, events, sizeof events) <= 0) Die("watch");
  }
  close(watch);
}

// The same on both sides, but for what is said.
static void Talk(int socket, int side, int rounds, bool tells, const char* hold = nullptr) {
  Ear ear(socket);
  std::thread speaker([&] {
    Voice voice(static_cast<uint32_t>(side) + 1);
    for (int i = 0; i < rounds; ++i) Speak(socket, &voice);
  });
  for (int i = 0; i < rounds; ++i) {
    if (hold != nullptr && i == rounds / 8 * 7) WaitFor(hold);
    ear.Hear();
    if (tells && i % (rounds / 8 + 1) == 0) Say("round " + std::to_string(i));
  }
  speaker.join();
  if (tells) Say("heard " + std::to_string(ear.Sum()));
  // The other side says its own by how it ends.
  if (!tells) {
    uint32_t sum = ear.Sum();
    if (send(socket, &sum, sizeof sum, MSG_NOSIGNAL) != sizeof sum) Die("send");
    return;
  }
  uint32_t other = 0;
  if (recv(socket, &other, sizeof other, MSG_WAITALL) != sizeof other) Die("recv");
  Say("other heard " + std::to_string(other));
}

static pid_t Fork(int listener, const Address& address, void (*child)(int, const char*),
                  const char* argument) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(listener);
  child(Connect(address), argument);
  std::_Exit(0);
}

static void WaitForChild(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) Die("child");
}

static void Answer(int socket, const char*) { Talk(socket, 1, 40, false); }

static void SpeakAndEnd(int socket, const char*) {
  Voice voice(7);
  Speak(socket, &voice);
}

static void ShutAndAnswer(int socket, const char*) {
  Voice voice(7);
  Speak(socket, &voice);
  if (shutdown(socket, SHUT_WR) != 0) Die("shutdown");
  Ear ear(socket);
  ear.Hear();
  ear.ExpectEnd();
  Say("other heard " + std::to_string(ear.Sum()));
}

static void RunStream(Address address, const char* rounds, const char* file) {
  int listener = Listen(&address);
  pid_t child = Fork(
      listener, address, [](int socket, const char* text) { Talk(socket, 1, std::atoi(text), false); },
      rounds);
  Talk(Accept(listener), 0, std::atoi(rounds), true, file);
  WaitForChild(child);
}

static void RunIdle(Address address, const char* file) {
  int listener = Listen(&address);
  pid_t child = Fork(listener, address, Answer, nullptr);
  int socket = Accept(listener);
  CHECK(cudaFree(nullptr));
  Say("ready");
  WaitFor(file);
  Talk(socket, 0, 40, true);
  WaitForChild(child);
}

static void RunListen(Address address, const char* file) {
  int listener = Listen(&address);
  CHECK(cudaFree(nullptr));
  Say("ready");
  WaitFor(file);
  pid_t child = Fork(listener, address, SpeakAndEnd, nullptr);
  Ear ear(Accept(listener));
  ear.Hear();
  ear.ExpectEnd();
  WaitForChild(child);
  Say("heard " + std::to_string(ear.Sum()));
}

static void RunClosed(Address address, const char* file) {
  int listener = Listen(&address);
  pid_t child = Fork(listener, address, SpeakAndEnd, nullptr);
  Ear ear(Accept(listener));
  WaitForChild(child);
  Say("ready");
  WaitFor(file);
  ear.Hear();
  ear.ExpectEnd();
  Say("heard " + std::to_string(ear.Sum()));
}

static void RunHalf(Address address, const char* file) {
  int listener = Listen(&address);
  pid_t child = Fork(listener, address, ShutAndAnswer, nullptr);
  int socket = Accept(listener);
  Ear ear(socket);
  ear.Hear();
  ear.ExpectEnd();
  Say("ready");
  WaitFor(file);
  Voice voice(9);
  Speak(socket, &voice);
  shutdown(socket, SHUT_WR);
  WaitForChild(child);
  Say("heard " + std::to_string(ear.Sum()));
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string mode = argv[1];
  const bool has_port = mode == "outside" || mode == "none";
  if ((has_port || mode == "stream") && argc < 5) return 2;
  Address address = Parse(argv[2], has_port ? static_cast<uint16_t>(std::atoi(argv[3])) : 0);
  if (mode == "stream") RunStream(address, argv[3], argv[4]);
  if (mode == "idle") RunIdle(address, argv[3]);
  if (mode == "listen") RunListen(address, argv[3]);
  if (mode == "closed") RunClosed(address, argv[3]);
  if (mode == "half") RunHalf(address, argv[3]);
  if (has_port) {
    int fd = mode == "outside" ? Connect(address) : Listen(&address);
    CHECK(cudaFree(nullptr));
    Say("ready");
    WaitFor(argv[4]);
    close(fd);
  }
  Say("done");
  return 0;
}

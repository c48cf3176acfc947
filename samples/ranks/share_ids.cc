#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <set>

#include "../common/fail.h"
#include "environment.h"
#include "nccl_check.h"

namespace ranks {
namespace {

constexpr int kGiveUpSeconds = 120;

[[noreturn]] void FailOn(const char* what, const Environment& environment) {
  sample::Fail(sample::kExitFailure, "cannot %s %s:%d: %s", what, environment.address.c_str(),
               environment.port, strerror(errno));
}

sockaddr_in Resolve(const Environment& environment) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(environment.address.c_str(), nullptr, &hints, &found);
  if (error != 0)
    sample::Fail(sample::kExitFailure, "MASTER_ADDR '%s': %s", environment.address.c_str(),
                 gai_strerror(error));
  sockaddr_in address;
  memcpy(&address, found->ai_addr, sizeof(address));
  freeaddrinfo(found);
  address.sin_port = htons(static_cast<uint16_t>(environment.port));
  return address;
}

int OpenSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) sample::Fail(sample::kExitFailure, "cannot make a socket: %s", strerror(errno));
  const timeval limit = {kGiveUpSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  return fd;
}

bool ReadAll(int fd, void* data, size_t size) {
  return recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

bool WriteAll(int fd, const void* data, size_t size) {
  return send(fd, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

int Listen(const Environment& environment) {
  const int fd = OpenSocket();
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = Resolve(environment);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(fd, 1024) != 0)
    FailOn("listen on", environment);
  return fd;
}

// Until every other rank has got the ids. A connection that says nothing sensible is closed.
void Serve(const Environment& environment, const std::vector<ncclUniqueId>& ids) {
  const int listener = Listen(environment);
  std::set<int32_t> served;
  while (served.size() + 1 < static_cast<size_t>(environment.ranks)) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0 && errno == EINTR) continue;
    if (fd < 0) FailOn("wait for the other ranks at", environment);
    int32_t rank = 0;
    const timeval limit = {10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (ReadAll(fd, &rank, sizeof(rank)) && rank > 0 && rank < environment.ranks &&
        WriteAll(fd, ids.data(), ids.size() * sizeof(ids[0])))
      served.insert(rank);
    close(fd);
  }
  close(listener);
}

// Rank 0 may not be listening yet, which nothing tells but a connection that comes about.
int Connect(const Environment& environment) {
  sockaddr_in address = Resolve(environment);
  for (int tries = 0;; ++tries) {
    const int fd = OpenSocket();
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
    if (tries == kGiveUpSeconds * 50 || (errno != ECONNREFUSED && errno != EINTR))
      FailOn("connect to", environment);
    close(fd);
    const timespec rest = {0, 20 * 1000 * 1000};
    nanosleep(&rest, nullptr);
  }
}

}  // namespace

std::vector<ncclUniqueId> ShareIds(const Environment& environment, int count) {
  std::vector<ncclUniqueId> ids(static_cast<size_t>(count));
  if (environment.rank == 0) {
    for (ncclUniqueId& id : ids) NCCL_CHECK(ncclGetUniqueId(&id));
    Serve(environment, ids);
    return ids;
  }
  const int fd = Connect(environment);
  const int32_t rank = environment.rank;
  if (!WriteAll(fd, &rank, sizeof(rank)) || !ReadAll(fd, ids.data(), ids.size() * sizeof(ids[0])))
    FailOn("get the unique ids from", environment);
  close(fd);
  return ids;
}

}  // namespace ranks

// Processes that share device memory: a parent and children that it starts as programs of their own. They take
// turns at changing memory that one of them has made, by legacy handles and by descriptors; what is printed says
// whether each sees what the others have written.
//
// usage: share ROUNDS ORDER [FILE]    with FILE: says "ready" halfway and goes on once the file exists
//        share child SOCKET ORDER     a child, started by the program itself
// ORDER: how one waits for the other's work: "host" (before it is told) or "events" (on the device)
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void* Symbol(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* symbol = library == nullptr ? nullptr : dlsym(library, name);
  if (symbol == nullptr) std::exit(2);
  return symbol;
}

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define CU(name) reinterpret_cast<decltype(&name)>(Symbol(TEXT(name)))
#define CHECK(call)                                                                              \
  do {                                                                                           \
    const int check_error = static_cast<int>(call);                                              \
    if (check_error != 0) {                                                                      \
      std::fprintf(stderr, "%d: %s:%d: %s: %d\n", getpid(), __FILE__, __LINE__, #call, check_error); \
      std::_Exit(3);                                                                             \
    }                                                                                            \
  } while (0)
#define ENSURE(condition) CHECK(!(condition))

using Handle = CUmemGenericAllocationHandle;
constexpr size_t kMiB = 1 << 20;
constexpr size_t kOwn = 4 * kMiB;          // by descriptor
constexpr size_t kPlain = 5 * kMiB + 768;  // by legacy handle: no multiple of a page
constexpr size_t kSmall = 1000;            // one of several in a page

__global__ void Fill(uint32_t* to, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = static_cast<uint32_t>(i) * 2654435761u + seed;
}

__global__ void Mix(uint32_t* cells, size_t count, uint32_t salt) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    cells[i] = cells[i] * 1664525u + salt;
}

cudaStream_t stream;
bool by_events = false;

void UseDevice(const char* order) {
  by_events = std::strcmp(order, "events") == 0;
  CHECK(cudaSetDevice(0));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
}

// What was given to the stream is for others to see: at once, or once they have waited for the event.
void Publish(CUevent event) {
  if (by_events)
    CHECK(CU(cuEventRecord)(event, stream));
  else
    CHECK(cudaStreamSynchronize(stream));
}

void Await(CUevent event) {
  if (by_events) CHECK(CU(cuStreamWaitEvent)(stream, event, 0));
}

CUevent NewSharedEvent() {
  CUevent event = nullptr;
  if (by_events) CHECK(CU(cuEventCreate)(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  return event;
}

uint32_t SumOf(CUdeviceptr at, size_t bytes) {
  std::vector<uint32_t> cells(bytes / 4);
  CHECK(cudaMemcpyAsync(cells.data(), reinterpret_cast<void*>(at), cells.size() * 4, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  uint32_t sum = 0;
  for (size_t i = 0; i < cells.size(); ++i) sum = sum * 31 + cells[i];
  return sum;
}

uint32_t* Cells(CUdeviceptr at) { return reinterpret_cast<uint32_t*>(at); }

// What one process tells another.
struct Letter {
  enum What : int { kMemory, kTurn, kEnd, kAnswer } what = kTurn;
  uint32_t number = 0;
  CUipcMemHandle plain{}, small{};
  CUipcEventHandle event{};
  size_t size = 0;  // of the memory behind the descriptor
};

void Send(int socket, const Letter& letter, int fd = -1) {
  iovec part{const_cast<Letter*>(&letter), sizeof letter};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ENSURE(sendmsg(socket, &message, 0) == sizeof letter);
}

Letter Receive(int socket, int* fd = nullptr) {
  Letter letter;
  iovec part{&letter, sizeof letter};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ENSURE(recvmsg(socket, &message, MSG_WAITALL) == sizeof letter);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && fd != nullptr) std::memcpy(fd, CMSG_DATA(header), sizeof *fd);
  return letter;
}

CUdeviceptr MapWhole(Handle handle, size_t size) {
  CUdeviceptr at = 0;
  CHECK(CU(cuMemAddressReserve)(&at, size, 0, 0, 0));
  CHECK(CU(cuMemMap)(at, size, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(CU(cuMemSetAccess)(at, size, &access, 1));
  return at;
}

void UnmapWhole(CUdeviceptr at, size_t size) {
  CHECK(CU(cuMemUnmap)(at, size));
  CHECK(CU(cuMemAddressFree)(at, size));
}

// --- A child: on each turn changes what it has opened.

CUdeviceptr Import(int fd, size_t size) {
  Handle handle = 0;
  CHECK(CU(cuMemImportFromShareableHandle)(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  const CUdeviceptr at = MapWhole(handle, size);
  CHECK(CU(cuMemRelease)(handle));
  return at;
}

int Child(int socket) {
  int fd = -1;
  const Letter memory = Receive(socket, &fd);
  const CUdeviceptr own = Import(fd, memory.size);
  CUdeviceptr plain = 0, small = 0, again = 0;
  CHECK(CU(cuIpcOpenMemHandle)(&plain, memory.plain, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK(CU(cuIpcOpenMemHandle)(&small, memory.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK(CU(cuIpcOpenMemHandle)(&again, memory.plain, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  ENSURE(again == plain);
  CUdeviceptr base = 0;
  size_t size = 0;
  CHECK(CU(cuMemGetAddressRange)(&base, &size, plain + 100));
  ENSURE(base == plain && size == kPlain);
  CUevent theirs = nullptr;
  const CUevent mine = NewSharedEvent();
  Letter answer;
  answer.what = Letter::kAnswer;
  if (by_events) {
    CHECK(CU(cuIpcOpenEventHandle)(&theirs, memory.event));
    CHECK(CU(cuIpcGetEventHandle)(&answer.event, mine));
    CUipcEventHandle none;
    ENSURE(CU(cuIpcGetEventHandle)(&none, theirs) == CUDA_ERROR_INVALID_VALUE);
  }
  Send(socket, answer);
  for (;;) {
    Letter letter = Receive(socket);
    if (letter.what == Letter::kEnd) break;
    Await(theirs);
    const uint32_t seen = SumOf(own, kOwn) + 3 * SumOf(plain, kPlain) + 5 * SumOf(small, kSmall);
    Mix<<<4, 128, 0, stream>>>(Cells(own), kOwn / 4, letter.number);
    Mix<<<4, 128, 0, stream>>>(Cells(plain), kPlain / 4, letter.number + 1);
    Mix<<<1, 128, 0, stream>>>(Cells(small), kSmall / 4, letter.number + 2);
    Publish(mine);
    answer.number = seen;
    Send(socket, answer);
  }
  CHECK(cudaStreamSynchronize(stream));
  if (by_events) {
    CHECK(CU(cuEventDestroy)(theirs));
    CHECK(CU(cuEventDestroy)(mine));
  }
  CHECK(CU(cuIpcCloseMemHandle)(plain));
  CHECK(CU(cuIpcCloseMemHandle)(plain));
  CHECK(CU(cuIpcCloseMemHandle)(small));
  ENSURE(CU(cuIpcCloseMemHandle)(small) == CUDA_ERROR_INVALID_VALUE);
  UnmapWhole(own, memory.size);
  return 0;
}

// --- The parent.

class Family {
 public:
  explicit Family(const char* order) : order_(order) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK(CU(cuMemCreate)(&handle_, kOwn, &prop, 0));
    own_ = MapWhole(handle_, kOwn);
    CHECK(CU(cuMemAlloc)(&neighbour_, kSmall));
    CHECK(CU(cuMemAlloc)(&small_, kSmall));
    CHECK(CU(cuMemAlloc)(&plain_, kPlain));
    Fill<<<4, 128, 0, stream>>>(Cells(own_), kOwn / 4, 1);
    Fill<<<4, 128, 0, stream>>>(Cells(plain_), kPlain / 4, 2);
    Fill<<<1, 128, 0, stream>>>(Cells(small_), kSmall / 4, 3);
    Fill<<<1, 128, 0, stream>>>(Cells(neighbour_), kSmall / 4, 4);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(CU(cuMemAlloc)(&snapshot_, kOwn + kPlain + kSmall));
    event_ = NewSharedEvent();
    kept_ = Export();
  }
  ~Family() {
    std::printf("neighbour %08x\n", SumOf(neighbour_, kSmall));
    UnmapWhole(own_, kOwn);
    CHECK(CU(cuMemRelease)(handle_));
    for (CUdeviceptr at : {plain_, small_, neighbour_, snapshot_}) CHECK(CU(cuMemFree)(at));
    if (by_events) CHECK(CU(cuEventDestroy)(event_));
  }

  int Export() {
    int fd = -1;
    CHECK(CU(cuMemExportToShareableHandle)(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
  }
  int kept() const { return kept_; }

  // A child with its memory; `fd` is given away.
  int StartChild(int fd) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      execl("/proc/self/exe", "share", "child", std::to_string(ends[1]).c_str(), order_, nullptr);
      std::_Exit(5);
    }
    ENSURE(pid > 0);
    close(ends[1]);
    Letter letter;
    letter.what = Letter::kMemory;
    letter.size = kOwn;
    CHECK(CU(cuIpcGetMemHandle)(&letter.plain, plain_ + 4096));  // any address in it
    CHECK(CU(cuIpcGetMemHandle)(&letter.small, small_));
    CUdeviceptr none = 0;
    ENSURE(CU(cuIpcOpenMemHandle)(&none, letter.plain, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
           CUDA_ERROR_INVALID_CONTEXT);
    if (by_events) CHECK(CU(cuIpcGetEventHandle)(&letter.event, event_));
    Send(ends[0], letter, fd);
    close(fd);
    const Letter answer = Receive(ends[0]);
    CUevent theirs = nullptr;
    if (by_events) CHECK(CU(cuIpcOpenEventHandle)(&theirs, answer.event));
    children_.push_back({pid, ends[0], theirs});
    return static_cast<int>(children_.size()) - 1;
  }

  void Turn(int child, uint32_t number) {
    Mix<<<4, 128, 0, stream>>>(Cells(own_), kOwn / 4, number);
    Mix<<<4, 128, 0, stream>>>(Cells(plain_), kPlain / 4, number + 7);
    // What the child must see, which it may change as soon as it is told.
    Keep(0, own_, kOwn);
    Keep(kOwn, plain_, kPlain);
    Keep(kOwn + kPlain, small_, kSmall);
    Publish(event_);
    Letter letter;
    letter.number = number;
    Send(children_[child].socket, letter);
    const uint32_t seen = Receive(children_[child].socket).number;
    const uint32_t expected = Sum(snapshot_, snapshot_ + kOwn, snapshot_ + kOwn + kPlain);
    Await(children_[child].event);
    std::printf("turn %u of child %d: %08x %s, then %08x\n", number, child, seen,
                seen == expected ? "as written" : "IS NOT WHAT WAS WRITTEN", Sum(own_, plain_, small_));
    std::fflush(stdout);
  }

  void End() {
    Letter letter;
    letter.what = Letter::kEnd;
    for (const ChildProcess& child : children_) {
      Send(child.socket, letter);
      int status = 0;
      ENSURE(waitpid(child.pid, &status, 0) == child.pid);
      std::printf("child ended with %d\n", status);
      close(child.socket);
      if (by_events) CHECK(CU(cuEventDestroy)(child.event));
    }
  }

 private:
  struct ChildProcess {
    pid_t pid = 0;
    int socket = -1;
    CUevent event = nullptr;
  };
  void Keep(size_t offset, CUdeviceptr from, size_t size) {
    CHECK(CU(cuMemcpyDtoDAsync)(snapshot_ + offset, from, size, stream));
  }
  static uint32_t Sum(CUdeviceptr own, CUdeviceptr plain, CUdeviceptr small) {
    return SumOf(own, kOwn) + 3 * SumOf(plain, kPlain) + 5 * SumOf(small, kSmall);
  }

  const char* const order_;

  Handle handle_ = 0;
  CUdeviceptr own_ = 0, plain_ = 0, small_ = 0, neighbour_ = 0, snapshot_ = 0;
  CUevent event_ = nullptr;
  int kept_ = -1;
  std::vector<ChildProcess> children_;
};

// The folder of the file is watched, so that nothing is polled.
void AwaitFile(const std::string& file) {
  const int watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0 || inotify_add_watch(watch, file.substr(0, file.rfind('/')).c_str(), IN_CREATE) < 0) std::_Exit(4);
  while (access(file.c_str(), F_OK) != 0) {
    char events[4096];
    if (read(watch, events, sizeof events) <= 0) std::_Exit(4);
  }
  close(watch);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool child = std::strcmp(argv[1], "child") == 0;
  UseDevice(argv[child ? 3 : 2]);
  if (child) return Child(std::atoi(argv[2]));
  const uint32_t rounds = static_cast<uint32_t>(std::atoi(argv[1]));
  Family family(argv[2]);
  const int first = family.StartChild(family.Export());
  for (uint32_t round = 0; round < rounds; ++round) {
    if (argc > 3 && round == rounds / 2) {
      std::printf("ready\n");
      std::fflush(stdout);
      AwaitFile(argv[3]);
    }
    family.Turn(first, round);
  }
  // Later ones get a new export, and one that was made at first.
  const int second = family.StartChild(family.Export()), third = family.StartChild(family.kept());
  for (uint32_t round = 0; round < 3; ++round)
    for (int child : {first, second, third}) family.Turn(child, 100 + round);
  family.End();
}

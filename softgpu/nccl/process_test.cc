// Communicators across processes and nodes.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "softgpu/driver/memory_testing.h"
#include "softgpu/nccl/nccl_testing.h"
#include "softgpu/nccl/wire.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "4", "--memory", "256MiB"};

namespace nccl {
namespace {

std::string Hex(const ncclUniqueId& id) {
  std::string text;
  for (unsigned char byte : id.internal) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

ncclUniqueId FromHex(const std::string& text) {
  ncclUniqueId id;
  for (size_t i = 0; i < sizeof id.internal; i++)
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

// What a process has to do with a communicator: `count` ranks from `first` on, on devices from 0 or what
// `device` says.
struct Share {
  ncclUniqueId id;
  int ranks = 0;
  int first = 0;
  int count = 0;
  int device = 0;

  std::vector<std::string> Arguments() const {
    return {Hex(id), std::to_string(ranks), std::to_string(first), std::to_string(count),
            std::to_string(device)};
  }
  static Share Of(const std::vector<std::string>& arguments) {
    return {FromHex(arguments[0]), std::stoi(arguments[1]), std::stoi(arguments[2]), std::stoi(arguments[3]),
            std::stoi(arguments[4])};
  }
};

std::string Self() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return std::string(path, length > 0 ? static_cast<size_t>(length) : 0);
}

// With variables on top of the environment.
std::unique_ptr<ChildProgram> StartShare(const std::string& role, const Share& share,
                                         const std::vector<std::string>& environment = {}) {
  std::vector<std::string> command = {Self(), "--child", role};
  const auto arguments = share.Arguments();
  command.insert(command.end(), arguments.begin(), arguments.end());
  return std::make_unique<ChildProgram>(command, -1, environment);
}

// ---- In the children

struct Member {
  int rank;
  int device;
  ncclComm_t comm;
  Stream stream;
};

bool Join(const Share& share, std::vector<Member>* members) {
  for (int i = 0; i < share.count; i++)
    members->push_back({share.first + i, share.device + i, nullptr, Stream(share.device + i)});
  bool good = ncclGroupStart() == ncclSuccess;
  for (Member& member : *members) {
    const OnDevice on(member.device);
    good = good && ncclCommInitRank(&member.comm, share.ranks, share.id, member.rank) == ncclSuccess;
  }
  good = ncclGroupEnd() == ncclSuccess && good;
  if (!good) fprintf(stderr, "init: %s\n", ncclGetLastError(nullptr));
  return good;
}

// Inboxes that this process maps, its own too.
int MappedInboxes() {
  FILE* maps = fopen("/proc/self/maps", "re");
  char line[4096];
  int count = 0;
  while (fgets(line, sizeof line, maps) != nullptr) count += strstr(line, "softgpu-nccl") != nullptr;
  fclose(maps);
  return count;
}

constexpr size_t kCount = 300'001;

// AllReduce, AllGather, AlltoAll and a ring of messages, of which every element is checked.
int Exercise(const std::vector<Member>& members, int ranks) {
  const auto n = static_cast<size_t>(ranks);
  std::vector<Buffer> sums, gathered, sent, received, token, passed;
  for (const Member& member : members) {
    std::vector<int32_t> own(kCount), blocks(n * 100);
    for (size_t i = 0; i < kCount; i++) own[i] = static_cast<int32_t>(i % 1000) * (member.rank + 1);
    for (size_t i = 0; i < blocks.size(); i++) blocks[i] = member.rank * 10'000 + static_cast<int32_t>(i);
    sums.push_back(MakeBuffer(member.device, own));
    gathered.emplace_back(member.device, n * kCount * 4);
    sent.push_back(MakeBuffer(member.device, blocks));
    received.emplace_back(member.device, n * 100 * 4);
    token.push_back(MakeBuffer(member.device, std::vector<int32_t>(kCount, member.rank)));
    passed.emplace_back(member.device, kCount * 4);
  }
  CHILD_CHECK(ncclGroupStart() == ncclSuccess);
  for (size_t i = 0; i < members.size(); i++) {
    const Member& m = members[i];
    cudaStream_t stream = m.stream.get();
    CHILD_CHECK(ncclAllGather(sums[i].at(), gathered[i].at(), kCount, ncclInt32, m.comm, stream) ==
                ncclSuccess);
    CHILD_CHECK(ncclAllReduce(sums[i].at(), sums[i].at(), kCount, ncclInt32, ncclSum, m.comm, stream) ==
                ncclSuccess);
    CHILD_CHECK(ncclAlltoAll(sent[i].at(), received[i].at(), 100, ncclInt32, m.comm, stream) == ncclSuccess);
    CHILD_CHECK(ncclSend(token[i].at(), kCount, ncclInt32, (m.rank + 1) % ranks, m.comm, stream) ==
                ncclSuccess);
    CHILD_CHECK(ncclRecv(passed[i].at(), kCount, ncclInt32, (m.rank + ranks - 1) % ranks, m.comm, stream) ==
                ncclSuccess);
  }
  CHILD_CHECK(ncclGroupEnd() == ncclSuccess);
  for (const Member& member : members) CHILD_CHECK(member.stream.Wait() == CUDA_SUCCESS);
  for (size_t i = 0; i < members.size(); i++) {
    const auto sum = sums[i].As<int32_t>(), all = gathered[i].As<int32_t>(),
               blocks = received[i].As<int32_t>();
    for (size_t at = 0; at < kCount; at++)
      CHILD_CHECK(sum[at] == static_cast<int32_t>(at % 1000) * ranks * (ranks + 1) / 2);
    for (size_t at = 0; at < n * kCount; at++)
      CHILD_CHECK(all[at] ==
                  static_cast<int32_t>(at % kCount % 1000) * static_cast<int32_t>(at / kCount + 1));
    for (size_t at = 0; at < n * 100; at++)
      CHILD_CHECK(blocks[at] == static_cast<int32_t>(at / 100) * 10'000 + members[i].rank * 100 +
                                    static_cast<int32_t>(at % 100));
    CHILD_CHECK(passed[i].As<int32_t>() ==
                std::vector<int32_t>(kCount, (members[i].rank + ranks - 1) % ranks));
  }
  return 0;
}

SOFTGPU_CHILD(exercise) {
  const Share share = Share::Of(arguments);
  std::vector<Member> members;
  CHILD_CHECK(Join(share, &members));
  Say("inboxes " + std::to_string(MappedInboxes()));
  for (int round = 0; round < 2; round++) {
    if (const int failed = Exercise(members, share.ranks); failed != 0) return failed;
  }
  // Halves of the ranks, by another way than the first.
  std::vector<Member> halves;
  for (const Member& member : members) halves.push_back({0, member.device, nullptr, Stream(member.device)});
  CHILD_CHECK(ncclGroupStart() == ncclSuccess);
  for (size_t i = 0; i < members.size(); i++)
    CHILD_CHECK(ncclCommSplit(members[i].comm, members[i].rank % 2, -members[i].rank, &halves[i].comm,
                              nullptr) == ncclSuccess);
  CHILD_CHECK(ncclGroupEnd() == ncclSuccess);
  int half = 0;
  for (Member& member : halves) {
    CHILD_CHECK(ncclCommUserRank(member.comm, &member.rank) == ncclSuccess);
    CHILD_CHECK(ncclCommCount(member.comm, &half) == ncclSuccess);
  }
  // One after the other when both are in this process, in the same order in all.
  for (int color : {0, 1}) {
    std::vector<Member> half_members;
    for (size_t i = 0; i < members.size(); i++) {
      if (members[i].rank % 2 == color)
        half_members.push_back({halves[i].rank, halves[i].device, halves[i].comm, Stream(halves[i].device)});
    }
    if (half_members.empty()) continue;
    if (const int failed = Exercise(half_members, half); failed != 0) return failed;
  }
  for (const Member& member : halves) CHILD_CHECK(ncclCommDestroy(member.comm) == ncclSuccess);
  for (const Member& member : members) CHILD_CHECK(ncclCommDestroy(member.comm) == ncclSuccess);
  CHILD_CHECK(MappedInboxes() == 0);
  Say("done");
  return 0;
}

// Launches an operation that another rank will not answer, and tells what becomes of it.
SOFTGPU_CHILD(lonely) {
  std::vector<Member> members;
  CHILD_CHECK(Join(Share::Of(arguments), &members));
  const Member& member = members[0];
  const Buffer buffer(member.device, 4096);
  CHILD_CHECK(ncclAllReduce(buffer.at(), buffer.at(), 4096, ncclInt8, ncclSum, member.comm,
                            member.stream.get()) == ncclSuccess);
  CHILD_CHECK(member.stream.Query() == CUDA_ERROR_NOT_READY);
  Say("waiting");
  const ncclResult_t state = AwaitState(member.comm, ncclSuccess);
  Say(std::string("state ") + ncclGetErrorString(state) + ": " + ncclGetLastError(member.comm));
  CHILD_CHECK(ncclBcast(buffer.at(), 1, ncclInt8, 0, member.comm, member.stream.get()) == state);
  CHILD_CHECK(member.stream.Query() == CUDA_ERROR_NOT_READY);
  CHILD_CHECK(ncclCommAbort(member.comm) == ncclSuccess);
  CHILD_CHECK(member.stream.Wait() == CUDA_SUCCESS);
  Say("ended");
  return 0;
}

// Is there, and does nothing until it is told to.
SOFTGPU_CHILD(idle) {
  std::vector<Member> members;
  CHILD_CHECK(Join(Share::Of(arguments), &members));
  Say("ready");
  WaitForParent();
  const Member& member = members[0];
  const Buffer buffer(member.device, 4096);
  CHILD_CHECK(ncclAllReduce(buffer.at(), buffer.at(), 4096, ncclInt8, ncclSum, member.comm,
                            member.stream.get()) == ncclSuccess);
  CHILD_CHECK(member.stream.Wait() == CUDA_SUCCESS);
  CHILD_CHECK(ncclCommDestroy(member.comm) == ncclSuccess);
  return 0;
}

SOFTGPU_CHILD(patient) {
  std::vector<Member> members;
  CHILD_CHECK(Join(Share::Of(arguments), &members));
  const Member& member = members[0];
  const Buffer buffer(member.device, 4096);
  CHILD_CHECK(ncclAllReduce(buffer.at(), buffer.at(), 4096, ncclInt8, ncclSum, member.comm,
                            member.stream.get()) == ncclSuccess);
  CHILD_CHECK(member.stream.Query() == CUDA_ERROR_NOT_READY);
  Say("waiting");
  CHILD_CHECK(member.stream.Wait() == CUDA_SUCCESS);
  CHILD_CHECK(ncclCommDestroy(member.comm) == ncclSuccess);
  Say("done");
  return 0;
}

// A rank whose buffer is none, in one process with one that waits for it. With late_launch.cc in between, the
// call goes on only after its kernel has failed.
SOFTGPU_CHILD(bad_buffer) {
  using LateLaunches = void (*)(bool);
  const auto late_launches = reinterpret_cast<LateLaunches>(dlsym(RTLD_DEFAULT, "LateLaunches"));
  std::vector<ncclComm_t> comms(2);
  CHILD_CHECK(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
  const Stream first(0);
  static auto* const second = new Stream(1);  // goes with its context
  const Buffer buffer(0, 64);
  CHILD_CHECK(ncclRecv(buffer.at(), 64, ncclInt8, 1, comms[0], first.get()) == ncclSuccess);
  if (late_launches != nullptr) late_launches(true);
  CHILD_CHECK(ncclSend(reinterpret_cast<void*>(0x1000), 64, ncclInt8, 0, comms[1], second->get()) ==
              ncclSuccess);
  CHILD_CHECK(second->Wait() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHILD_CHECK(AwaitState(comms[1], ncclSuccess) == ncclUnhandledCudaError);
  CHILD_CHECK(AwaitState(comms[0], ncclSuccess) == ncclRemoteError);
  for (ncclComm_t comm : comms) CHILD_CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHILD_CHECK(first.Wait() == CUDA_SUCCESS);
  Say("done");
  return 0;
}

// A graph that outlives the communicator it was captured with.
SOFTGPU_CHILD(stale_graph) {
  ncclComm_t comm = nullptr;
  CHILD_CHECK(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  auto* stream = new Stream(0);
  auto* buffer = new Buffer(0, 64);
  const OnDevice on(0);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CHILD_CHECK(cuStreamBeginCapture(stream->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  CHILD_CHECK(ncclBcast(buffer->at(), 64, ncclInt8, 0, comm, stream->get()) == ncclSuccess);
  CHILD_CHECK(cuStreamEndCapture(stream->stream, &graph) == CUDA_SUCCESS);
  CHILD_CHECK(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS);
  CHILD_CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHILD_CHECK(cuGraphLaunch(exec, stream->stream) == CUDA_SUCCESS);
  CHILD_CHECK(stream->Wait() == CUDA_ERROR_LAUNCH_FAILED);
  Say("done");
  _exit(0);
}

// Ends while one of its kernels waits for ever.
SOFTGPU_CHILD(leaves) {
  std::vector<ncclComm_t> comms(2);
  CHILD_CHECK(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
  static auto* const stream = new Stream(0);
  static auto* const buffer = new Buffer(0, 64);
  CHILD_CHECK(ncclRecv(buffer->at(), 64, ncclInt8, 1, comms[0], stream->get()) == ncclSuccess);
  CHILD_CHECK(stream->Query() == CUDA_ERROR_NOT_READY);
  Say("done");
  return 0;
}

SOFTGPU_CHILD(after_fork) {
  ncclComm_t comm = nullptr;
  CHILD_CHECK(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  const pid_t pid = fork();
  if (pid == 0) {
    int count = 0;
    _exit(ncclCommCount(comm, &count) == ncclInvalidArgument && ncclCommAbort(comm) == ncclInvalidArgument
              ? 0
              : 1);
  }
  int status = -1;
  CHILD_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  CHILD_CHECK(ncclCommDestroy(comm) == ncclSuccess);
  Say("done");
  return 0;
}

// ---- The tests

Share ShareOf(const ncclUniqueId& id, int ranks, int first, int count, int device) {
  return {id, ranks, first, count, device};
}

ncclUniqueId NewId() {
  ncclUniqueId id;
  EXPECT_NCCL_OK(ncclGetUniqueId(&id));
  return id;
}

void ExpectDone(std::vector<std::unique_ptr<ChildProgram>>* children, const std::string& first_line) {
  for (auto& child : *children) EXPECT_EQ(child->ReadLine(), first_line);
  for (auto& child : *children) {
    EXPECT_EQ(child->ReadLine(), "done");
    EXPECT_EQ(child->Wait(), 0);
  }
}

TEST(Processes, OnOneNodeThroughSharedMemory) {
  const ncclUniqueId id = NewId();
  std::vector<std::unique_ptr<ChildProgram>> children;
  for (int rank = 0; rank < 4; rank++)
    children.push_back(StartShare("exercise", ShareOf(id, 4, rank, 1, rank)));
  ExpectDone(&children, "inboxes 4");
}

TEST(Processes, WithSeveralRanksEach) {
  const ncclUniqueId id = NewId();
  std::vector<std::unique_ptr<ChildProgram>> children;
  for (int i = 0; i < 2; i++) children.push_back(StartShare("exercise", ShareOf(id, 4, 2 * i, 2, 2 * i)));
  ExpectDone(&children, "inboxes 6");
}

TEST(Processes, OnTwoNodesOverTcp) {
  TestDaemon other(kDaemonOptions);
  const ncclUniqueId id = NewId();
  std::vector<std::unique_ptr<ChildProgram>> children;
  // The same devices' numbers on both: they are not the same devices.
  for (int rank = 0; rank < 4; rank++) {
    const std::string node = rank < 2 ? getenv("SOFTGPU_SOCKET") : other.socket();
    children.push_back(StartShare("exercise", ShareOf(id, 4, rank, 1, rank % 2), {"SOFTGPU_SOCKET=" + node}));
  }
  // Its own, the neighbour's, and two for TCP.
  ExpectDone(&children, "inboxes 4");
}

TEST(Processes, TheHostIdDecidesWhatIsOneNode) {
  const ncclUniqueId id = NewId();
  std::vector<std::unique_ptr<ChildProgram>> children;
  for (int rank = 0; rank < 3; rank++)
    children.push_back(
        StartShare("exercise", ShareOf(id, 3, rank, 1, 0), {"NCCL_HOSTID=host" + std::to_string(rank)}));
  ExpectDone(&children, "inboxes 3");
}

TEST(Processes, OverTheInterfaceThatTheEnvironmentNames) {
  const std::vector<std::string> environment = {
      "NCCL_SOCKET_IFNAME==lo", "NCCL_COMM_ID=127.0.0.1:" + std::to_string(20000 + getpid() % 10000)};
  ASSERT_EQ(setenv("NCCL_COMM_ID", environment[1].c_str() + strlen("NCCL_COMM_ID="), 1), 0);
  const ncclUniqueId id = NewId();
  ASSERT_EQ(unsetenv("NCCL_COMM_ID"), 0);
  std::vector<std::unique_ptr<ChildProgram>> children;
  for (int rank : {1, 0})
    children.push_back(StartShare("exercise", ShareOf(id, 2, rank, 1, rank), environment));
  ExpectDone(&children, "inboxes 2");
}

TEST(Processes, ACollectiveWaitsForAPartnerInAnotherProcess) {
  const ncclUniqueId id = NewId();
  auto patient = StartShare("patient", ShareOf(id, 2, 0, 1, 0)),
       idle = StartShare("idle", ShareOf(id, 2, 1, 1, 1));
  EXPECT_EQ(patient->ReadLine(), "waiting");
  EXPECT_EQ(idle->ReadLine(), "ready");
  idle->CloseInput();
  EXPECT_EQ(patient->ReadLine(), "done");
  EXPECT_EQ(idle->Wait(), 0);
}

void TestDeadPeer(const std::vector<std::string>& environment) {
  const ncclUniqueId id = NewId();
  auto lonely = StartShare("lonely", ShareOf(id, 2, 0, 1, 0)),
       idle = StartShare("idle", ShareOf(id, 2, 1, 1, 1), environment);
  EXPECT_EQ(idle->ReadLine(), "ready");
  EXPECT_EQ(lonely->ReadLine(), "waiting");
  idle->Kill(SIGKILL);
  const std::string line = lonely->ReadLine();
  EXPECT_EQ(line.rfind("state remote process exited", 0), 0u) << line;
  EXPECT_NE(line.find("rank 1 is gone"), std::string::npos) << line;
  EXPECT_EQ(lonely->ReadLine(), "ended");
  EXPECT_EQ(lonely->Wait(), 0);
}

TEST(Processes, ThePeerDies) { TestDeadPeer({}); }
TEST(Processes, ThePeerOnAnotherNodeDies) { TestDeadPeer({"NCCL_HOSTID=elsewhere"}); }

void ExpectRole(const std::string& role, const std::vector<std::string>& environment = {}) {
  ChildProgram child({Self(), "--child", role}, -1, environment);
  EXPECT_EQ(child.ReadLine(), "done");
  EXPECT_EQ(child.Wait(), 0);
}

TEST(Processes, ABufferThatIsNoneBreaksTheContextOfItsRank) { ExpectRole("bad_buffer"); }
TEST(Processes, AKernelThatFailsAtOnceDoesNotFailTheCall) {
  ExpectRole("bad_buffer", {"LD_PRELOAD=" LATE_LAUNCH});
}
TEST(Processes, AGraphLaunchedAfterTheEndOfItsCommunicatorFails) { ExpectRole("stale_graph"); }
TEST(Processes, ACollectiveThatIsHeldUpDoesNotHoldTheProcess) { ExpectRole("leaves"); }
TEST(Processes, TheChildOfAForkHasNoCommunicators) { ExpectRole("after_fork"); }

// ---- Strangers

stasis::Fd ConnectTo(const ncclUniqueId& id) {
  MeetingId meeting;
  std::memcpy(static_cast<void*>(&meeting), &id, sizeof meeting);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = meeting.address.ip;
  address.sin_port = meeting.address.port;
  stasis::Fd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return connection;
}

TEST(Strangers, DoNotDisturbAMeeting) {
  const ncclUniqueId id = NewId();
  const stasis::Fd silent = ConnectTo(id), loud = ConnectTo(id), uninvited = ConnectTo(id),
                   gone = ConnectTo(id);
  const std::string noise(100'000, 'x');
  EXPECT_GT(send(loud.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  Greeting greeting;
  greeting.secret = 12345;
  greeting.ranks = 2;
  EXPECT_EQ(send(uninvited.get(), &greeting, sizeof greeting, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof greeting));
  // The right secret and a rank that cannot be.
  MeetingId meeting;
  std::memcpy(static_cast<void*>(&meeting), &id, sizeof meeting);
  greeting.secret = meeting.secret;
  greeting.rank = 2;
  EXPECT_EQ(send(gone.get(), &greeting, sizeof greeting, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof greeting));
  char byte;
  EXPECT_LE(recv(gone.get(), &byte, 1, 0), 0);
  EXPECT_LE(recv(loud.get(), &byte, 1, 0), 0);

  std::vector<ncclComm_t> comms(2);
  NCCL_OK(ncclGroupStart());
  for (int rank = 0; rank < 2; rank++) {
    const OnDevice on(rank);
    NCCL_OK(ncclCommInitRank(&comms[rank], 2, id, rank));
  }
  NCCL_OK(ncclGroupEnd());
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
}

TEST(Strangers, AnInterfaceThatIsNotThere) {
  ASSERT_EQ(setenv("NCCL_SOCKET_IFNAME", "nosuch", 1), 0);
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSystemError);
  ASSERT_EQ(setenv("NCCL_COMM_ID", "nonsense", 1), 0);
  EXPECT_EQ(ncclGetUniqueId(&id), ncclInvalidArgument);
  ASSERT_EQ(unsetenv("NCCL_SOCKET_IFNAME"), 0);
  ASSERT_EQ(unsetenv("NCCL_COMM_ID"), 0);
}

}  // namespace
}  // namespace nccl
}  // namespace softgpu

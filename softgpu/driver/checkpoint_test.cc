// cuCheckpointProcess*: states, what is left of the driver in a checkpointed process, and what comes back.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "2", "--memory", "64MiB"};

namespace {

constexpr size_t kPage = 2 << 20;

int64_t Now() { return stasis::Clock::Real().Now().count(); }

CUprocessState StateOf(pid_t pid) {
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  EXPECT_EQ(cuCheckpointProcessGetState(pid, &state), CUDA_SUCCESS);
  return state;
}

CUuuid UuidOf(int device) {
  CUuuid uuid{};
  EXPECT_EQ(cuDeviceGetUuid(&uuid, device), CUDA_SUCCESS);
  return uuid;
}

// Memory of every kind that may be checkpointed, each with contents of its own.
struct Holdings {
  CUdeviceptr small = 0, large = 0, pooled = 0, mapped = 0;
  uint32_t* pinned = nullptr;
  CUstream stream = nullptr;
  CUarray array = nullptr;

  bool Make() {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUDA_ARRAY_DESCRIPTOR desc{64, 4, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    void* host = nullptr;
    bool made = cuMemAlloc(&small, 100) == CUDA_SUCCESS && cuMemAlloc(&large, 8 << 20) == CUDA_SUCCESS &&
                cuStreamCreate(&stream, 0) == CUDA_SUCCESS &&
                cuMemAllocAsync(&pooled, 4096, stream) == CUDA_SUCCESS &&
                cuMemHostAlloc(&host, 4096, 0) == CUDA_SUCCESS &&
                cuArrayCreate(&array, &desc) == CUDA_SUCCESS &&
                cuMemCreate(&handle, kPage, &prop, 0) == CUDA_SUCCESS &&
                cuMemAddressReserve(&mapped, kPage, 0, 0, 0) == CUDA_SUCCESS &&
                cuMemMap(mapped, kPage, 0, handle, 0) == CUDA_SUCCESS &&
                cuMemSetAccess(mapped, kPage, &access, 1) == CUDA_SUCCESS;
    pinned = static_cast<uint32_t*>(host);
    return made && Fill();
  }
  bool Fill() {
    uint32_t row[64];
    std::fill(row, row + 64, 5);
    pinned[0] = 6;
    return cuMemsetD32Async(small, 1, 25, stream) == CUDA_SUCCESS &&
           cuMemsetD32Async(large + (7 << 20), 2, 100, stream) == CUDA_SUCCESS &&
           cuMemsetD32Async(pooled, 3, 1024, stream) == CUDA_SUCCESS &&
           cuMemsetD32Async(mapped, 4, kPage / 4, stream) == CUDA_SUCCESS &&
           cuMemcpyHtoA(array, 0, row, sizeof row) == CUDA_SUCCESS;
  }
  static bool Is(CUdeviceptr address, uint32_t want) {
    uint32_t value = ~want;
    return cuMemcpyDtoH(&value, address, 4) == CUDA_SUCCESS && value == want;
  }
  bool Intact() {
    uint32_t row[64] = {};
    return Is(small + 96, 1) && Is(large, 0) && Is(large + (7 << 20) + 396, 2) && Is(pooled + 4092, 3) &&
           Is(mapped + kPage - 4, 4) && cuMemcpyAtoH(row, array, 0, sizeof row) == CUDA_SUCCESS &&
           row[63] == 5 && pinned[0] == 6;
  }
  // Kernels, streams, host memory and new allocations work as before.
  bool Works() {
    TestKernel store(kTestPtx, "store");
    CUdeviceptr more = 0;
    return store.Launch({large, 9}, stream) == CUDA_SUCCESS && cuStreamSynchronize(stream) == CUDA_SUCCESS &&
           Is(large, 9) && store.Launch({reinterpret_cast<uint64_t>(pinned), 10}) == CUDA_SUCCESS &&
           cuCtxSynchronize() == CUDA_SUCCESS && pinned[0] == 10 &&
           cuMemAlloc(&more, 3 << 20) == CUDA_SUCCESS && cuMemFree(more) == CUDA_SUCCESS &&
           cuMemFreeAsync(pooled, stream) == CUDA_SUCCESS && cuMemFree(small) == CUDA_SUCCESS;
  }
};

// Says "ready", waits, and then makes a call that a locked process must not let through.
SOFTGPU_CHILD(target) {
  UseDevice(0);
  Holdings holdings;
  CHILD_CHECK(holdings.Make());
  // Worker and SM threads exist before the checkpoint.
  TestKernel store(kTestPtx, "store");
  CHILD_CHECK(store.Launch({holdings.small, 1}) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
  Say("ready");
  WaitForParent();
  Say("calling");
  CHILD_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  Say(std::to_string(Now()));
  CHILD_CHECK(holdings.Intact());
  CHILD_CHECK(holdings.Works());
  CUuuid uuid{};
  CHILD_CHECK(cuDeviceGetUuid(&uuid, 0) == CUDA_SUCCESS);
  Say(std::string("uuid ") + std::to_string(static_cast<unsigned char>(uuid.bytes[15])));
  return 0;
}

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override { UseDevice(0); }
  std::unique_ptr<ChildProgram> StartTarget() {
    auto target = StartChild("target");
    EXPECT_EQ(target->ReadLine(), "ready");
    return target;
  }
  // Lets the target end, and expects that everything was there.
  void ExpectIntact(ChildProgram& target) {
    target.CloseInput();
    std::string output, error;
    EXPECT_EQ(target.Finish(&output, &error), 0) << error;
  }
};

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  DIR* dir = opendir(folder.c_str());
  while (const dirent* entry = dir == nullptr ? nullptr : readdir(dir)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  if (dir != nullptr) closedir(dir);
  return names;
}

// What of the driver CRIU would stumble over: sockets, shared mappings, threads beyond the program's and
// ours.
std::vector<std::string> Residue(pid_t pid) {
  std::vector<std::string> found;
  std::string proc = "/proc/" + std::to_string(pid);
  for (const std::string& fd : Names(proc + "/fd")) {
    char target[256] = {};
    if (readlink((proc + "/fd/" + fd).c_str(), target, sizeof target - 1) < 0) continue;
    std::string text = target;
    if (text.starts_with("socket:") || text.find("memfd:") != text.npos) found.push_back("fd " + text);
  }
  std::ifstream maps(proc + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:") != line.npos || line.find("s 0") != line.npos) found.push_back("map " + line);
  }
  for (const std::string& thread : Names(proc + "/task")) {
    std::string name;
    std::getline(std::ifstream(proc + "/task/" + thread + "/comm") >> std::ws, name);
    if (thread != std::to_string(pid) && name.starts_with("softgpu-") && name != "softgpu-restore") {
      found.push_back("thread " + name);
    }
  }
  return found;
}

TEST_F(Checkpoint, LetsGoOfEverythingAndBringsItBack) {
  auto target = StartTarget();
  pid_t pid = target->pid();
  EXPECT_FALSE(Residue(pid).empty()) << "a live context cannot be dumped";
  size_t before = FreeBytes();
  EXPECT_LT(before, 64u << 20);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_RUNNING);
  EXPECT_EQ(cuCheckpointProcessUnlock(pid, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(cuCheckpointProcessCheckpoint(pid, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(cuCheckpointProcessRestore(pid, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  CUcheckpointLockArgs lock{};
  lock.timeoutMs = 20000;
  ASSERT_EQ(cuCheckpointProcessLock(pid, &lock), CUDA_SUCCESS);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_LOCKED);
  EXPECT_EQ(cuCheckpointProcessLock(pid, &lock), CUDA_ERROR_ILLEGAL_STATE);
  // From here on the target's own calls wait.
  target->CloseInput();
  ASSERT_EQ(target->ReadLine(), "calling");
  ASSERT_EQ(cuCheckpointProcessCheckpoint(pid, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(Residue(pid), std::vector<std::string>{});
  EXPECT_EQ(FreeBytes(), 64u << 20);
  int tid = 0;
  EXPECT_EQ(cuCheckpointProcessGetRestoreThreadId(pid, &tid), CUDA_SUCCESS);
  EXPECT_NE(tid, pid);
  EXPECT_EQ(cuCheckpointProcessUnlock(pid, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(cuCheckpointProcessRestore(pid, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_LOCKED);
  EXPECT_EQ(FreeBytes(), before);
  int64_t unlocked = Now();
  ASSERT_EQ(cuCheckpointProcessUnlock(pid, nullptr), CUDA_SUCCESS);
  EXPECT_GT(std::stoll(target->ReadLine()), unlocked) << "the call went through only after the unlock";
  ExpectIntact(*target);
}

TEST_F(Checkpoint, MayBeDoneAgain) {
  auto target = StartTarget();
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(cuCheckpointProcessLock(target->pid(), nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuCheckpointProcessCheckpoint(target->pid(), nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuCheckpointProcessRestore(target->pid(), nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuCheckpointProcessUnlock(target->pid(), nullptr), CUDA_SUCCESS);
  }
  ExpectIntact(*target);
}

TEST_F(Checkpoint, ComesBackOnAnotherDevice) {
  auto target = StartTarget();
  pid_t pid = target->pid();
  ASSERT_EQ(cuCheckpointProcessLock(pid, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCheckpointProcessCheckpoint(pid, nullptr), CUDA_SUCCESS);
  CUcheckpointGpuPair pairs[] = {{UuidOf(1), UuidOf(0)}, {UuidOf(0), UuidOf(1)}};
  CUcheckpointRestoreArgs args{};
  args.gpuPairs = pairs;
  args.gpuPairsCount = 1;
  EXPECT_EQ(cuCheckpointProcessRestore(pid, &args), CUDA_ERROR_INVALID_VALUE)
      << "device 0 is not in the list";
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_CHECKPOINTED);
  args.gpuPairs = pairs + 1;
  EXPECT_EQ(cuCheckpointProcessRestore(pid, &args), CUDA_ERROR_INVALID_VALUE)
      << "device 1 is unused, and one of the process's all the same";
  CUcheckpointGpuPair twice[] = {{UuidOf(1), UuidOf(1)}, {UuidOf(0), UuidOf(1)}};
  args.gpuPairs = twice;
  args.gpuPairsCount = 2;
  EXPECT_EQ(cuCheckpointProcessRestore(pid, &args), CUDA_ERROR_INVALID_VALUE) << "one place for two";
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_CHECKPOINTED);
  args.gpuPairs = pairs;
  ASSERT_EQ(cuCheckpointProcessRestore(pid, &args), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), 64u << 20) << "nothing is left on device 0";
  ASSERT_EQ(cuCheckpointProcessUnlock(pid, nullptr), CUDA_SUCCESS);
  target->CloseInput();
  std::string output, error;
  EXPECT_EQ(target->Finish(&output, &error), 0) << error;
  unsigned last = static_cast<unsigned char>(UuidOf(1).bytes[15]);
  EXPECT_NE(output.find("uuid " + std::to_string(last)), std::string::npos) << output;
}

TEST_F(Checkpoint, RestoreWithoutRoomFailsAndMayBeTriedAgain) {
  auto target = StartTarget();
  pid_t pid = target->pid();
  ASSERT_EQ(cuCheckpointProcessLock(pid, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCheckpointProcessCheckpoint(pid, nullptr), CUDA_SUCCESS);
  CUdeviceptr hog = 0;
  ASSERT_EQ(cuMemAlloc(&hog, 60 << 20), CUDA_SUCCESS);
  EXPECT_EQ(cuCheckpointProcessRestore(pid, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_TRUE(WithinAMinute([] { return FreeBytes() == 4u << 20; })) << "nothing is held in between";
  ASSERT_EQ(cuMemFree(hog), CUDA_SUCCESS);
  ASSERT_EQ(cuCheckpointProcessRestore(pid, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCheckpointProcessUnlock(pid, nullptr), CUDA_SUCCESS);
  ExpectIntact(*target);
}

SOFTGPU_CHILD(spinner) {
  UseDevice(0);
  void* flag = nullptr;
  CHILD_CHECK(cuMemHostAlloc(&flag, 4, 0) == CUDA_SUCCESS);
  memset(flag, 0, 4);
  TestKernel spin(kTestPtx, "spin");
  CHILD_CHECK(spin.Launch({reinterpret_cast<uint64_t>(flag)}) == CUDA_SUCCESS);
  Say("ready");
  WaitForParent();
  __atomic_store_n(static_cast<uint32_t*>(flag), 1, __ATOMIC_SEQ_CST);
  CHILD_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  return 0;
}

TEST_F(Checkpoint, LockGivesUpAtItsTimeoutAndLeavesTheProcessRunning) {
  auto spinner = StartChild("spinner");
  ASSERT_EQ(spinner->ReadLine(), "ready");
  CUcheckpointLockArgs args{};
  args.timeoutMs = 50;
  EXPECT_EQ(cuCheckpointProcessLock(spinner->pid(), &args), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(StateOf(spinner->pid()), CU_PROCESS_STATE_RUNNING);
  ExpectIntact(*spinner);
  args.reserved1[3] = 1;
  EXPECT_EQ(cuCheckpointProcessLock(getpid(), &args), CUDA_ERROR_INVALID_VALUE);
}

SOFTGPU_CHILD(refuser) {
  UseDevice(0);
  CUdeviceptr address = 0;
  if (arguments[0] == "managed") {
    CHILD_CHECK(cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
  } else if (arguments[0] == "ipc") {
    CUipcMemHandle handle;
    CHILD_CHECK(cuMemAlloc(&address, 100) == CUDA_SUCCESS &&
                cuIpcGetMemHandle(&handle, address) == CUDA_SUCCESS);
  } else {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    int fd = -1;
    CHILD_CHECK(cuMemCreate(&handle, kPage, &prop, 0) == CUDA_SUCCESS);
    CHILD_CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
                CUDA_SUCCESS);
  }
  Say("ready");
  WaitForParent();
  CHILD_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  return 0;
}

TEST_F(Checkpoint, RefusesWhatItCannotBringBack) {
  for (const char* what : {"managed", "ipc", "exported"}) {
    auto refuser = StartChild("refuser", {what});
    ASSERT_EQ(refuser->ReadLine(), "ready");
    pid_t pid = refuser->pid();
    ASSERT_EQ(cuCheckpointProcessLock(pid, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCheckpointProcessCheckpoint(pid, nullptr), CUDA_ERROR_NOT_SUPPORTED) << what;
    EXPECT_EQ(StateOf(pid), CU_PROCESS_STATE_LOCKED) << what;
    EXPECT_EQ(cuCheckpointProcessUnlock(pid, nullptr), CUDA_SUCCESS) << what;
    ExpectIntact(*refuser);
  }
}

TEST_F(Checkpoint, AProcessMayCheckpointItself) {
  Holdings holdings;
  ASSERT_TRUE(holdings.Make());
  pid_t self = getpid();
  ASSERT_EQ(cuCheckpointProcessLock(self, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCheckpointProcessCheckpoint(self, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(StateOf(self), CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(cuCheckpointProcessLock(self, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Residue(self), std::vector<std::string>{});
  ASSERT_EQ(cuCheckpointProcessRestore(self, nullptr), CUDA_SUCCESS);
  int64_t unlocked = 0;
  int64_t returned = 0;
  std::thread caller([&] {
    UseDevice(0);
    returned = Now();
  });
  unlocked = Now();
  ASSERT_EQ(cuCheckpointProcessUnlock(self, nullptr), CUDA_SUCCESS);
  caller.join();
  EXPECT_GT(returned, unlocked);
  EXPECT_TRUE(holdings.Intact());
  EXPECT_TRUE(holdings.Works());
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
}

TEST_F(Checkpoint, UnknownProcesses) {
  CUprocessState state;
  EXPECT_EQ(cuCheckpointProcessGetState(1 << 30, &state), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCheckpointProcessGetState(-1, &state), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCheckpointProcessLock(1 << 30, nullptr), CUDA_ERROR_INVALID_VALUE);
  int tid = 0;
  EXPECT_EQ(cuCheckpointProcessGetRestoreThreadId(1, &tid), CUDA_ERROR_INVALID_VALUE);
}

SOFTGPU_CHILD(quitter) {
  UseDevice(0);
  Holdings holdings;
  CHILD_CHECK(holdings.Make());
  CHILD_CHECK(cuCheckpointProcessLock(getpid(), nullptr) == CUDA_SUCCESS);
  CHILD_CHECK(cuCheckpointProcessCheckpoint(getpid(), nullptr) == CUDA_SUCCESS);
  return 0;
}

TEST_F(Checkpoint, ACheckpointedProcessMayEnd) {
  auto quitter = StartChild("quitter");
  ExpectIntact(*quitter);
}

}  // namespace
}  // namespace softgpu

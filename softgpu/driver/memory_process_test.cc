// Memory among processes: capacity, exported handles, IPC handles, fork.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "2", "--memory", "64MiB"};

namespace {

constexpr size_t kPage = 2 << 20;

CUmemAllocationProp Exportable() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

CUdeviceptr MapWhole(CUmemGenericAllocationHandle handle) {
  CUdeviceptr base = 0;
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(cuMemAddressReserve(&base, kPage, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(base, kPage, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemSetAccess(base, kPage, &access, 1), CUDA_SUCCESS);
  return base;
}

uint32_t Peek(CUdeviceptr address) {
  uint32_t value = 0;
  EXPECT_EQ(cuMemcpyDtoH(&value, address, 4), CUDA_SUCCESS);
  return value;
}

template <typename Handle>
std::string Hex(const Handle& handle) {
  std::string text;
  char digits[3];
  for (char byte : handle.reserved) {
    snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

template <typename Handle = CUipcMemHandle>
Handle FromHex(const std::string& text) {
  Handle handle{};
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < text.size(); ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return handle;
}

SOFTGPU_CHILD(hog) {
  UseDevice(0);
  CUdeviceptr address = 0;
  CHILD_CHECK(cuMemAlloc(&address, 40 << 20) == CUDA_SUCCESS);
  Say("has");
  WaitForParent();
  return 0;
}

TEST(Processes, CapacityIsOneForAllAndAKilledProcessGivesItsMemoryBack) {
  UseDevice(0);
  ASSERT_EQ(FreeBytes(), 64u << 20);
  auto hog = StartChild("hog");
  ASSERT_EQ(hog->ReadLine(), "has");
  EXPECT_EQ(FreeBytes(), 24u << 20);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 30 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  hog->Kill(SIGKILL);
  EXPECT_TRUE(WithinAMinute([] { return FreeBytes() == 64u << 20; }));
  EXPECT_EQ(cuMemAlloc(&address, 30 << 20), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
}

// Gets exported memory as its descriptor 3, reads 17 and leaves 18.
SOFTGPU_CHILD(importer) {
  UseDevice(0);
  CUmemGenericAllocationHandle handle = 0;
  void* os_handle = reinterpret_cast<void*>(intptr_t{3});
  CHILD_CHECK(cuMemImportFromShareableHandle(&handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
              CUDA_SUCCESS);
  close(3);
  CUmemAllocationProp prop{};
  CHILD_CHECK(cuMemGetAllocationPropertiesFromHandle(&prop, handle) == CUDA_SUCCESS);
  CHILD_CHECK(prop.location.id == 0 && prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  CUdeviceptr base = MapWhole(handle);
  CHILD_CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  CHILD_CHECK(Peek(base) == 17);
  TestKernel store(kTestPtx, "store");
  CHILD_CHECK(store.Launch({base, 18}) == CUDA_SUCCESS);
  CHILD_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  return 0;
}

TEST(Processes, ExportedMemoryIsOneMemory) {
  UseDevice(0);
  CUmemAllocationProp prop = Exportable();
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_SUCCESS);
  CUdeviceptr base = MapWhole(handle);
  ASSERT_EQ(cuMemsetD32(base, 17, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  int fd = -1;
  ASSERT_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  auto child = StartChild("importer", {}, fd);
  std::string output, error;
  EXPECT_EQ(child->Finish(&output, &error), 0) << error;
  EXPECT_EQ(Peek(base), 18u);
  EXPECT_EQ(cuMemUnmap(base, kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, kPage), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), 62u << 20) << "the descriptor keeps it";
  close(fd);
  EXPECT_TRUE(WithinAMinute([] { return FreeBytes() == 64u << 20; }));
}

TEST(Processes, OnlyExportableMemoryIsExportedAndOnlyOurDescriptorsAreImported) {
  UseDevice(0);
  CUmemAllocationProp prop = Exportable();
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CUmemGenericAllocationHandle handle = 0, imported = 0;
  ASSERT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_SUCCESS);
  int fd = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  int foreign = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{foreign}),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_INVALID_VALUE);
  close(foreign);
  EXPECT_EQ(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(intptr_t{-1}),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_ERROR_INVALID_VALUE);
}

SOFTGPU_CHILD(exporter) {
  UseDevice(0);
  CUmemAllocationProp prop = Exportable();
  CUmemGenericAllocationHandle handle = 0;
  CHILD_CHECK(cuMemCreate(&handle, kPage, &prop, 0) == CUDA_SUCCESS);
  CUdeviceptr base = MapWhole(handle);
  CHILD_CHECK(cuMemsetD32(base, 4711, 1) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
  int fd = -1;
  CHILD_CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
              CUDA_SUCCESS);
  Say(std::to_string(fd));
  WaitForParent();
  return 0;
}

TEST(Processes, ExportedMemoryOutlivesItsKilledExporter) {
  UseDevice(0);
  auto child = StartChild("exporter");
  std::string path = "/proc/" + std::to_string(child->pid()) + "/fd/" + child->ReadLine();
  int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  child->Kill(SIGKILL);
  EXPECT_EQ(child->Wait(), 128 + SIGKILL);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(intptr_t{fd}),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            CUDA_SUCCESS);
  close(fd);
  CUdeviceptr base = MapWhole(handle);
  EXPECT_EQ(Peek(base), 4711u);
  EXPECT_EQ(cuMemUnmap(base, kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(base, kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_TRUE(WithinAMinute([] { return FreeBytes() == 64u << 20; }));
}

// Says the handles of a small and of a large allocation that hold 5 and 6; frees them when told to.
SOFTGPU_CHILD(ipc_exporter) {
  UseDevice(0);
  CUdeviceptr small = 0, large = 0, filler = 0;
  CHILD_CHECK(cuMemAlloc(&filler, 1000) == CUDA_SUCCESS);
  CHILD_CHECK(cuMemAlloc(&small, 1000) == CUDA_SUCCESS && cuMemAlloc(&large, 3 << 20) == CUDA_SUCCESS);
  CHILD_CHECK(cuMemsetD32(small, 5, 1) == CUDA_SUCCESS && cuMemsetD32(large, 6, 1) == CUDA_SUCCESS);
  CHILD_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CUipcMemHandle handle{};
  CUdeviceptr mine = 0;
  CHILD_CHECK(cuIpcGetMemHandle(&handle, small) == CUDA_SUCCESS);
  CHILD_CHECK(cuIpcOpenMemHandle(&mine, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
              CUDA_ERROR_INVALID_CONTEXT);
  Say(Hex(handle));
  CHILD_CHECK(cuIpcGetMemHandle(&handle, large) == CUDA_SUCCESS);
  Say(Hex(handle));
  WaitForParent();
  CHILD_CHECK(cuMemFree(small) == CUDA_SUCCESS && cuMemFree(large) == CUDA_SUCCESS);
  Say("freed");
  pause();
  return 0;
}

TEST(Processes, IpcHandlesOpenTheSameMemory) {
  UseDevice(0);
  auto child = StartChild("ipc_exporter");
  CUipcMemHandle small = FromHex(child->ReadLine()), large = FromHex(child->ReadLine());
  CUdeviceptr a = 0, again = 0, b = 0;
  ASSERT_EQ(cuIpcOpenMemHandle(&a, small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcOpenMemHandle(&b, large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcOpenMemHandle(&again, small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
  EXPECT_EQ(again, a);
  EXPECT_EQ(Peek(a), 5u);
  EXPECT_EQ(Peek(b), 6u);
  size_t size = 0;
  EXPECT_EQ(cuMemGetAddressRange(nullptr, &size, b), CUDA_SUCCESS);
  EXPECT_EQ(size, 3u << 20);
  EXPECT_EQ(cuMemFree(a), CUDA_ERROR_INVALID_VALUE) << "only closed";
  EXPECT_EQ(cuIpcCloseMemHandle(a), CUDA_SUCCESS);
  EXPECT_EQ(Peek(a), 5u) << "opened twice";
  EXPECT_EQ(cuIpcCloseMemHandle(a), CUDA_SUCCESS);
  EXPECT_EQ(cuIpcCloseMemHandle(a), CUDA_ERROR_INVALID_VALUE);
  child->CloseInput();
  ASSERT_EQ(child->ReadLine(), "freed");
  EXPECT_EQ(Peek(b), 6u) << "opened memory lives on";
  EXPECT_EQ(cuIpcOpenMemHandle(&a, small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_MAP_FAILED);
  child->Kill(SIGKILL);
  child->Wait();
  EXPECT_EQ(cuIpcOpenMemHandle(&a, large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS)
      << "still open here, so only counted";
  EXPECT_EQ(cuIpcCloseMemHandle(b), CUDA_SUCCESS);
  EXPECT_EQ(cuIpcCloseMemHandle(b), CUDA_SUCCESS);
  EXPECT_EQ(cuIpcOpenMemHandle(&a, large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_MAP_FAILED);
  EXPECT_TRUE(WithinAMinute([] { return FreeBytes() == 64u << 20; }));
  CUipcMemHandle garbage{};
  EXPECT_EQ(cuIpcOpenMemHandle(&a, garbage, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcOpenMemHandle(&a, small, 0), CUDA_ERROR_INVALID_VALUE);
}

SOFTGPU_CHILD(event_exporter) {
  UseDevice(0);
  CUevent event = nullptr, plain = nullptr;
  CUstream stream = nullptr, writer = nullptr;
  CUdeviceptr word = 0;
  CUipcEventHandle handle;
  constexpr unsigned kShared = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  CHILD_CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS) == CUDA_ERROR_INVALID_VALUE);
  CHILD_CHECK(cuEventCreate(&event, kShared) == CUDA_SUCCESS);
  CHILD_CHECK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHILD_CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHILD_CHECK(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHILD_CHECK(cuMemAlloc(&word, 4) == CUDA_SUCCESS && cuMemsetD32(word, 0, 1) == CUDA_SUCCESS);
  // The streams that follow do not wait for the default one.
  CHILD_CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHILD_CHECK(cuIpcGetEventHandle(&handle, plain) == CUDA_ERROR_INVALID_VALUE);
  CHILD_CHECK(cuIpcGetEventHandle(&handle, event) == CUDA_SUCCESS);
  CUevent mine = nullptr;
  CHILD_CHECK(cuIpcOpenEventHandle(&mine, handle) == CUDA_ERROR_INVALID_CONTEXT);
  CHILD_CHECK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
  CHILD_CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS);
  Say(Hex(handle));
  WaitForParent();
  CHILD_CHECK(cuStreamWriteValue32(writer, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS);
  CHILD_CHECK(cuEventSynchronize(event) == CUDA_SUCCESS);
  Say("reached");
  pause();
  return 0;
}

TEST(Processes, EventsAreSharedByHandle) {
  UseDevice(0);
  auto child = StartChild("event_exporter");
  const auto handle = FromHex<CUipcEventHandle>(child->ReadLine());
  CUevent event = nullptr, own = nullptr;
  CUstream stream = nullptr;
  ASSERT_EQ(cuIpcOpenEventHandle(&event, handle), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&own, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUipcEventHandle again;
  EXPECT_EQ(cuIpcGetEventHandle(&again, event), CUDA_ERROR_INVALID_VALUE) << "only its maker gives it away";
  float time = 0;
  EXPECT_EQ(cuEventElapsedTime(&time, event, event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(own, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(own), CUDA_ERROR_NOT_READY) << "behind the other process's work";
  child->CloseInput();
  EXPECT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(cuEventSynchronize(own), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  ASSERT_EQ(child->ReadLine(), "reached");
  EXPECT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS) << "whoever knows it may record it";
  EXPECT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
  child->Kill(SIGKILL);
  child->Wait();
  CUevent none = nullptr;
  EXPECT_EQ(cuIpcOpenEventHandle(&none, handle), CUDA_ERROR_MAP_FAILED);
  EXPECT_EQ(cuIpcOpenEventHandle(&none, CUipcEventHandle{}), CUDA_ERROR_INVALID_VALUE);
  for (CUevent one : {event, own}) EXPECT_EQ(cuEventDestroy(one), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST(Processes, AForkedChildHasNoDeviceMemory) {
  UseDevice(0);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc(&address, 4 << 20), CUDA_SUCCESS);
  pid_t child = fork();
  if (child == 0) {
    unsigned char resident = 0;
    bool gone = mincore(reinterpret_cast<void*>(address), 4096, &resident) != 0;
    bool refused = cuMemFree(address) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(gone && refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
}

}  // namespace
}  // namespace softgpu

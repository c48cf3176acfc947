// The surface of the library: exports, cuGetProcAddress, error texts, devices.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "2", "--memory", "256MiB", "--topology", "0-1"};

namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

// The names that a shared object defines and exports, from its own tables.
std::vector<std::string> Exports(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  std::vector<std::string> names;
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[i].sh_offset);
    const char* strings = bytes.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
      if (symbols[s].st_shndx != SHN_UNDEF) names.emplace_back(strings + symbols[s].st_name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(AbiTest, ExportsExactlyTheDriverInterface) {
  std::ifstream list(CUDA_EXPORTS_PATH);
  std::vector<std::string> expected;
  for (std::string name; std::getline(list, name);) expected.push_back(name);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(expected.size(), 637u);
  EXPECT_EQ(Exports(LIBCUDA_PATH), expected);
}

void* Find(const char* name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
  void* function = nullptr;
  EXPECT_OK(cuGetProcAddress(name, &function, version, flags, status));
  return function;
}

TEST(AbiTest, ProcAddressPicksTheVersionAskedFor) {
  void* library = dlopen(nullptr, RTLD_LAZY);
  ASSERT_NE(library, nullptr);
  CUdriverProcAddressQueryResult status;
  void* newest = Find("cuCtxCreate", 13000, 0, &status);
  void* v3 = Find("cuCtxCreate", 12000, 0, &status);
  void* v2 = Find("cuCtxCreate", 11000, 0, &status);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_NE(newest, v3);
  EXPECT_NE(v3, v2);
  EXPECT_EQ(Find("cuInit", 2000, 0, &status), reinterpret_cast<void*>(&cuInit));
  EXPECT_EQ(newest, reinterpret_cast<void*>(&cuCtxCreate_v4));
  EXPECT_EQ(Find("cuStreamGetCaptureInfo", 9000, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(Find("cuNothing", 13000, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(Find("", 0, 0, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(Find("cuMemAlloc_v2", 13000, 0, &status), nullptr);
  void* plain = Find("cuStreamSynchronize", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
  void* own = Find("cuStreamSynchronize", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status);
  EXPECT_EQ(plain, reinterpret_cast<void*>(&cuStreamSynchronize));
  EXPECT_NE(own, plain);
  EXPECT_EQ(Find("cuInit", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status),
            reinterpret_cast<void*>(&cuInit));
  void* function;
  EXPECT_EQ(cuGetProcAddress("cuInit", &function, 13010, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress("cuInit", &function, 13000, 4, &status), CUDA_ERROR_INVALID_VALUE);
  dlclose(library);
}

TEST(AbiTest, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  EXPECT_OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST(AbiTest, CallsBeforeInitFail) {
  // This test runs alone in a child, where nobody has called cuInit.
  std::unique_ptr<ChildProgram> child = StartChild("uninitialised");
  EXPECT_EQ(child->Wait(), 0);
}
SOFTGPU_CHILD(uninitialised) {
  int count, version = 0;
  CHILD_CHECK(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
  CHILD_CHECK(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED);
  CHILD_CHECK(cuDriverGetVersion(&version) == CUDA_SUCCESS && version == 13000);
  CHILD_CHECK(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
  return 0;
}

TEST(AbiTest, Devices) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  int count = 0, value = 0;
  EXPECT_OK(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 2);
  CUdevice device;
  EXPECT_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_OK(cuDeviceGet(&device, 1));
  EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  EXPECT_EQ(value, 12);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, device), CUDA_ERROR_INVALID_VALUE);
  size_t bytes = 0;
  EXPECT_OK(cuDeviceTotalMem(&bytes, device));
  EXPECT_EQ(bytes, 256u << 20);
  char pci[16], name[4];
  EXPECT_OK(cuDeviceGetPCIBusId(pci, sizeof pci, device));
  CUdevice found = -1;
  EXPECT_OK(cuDeviceGetByPCIBusId(&found, pci));
  EXPECT_EQ(found, device);
  EXPECT_OK(cuDeviceGetName(name, sizeof name, device));
  EXPECT_EQ(std::strlen(name), 3u);
  EXPECT_OK(cuDeviceCanAccessPeer(&value, 0, 1));
  EXPECT_EQ(value, 1);
  CUuuid first, second;
  EXPECT_OK(cuDeviceGetUuid(&first, 0));
  EXPECT_OK(cuDeviceGetUuid(&second, 1));
  EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
}

TEST(AbiTest, UnofferedFunctionsSaySo) {
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  CUexternalMemory memory;
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc{};
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuImportExternalMemory(&memory, &desc), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuImportExternalMemory(&memory, &desc), CUDA_ERROR_NOT_SUPPORTED);
  std::string log = testing::internal::GetCapturedStderr();
  size_t at = log.find("cuImportExternalMemory");
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(log.find("cuImportExternalMemory", at + 1), std::string::npos);
}

}  // namespace
}  // namespace softgpu

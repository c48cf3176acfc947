// The addresses of wrappers, against a driver that is only opened, never initialised.
#include "intercept/proc_address.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "intercept/gate.h"
#include "intercept/taint.h"

namespace stasis {
namespace {

class ProcAddress : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(DriverIsOpen() || OpenDriver(LIBCUDA_PATH).ok()); }
};

cuuint64_t FlagsOf(const FunctionInfo& info) {
  return info.variant[0] == '\0' ? CU_GET_PROC_ADDRESS_LEGACY_STREAM
                                 : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
}

TEST_F(ProcAddress, EveryVariantOfTheDriverGetsItsOwnWrapper) {
  std::set<void*> seen;
  size_t found = 0;
  for (size_t i = 0; i < kFnCount; ++i) {
    const FunctionInfo& info = InfoOf(static_cast<Fn>(i));
    void* real = nullptr;
    CUdriverProcAddressQueryResult status;
    ASSERT_EQ(Driver().cuGetProcAddress_v2(info.base, &real, info.version, FlagsOf(info), &status),
              CUDA_SUCCESS);
    if (real == nullptr) continue;
    const bool per_thread = info.variant[0] != '\0';
    void* wrapper = WrapperFor(real, info.base, info.version, per_thread);
    ASSERT_NE(wrapper, nullptr) << info.name;
    // Whichever function the driver means, the wrapper must be of the same.
    Fn function;
    bool matched = false;
    for (size_t k = 0; k < kFnCount; ++k) {
      function = static_cast<Fn>(k);
      if (WrapperOf(function) == wrapper && DriverAddress(function) == real) matched = true;
    }
    EXPECT_TRUE(matched) << info.name;
    seen.insert(wrapper);
    ++found;
  }
  EXPECT_GT(found, 600u);
  EXPECT_GT(seen.size(), 600u);
}

TEST_F(ProcAddress, AnAddressWithoutAnExportedNameIsFoundByNameAndVersion) {
  int elsewhere = 0;
  EXPECT_EQ(WrapperFor(&elsewhere, "cuMemAlloc", 13000, false), WrapperOf(Fn::cuMemAlloc_v2));
  EXPECT_EQ(WrapperFor(&elsewhere, "cuMemAlloc", 2000, false), WrapperOf(Fn::cuMemAlloc));
  EXPECT_EQ(WrapperFor(&elsewhere, "cuStreamQuery", 13000, true), WrapperOf(Fn::cuStreamQuery_ptsz));
  EXPECT_EQ(WrapperFor(&elsewhere, "cuStreamQuery", 13000, false), WrapperOf(Fn::cuStreamQuery));
  EXPECT_EQ(WrapperFor(&elsewhere, "cuMemAlloc", 13000, true), WrapperOf(Fn::cuMemAlloc_v2));
  EXPECT_EQ(WrapperFor(&elsewhere, "cuGetProcAddress", 13000, false), WrapperOf(Fn::cuGetProcAddress_v2));
  EXPECT_EQ(WrapperFor(&elsewhere, "cuFromTheFuture", 13000, false), nullptr);
}

TEST_F(ProcAddress, ProgramsAreAnsweredWithWrappers) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status;
  ASSERT_EQ(::cuGetProcAddress_v2("cuStreamSynchronize", &function, 12000,
                                  CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(function, WrapperOf(Fn::cuStreamSynchronize_ptsz));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  ASSERT_EQ(::cuGetProcAddress("cuCtxCreate", &function, 3020, CU_GET_PROC_ADDRESS_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(function, WrapperOf(Fn::cuCtxCreate_v2));
  EXPECT_EQ(::cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

TEST(Taints, AreNotedOnceAndSayWhichStrategyIsOut) {
  TaintOnce(Fn::cuGetExportTable, false);
  TaintOnce(Fn::cuGetExportTable, false);
  EXPECT_TRUE(CheckTaints(TaskStrategy::kDriverCheckpoint).ok());
  const Status refused = CheckTaints(TaskStrategy::kReconstruct);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_NE(std::string(refused.message()).find("cuGetExportTable"), std::string::npos);
  Taint("cuSomething", false);
  Taint("cuSomething", true);
  EXPECT_EQ(Taints().size(), 2u);
  EXPECT_FALSE(CheckTaints(TaskStrategy::kDriverCheckpoint).ok());
}

}  // namespace
}  // namespace stasis

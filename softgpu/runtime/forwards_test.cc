// Every row of the table of forwards ends in its driver function. Built twice, as the forwards are: the
// second time for the names of the per-thread default stream.
#include <cuda.h>
#include <dlfcn.h>

#include "softgpu/runtime/runtime_fixture.h"

#define NAME_(x) #x
#define NAME(x) NAME_(x)

namespace softgpu::runtime::testing {
namespace {

struct Forward {
  const char* runtime;
  const char* driver;
};

constexpr Forward kForwards[] = {
#define FORWARD(api, driver, needs) {NAME(api), NAME(driver)},
#define FORWARD_AGAIN FORWARD
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "forwards_per_thread.inc"
#else
#include "forwards.inc"
#endif
};

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
class PerThreadForwardsTest : public RuntimeTest {};
#define FORWARDS_TEST PerThreadForwardsTest
#else
class ForwardsTest : public RuntimeTest {};
#define FORWARDS_TEST ForwardsTest
#endif

// Each driver function is made to fail before it looks at an argument, so words of zero will do.
TEST_F(FORWARDS_TEST, ReachTheirDriverFunctions) {
  using Function = int (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
  for (const Forward& forward : kForwards) {
    const auto call = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, forward.runtime));
    ASSERT_NE(call, nullptr) << forward.runtime;
    FakeClearLog();
    Fail(forward.driver, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(call(0, 0, 0, 0, 0, 0, 0, 0), cudaErrorNotPermitted) << forward.runtime;
    EXPECT_EQ(Calls(forward.driver), 1) << forward.runtime << " -> " << forward.driver;
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotPermitted) << forward.runtime;
    FakeFail(forward.driver, CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace softgpu::runtime::testing

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

// All functions are called through one type, which is what the machine's calling convention allows and C++
// does not.
#ifdef __clang__
#define CALLS_THROUGH_ANOTHER_TYPE __attribute__((no_sanitize("function")))
#else
#define CALLS_THROUGH_ANOTHER_TYPE
#endif
using Function = int (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
CALLS_THROUGH_ANOTHER_TYPE int CallWithZeros(void* function) {
  return reinterpret_cast<Function>(function)(0, 0, 0, 0, 0, 0, 0, 0);
}

// Each driver function is made to fail before it looks at an argument, so words of zero will do.
TEST_F(FORWARDS_TEST, ReachTheirDriverFunctions) {
  for (const Forward& forward : kForwards) {
    void* const call = dlsym(RTLD_DEFAULT, forward.runtime);
    ASSERT_NE(call, nullptr) << forward.runtime;
    FakeClearLog();
    Fail(forward.driver, CUDA_ERROR_NOT_PERMITTED);
    EXPECT_EQ(CallWithZeros(call), cudaErrorNotPermitted) << forward.runtime;
    EXPECT_EQ(Calls(forward.driver), 1) << forward.runtime << " -> " << forward.driver;
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotPermitted) << forward.runtime;
    FakeFail(forward.driver, CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace softgpu::runtime::testing

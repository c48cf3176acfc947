// For tests: a node of software devices, and the driver on it in this process, as a user's program has it.
#ifndef VMM_TESTING_H_
#define VMM_TESTING_H_

#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/task_protocol.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {

// One softgpud on a socket of its own, ended with the object; the driver of this process finds it.
class TestNode {
 public:
  explicit TestNode(const std::vector<std::string>& options);
  ~TestNode();
  TestNode(const TestNode&) = delete;
  // Injects a fault into device 0, as softgpu-smi does: "oom-after=3", "none".
  static void Fault(const std::string& fault);

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

// Opens the driver, initialises it and makes the primary context of `device` current.
CUcontext OpenOn(int device);
// The primary contexts are reset and the driver is closed.
void CloseAll(int devices);

// What a ghost does: takes a descriptor of every extent.
struct Exported {
  std::vector<TaskExtent> extents;
  std::vector<Fd> fds;
};
Exported ExportAll();
void ImportAll(const Exported& exported);

// While it lives, the driver's plain copies between host and device are looked at. One at a time; any thread
// may copy.
class CopyWatch {
 public:
  CopyWatch();
  ~CopyWatch();
  CopyWatch(const CopyWatch&) = delete;
  struct Seen {
    int copies = 0;
    int pageable = 0;  // to or from host memory that is not pinned
  };
  // Since the last call.
  Seen Take();
};

std::vector<unsigned char> ReadDevice(CUdeviceptr address, size_t size);
void FillDevice(CUdeviceptr address, size_t size, unsigned char value);
size_t DriverFreeBytes();
size_t OpenDescriptors();

}  // namespace stasis::vmm

#define EXPECT_CUDA_OK(expression) EXPECT_EQ(expression, CUDA_SUCCESS)
#define ASSERT_CUDA_OK(expression) ASSERT_EQ(expression, CUDA_SUCCESS)
#define EXPECT_STATUS_OK(expression)                               \
  do {                                                             \
    const ::stasis::Status status_of_test = (expression);          \
    EXPECT_TRUE(status_of_test.ok()) << status_of_test.ToString(); \
  } while (0)

#endif  // VMM_TESTING_H_

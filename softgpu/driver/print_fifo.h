// PrintFifo: the output of device printf of one context, until a synchronising call shows it.
//
// Bounded as CU_LIMIT_PRINTF_FIFO_SIZE: when more comes, the oldest output is lost (CUDA C++ Programming
// Guide, "Formatted Output"). Thread-safe.
#ifndef SOFTGPU_DRIVER_PRINT_FIFO_H_
#define SOFTGPU_DRIVER_PRINT_FIFO_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace softgpu {

class PrintFifo {
 public:
  explicit PrintFifo(size_t capacity) : capacity_(capacity) {}

  // The output of one launch; launches are shown in the order in which they were opened.
  class Buffer {
   private:
    friend class PrintFifo;
    std::deque<std::string> texts;
    bool closed = false;
  };
  std::shared_ptr<Buffer> Open();
  void Append(Buffer& buffer, std::string_view text);
  // No more comes for the buffer.
  void Close(Buffer& buffer);

  // Writes all there is to standard output.
  void Show();
  void SetCapacity(size_t capacity);

 private:
  void DropOldestLocked();

  std::mutex show_mutex_;  // orders concurrent Show(); taken before mutex_
  std::mutex mutex_;
  size_t capacity_;
  size_t size_ = 0;
  std::list<std::shared_ptr<Buffer>> buffers_;
  std::atomic<bool> any_{false};
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_PRINT_FIFO_H_

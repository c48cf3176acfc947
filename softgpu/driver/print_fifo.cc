#include "softgpu/driver/print_fifo.h"

#include <cstdio>
#include <utility>

namespace softgpu {

std::shared_ptr<PrintFifo::Buffer> PrintFifo::Open() {
  auto buffer = std::make_shared<Buffer>();
  std::lock_guard lock(mutex_);
  buffers_.push_back(buffer);
  return buffer;
}

void PrintFifo::Append(Buffer& buffer, std::string_view text) {
  std::lock_guard lock(mutex_);
  buffer.texts.emplace_back(text);
  size_ += text.size();
  while (size_ > capacity_) DropOldestLocked();
  any_.store(true, std::memory_order_release);
}

void PrintFifo::DropOldestLocked() {
  for (const auto& buffer : buffers_) {
    if (buffer->texts.empty()) continue;
    size_ -= buffer->texts.front().size();
    buffer->texts.pop_front();
    return;
  }
}

void PrintFifo::Close(Buffer& buffer) {
  std::lock_guard lock(mutex_);
  buffer.closed = true;
  if (!buffer.texts.empty()) return;
  buffers_.remove_if([&](const auto& entry) { return entry.get() == &buffer; });
}

void PrintFifo::Show() {
  if (!any_.load(std::memory_order_acquire)) return;
  std::lock_guard show(show_mutex_);
  std::deque<std::string> texts;
  {
    std::lock_guard lock(mutex_);
    for (auto it = buffers_.begin(); it != buffers_.end();) {
      for (std::string& text : (*it)->texts) texts.push_back(std::move(text));
      (*it)->texts.clear();
      it = (*it)->closed ? buffers_.erase(it) : std::next(it);
    }
    size_ = 0;
    any_.store(false, std::memory_order_relaxed);
  }
  for (const std::string& text : texts) std::fwrite(text.data(), 1, text.size(), stdout);
}

void PrintFifo::SetCapacity(size_t capacity) {
  std::lock_guard lock(mutex_);
  capacity_ = capacity;
  while (size_ > capacity_) DropOldestLocked();
}

}  // namespace softgpu

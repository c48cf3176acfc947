// Fd: sole owner of a file descriptor. Move-only; closes at most once. Not thread-safe, like any value.
#ifndef BASE_FD_H_
#define BASE_FD_H_

#include <utility>

namespace stasis {

class Fd {
 public:
  Fd() = default;
  // Takes ownership; any negative value means "none".
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives the descriptor up without closing it.
  int Release() { return std::exchange(fd_, -1); }
  // Closes what is held and takes `fd` instead. errno is kept.
  void Reset(int fd = -1);
  // A new descriptor for the same open file, close-on-exec; invalid with errno set on failure.
  Fd Duplicate() const;

 private:
  int fd_ = -1;
};

}  // namespace stasis

#endif  // BASE_FD_H_

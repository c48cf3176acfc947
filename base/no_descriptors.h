// For tests of what a process does that has used up its descriptors.
#ifndef BASE_NO_DESCRIPTORS_H_
#define BASE_NO_DESCRIPTORS_H_

#include <sys/resource.h>

namespace stasis {

// No file can be opened as long as it is there, as where a process has used up its descriptors. Nothing may
// be expected of gtest meanwhile.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace stasis

#endif  // BASE_NO_DESCRIPTORS_H_

// The variables of device code that is loaded into a context: their contents and their places.
#ifndef REPLAY_MODULE_VARIABLES_H_
#define REPLAY_MODULE_VARIABLES_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace stasis::replay {

// A set of pages of the process; ranges that touch are one.
class PageSet {
 public:
  void Add(uint64_t address, uint64_t size);
  const std::map<uint64_t, uint64_t>& ranges() const { return ranges_; }  // begin -> end
  bool empty() const { return ranges_.empty(); }

 private:
  std::map<uint64_t, uint64_t> ranges_;
};

// Keeps pages from being used by anybody, for its lifetime.
class PageHold {
 public:
  PageHold() = default;
  PageHold(const PageHold&) = delete;
  PageHold& operator=(const PageHold&) = delete;
  ~PageHold() { Drop(); }
  // Holds what is free of it. False when nothing was.
  bool Hold(const PageSet& pages);
  void Drop();

 private:
  PageSet held_;
};

// Of one module. The context is current in all functions that ask the driver.
class ModuleVariables {
 public:
  bool empty() const { return variables_.empty(); }
  // Copies the contents of all variables of these names that the module has.
  Status Save(CUmodule module, const std::vector<std::string>& names);
  // kFailedPrecondition, naming the variable and `owner`, when one lies elsewhere than it was saved; then
  // `wrong` gets the pages where they lie.
  Status CheckPlaces(CUmodule module, const std::string& owner, PageSet* wrong) const;
  Status PutBack() const;
  // Frees the contents.
  void Forget() { variables_.clear(); }
  // Where they were saved.
  void AddPlaces(PageSet* pages) const;

 private:
  struct Variable {
    std::string name;
    CUdeviceptr address;
    std::vector<std::byte> contents;
  };
  std::vector<Variable> variables_;
};

// Loads code until its variables lie where they were. `load` makes an object and checks the places, `unload`
// undoes it. A place where it came to lie by mistake is held before the next try.
template <typename Load, typename Unload>
Status LoadInPlace(Load load, Unload unload) {
  constexpr int kTries = 64;
  PageHold holds;
  for (int i = 0;; ++i) {
    PageSet wrong;
    Status status = load(&wrong);
    if (status.ok()) return status;
    unload();
    if (status.code() != StatusCode::kFailedPrecondition || i + 1 == kTries || !holds.Hold(wrong))
      return status;
  }
}

}  // namespace stasis::replay

#endif  // REPLAY_MODULE_VARIABLES_H_

// A program's own checkpoint, as frameworks have it: it writes what it has computed to a file and ends;
// another run reads that and goes on. It is up to the program to know what belongs to it.
#pragma once

#include <stdint.h>
#include <stdio.h>

#include <string>
#include <type_traits>
#include <vector>

#include "options.h"

namespace sample {

// When a run saves its state and ends, and whose state it begins with.
struct Saving {
  std::string to;    // file; "": it does not
  int at = 0;        // the step after which it does
  std::string from;  // file; "": none

  void AddTo(Options* options);
  // Ends the program when these make no sense together; the host's references cannot be saved.
  void Check(bool reference) const;
  // For programs of many ranks, each of which has a file of its own.
  Saving OfRank(int rank) const;
};

// The file, being written or read; either way the program names the same things in the same order. Ends the
// program when the file cannot be written, is damaged, or was saved by a run of another kind.
class SavedState {
 public:
  // `kind` has all that the run's state depends on.
  static SavedState Write(const std::string& path, const std::string& kind);
  static SavedState Read(const std::string& path, const std::string& kind);
  SavedState(SavedState&& other) noexcept;
  SavedState& operator=(SavedState&&) = delete;
  ~SavedState();

  bool saving() const { return saving_; }

  template <typename T>
  void Value(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    Bytes(value, sizeof(T));
  }

  // Its size is the same when it is read.
  template <typename T>
  void Values(std::vector<T>* values) {
    static_assert(std::is_trivially_copyable_v<T>);
    uint64_t count = values->size();
    Value(&count);
    if (count != values->size()) FailDamaged();
    Bytes(values->data(), count * sizeof(T));
  }

  // All has been named. A file that was written replaces what had its name only now.
  void Finish();

 private:
  SavedState(const std::string& path, bool saving);
  void Bytes(void* data, size_t size);
  void Kind(const std::string& kind);
  [[noreturn]] void FailDamaged() const;

  std::string path_;
  bool saving_;
  FILE* file_;
};

}  // namespace sample

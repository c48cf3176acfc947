#include "saved_state.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include <utility>

#include "fail.h"

namespace sample {
namespace {

constexpr uint64_t kEnd = 0x646e656574617473;

}  // namespace

void Saving::AddTo(Options* options) {
  options->Text("--save", &to, "with --save-at: file for the state of the run");
  options->Integer("--save-at", &at, 1, INT_MAX, "save the state after this step, and end");
  options->Text("--load", &from, "file with the state of a run to go on with");
}

void Saving::Check(bool reference) const {
  if (to.empty() != (at == 0)) Fail(kExitUsage, "--save and --save-at need each other");
  if (reference && !(to.empty() && from.empty()))
    Fail(kExitUsage, "--save and --load are not for --reference");
}

Saving Saving::OfRank(int rank) const {
  Saving own = *this;
  const std::string suffix = "." + std::to_string(rank);
  if (!to.empty()) own.to += suffix;
  if (!from.empty()) own.from += suffix;
  return own;
}

SavedState::SavedState(const std::string& path, bool saving)
    : path_(path),
      saving_(saving),
      file_(fopen((saving ? path + ".part" : path).c_str(), saving ? "we" : "re")) {
  if (file_ == nullptr)
    Fail(kExitFailure, "cannot %s %s: %s", saving ? "create" : "open", path.c_str(), strerror(errno));
}

SavedState::SavedState(SavedState&& other) noexcept
    : path_(std::move(other.path_)), saving_(other.saving_), file_(std::exchange(other.file_, nullptr)) {}

SavedState::~SavedState() {
  if (file_ != nullptr) fclose(file_);
}

SavedState SavedState::Write(const std::string& path, const std::string& kind) {
  SavedState state(path, true);
  state.Kind(kind);
  return state;
}

SavedState SavedState::Read(const std::string& path, const std::string& kind) {
  SavedState state(path, false);
  state.Kind(kind);
  return state;
}

void SavedState::Kind(const std::string& kind) {
  std::vector<char> text(kind.begin(), kind.end());
  uint64_t size = text.size();
  Value(&size);
  if (size == text.size()) Bytes(text.data(), size);
  if (std::string(text.begin(), text.end()) != kind || size != text.size())
    Fail(kExitFailure, "%s was saved by a run with other options", path_.c_str());
}

void SavedState::Bytes(void* data, size_t size) {
  if (saving_ ? fwrite(data, 1, size, file_) == size : fread(data, 1, size, file_) == size) return;
  if (!saving_) FailDamaged();
  Fail(kExitFailure, "cannot write %s: %s", path_.c_str(), strerror(errno));
}

void SavedState::Finish() {
  uint64_t end = kEnd;
  Value(&end);
  if (end != kEnd) FailDamaged();
  const bool closed = fclose(std::exchange(file_, nullptr)) == 0;
  if (saving_ && !(closed && rename((path_ + ".part").c_str(), path_.c_str()) == 0))
    Fail(kExitFailure, "cannot write %s: %s", path_.c_str(), strerror(errno));
}

void SavedState::FailDamaged() const { Fail(kExitFailure, "%s is damaged or cut short", path_.c_str()); }

}  // namespace sample

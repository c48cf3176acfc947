#include "intercept/libraries/library.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

namespace stasis::libraries {
namespace {

constinit std::mutex g_mutex;
constinit std::vector<Library*>* g_libraries = nullptr;  // guarded by g_mutex; outlives every destructor

std::vector<Library*> InOrder() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_libraries == nullptr ? std::vector<Library*>() : *g_libraries;
}

}  // namespace

void Register(Library* library) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_libraries == nullptr) g_libraries = new std::vector<Library*>;
  g_libraries->push_back(library);
}

Status SettleLibraries(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  for (Library* library : InOrder())
    RETURN_IF_ERROR(library->Settle(deadline, blockers).WithContext(library->Name()));
  return {};
}

Status CheckLibraries() {
  for (Library* library : InOrder()) RETURN_IF_ERROR(library->Check().WithContext(library->Name()));
  return {};
}

Status GiveUpLibraries() {
  for (Library* library : InOrder()) RETURN_IF_ERROR(library->GiveUp().WithContext(library->Name()));
  return {};
}

Status RebuildLibraries() {
  std::vector<Library*> libraries = InOrder();
  std::reverse(libraries.begin(), libraries.end());
  Status first;
  for (Library* library : libraries) {
    Status status = library->Rebuild().WithContext(library->Name());
    if (first.ok()) first = std::move(status);
  }
  return first;
}

void ResetLibrariesAfterFork() { new (&g_mutex) std::mutex; }

}  // namespace stasis::libraries

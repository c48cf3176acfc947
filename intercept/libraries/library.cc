#include "intercept/libraries/library.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>

#include "intercept/libraries/nccl_library.h"

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

// Most libraries wait for nobody.
Status Library::Advance(const CutTargets&, Duration, const Deadline&, CutReport* report) {
  report->settled = true;
  return {};
}

namespace {

void AddTo(CutReport* whole, CutReport report) {
  whole->settled = whole->settled && report.settled;
  whole->events += report.events;
  whole->making = whole->making || report.making;
  std::move(report.ranks.begin(), report.ranks.end(), std::back_inserter(whole->ranks));
  std::move(report.meetings.begin(), report.meetings.end(), std::back_inserter(whole->meetings));
  std::move(report.used.begin(), report.used.end(), std::back_inserter(whole->used));
  std::move(report.missing.begin(), report.missing.end(), std::back_inserter(whole->missing));
}

}  // namespace

Result<CutReport> AdvanceLibraries(const CutTargets& targets, Duration quiet, const Deadline& deadline) {
  // The first call of a process may be held, and is what others wait for.
  nccl::EnsureRegistered();
  CutReport whole;
  whole.settled = true;
  for (Library* library : InOrder()) {
    CutReport report;
    RETURN_IF_ERROR(library->Advance(targets, quiet, deadline, &report).WithContext(library->Name()));
    AddTo(&whole, std::move(report));
  }
  return whole;
}

CutReport ReportCut() {
  CutReport whole;
  whole.settled = true;
  for (Library* library : InOrder()) {
    CutReport report;
    report.settled = true;
    library->Report(&report);
    AddTo(&whole, std::move(report));
  }
  return whole;
}

bool LibrariesNeedRejoin() {
  const std::vector<Library*> libraries = InOrder();
  return std::any_of(libraries.begin(), libraries.end(),
                     [](const Library* library) { return library->NeedsRejoin(); });
}

Result<std::vector<CommReport>> ReportComms() {
  std::vector<CommReport> all;
  for (Library* library : InOrder()) {
    ASSIGN_OR_RETURN(std::vector<CommReport> comms, library->ReportComms());
    std::move(comms.begin(), comms.end(), std::back_inserter(all));
  }
  return all;
}

Status CheckLibraries() {
  for (Library* library : InOrder()) RETURN_IF_ERROR(library->Check().WithContext(library->Name()));
  return {};
}

Status GiveUpLibraries() {
  for (Library* library : InOrder()) RETURN_IF_ERROR(library->GiveUp().WithContext(library->Name()));
  return {};
}

namespace {

// Goes on past errors, and returns the first.
template <typename Make>
Status MakeAgain(const Make& make) {
  std::vector<Library*> libraries = InOrder();
  std::reverse(libraries.begin(), libraries.end());
  Status first;
  for (Library* library : libraries) {
    Status status = make(*library).WithContext(library->Name());
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace

Status RebuildLibraries() {
  return MakeAgain([](Library& library) { return library.Rebuild(); });
}

Status RejoinLibraries(const CommRejoin& rejoin) {
  return MakeAgain([&rejoin](Library& library) { return library.Rejoin(rejoin); });
}

void ResetLibrariesAfterFork() { new (&g_mutex) std::mutex; }

}  // namespace stasis::libraries

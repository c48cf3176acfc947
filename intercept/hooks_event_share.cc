// Events that processes of the task share.
#include <unistd.h>

#include <bit>

#include "intercept/memory_environment.h"
#include "intercept/process.h"
#include "intercept/share_server.h"
#include "replay/event_record.h"
#include "replay/shared_events.h"

namespace stasis::hooks {
namespace {

using replay::EventRecord;
using replay::SharedEvents;

// What the 64 bytes of a handle of ours say.
struct WrittenHandle {
  static constexpr uint64_t kMagic = 0x545645'49534154;
  uint64_t magic = kMagic;
  int64_t pid = 0;
  uint64_t key = 0;
  uint64_t reserved[5] = {};
};
static_assert(sizeof(WrittenHandle) == sizeof(CUipcEventHandle));

// The driver's own checkpoint is not known to carry them.
bool DriverCarries() { return ChosenStrategy() == TaskStrategy::kDriverCheckpoint; }

CUresult Share() {
  JoinMemory();
  SharedEvents::Get().set_finder(&FindSharedEvent);
  return StartSharing().ok() ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace

CUresult cuIpcGetEventHandle(const Call& call, CUipcEventHandle* pHandle, CUevent event) {
  const auto real = call.Real<decltype(&::cuIpcGetEventHandle)>();
  const auto record = replay::FindAs<EventRecord>(event);
  if (TaskFolder().empty() || record == nullptr) {
    const CUresult result = real(pHandle, replay::ToReal(event));
    if (result == CUDA_SUCCESS && !TaskFolder().empty()) TaintOnce(call.fn, true);
    return result;
  }
  if (record->opened() || pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (record->share_key() == 0) {
    CUipcEventHandle handle;
    CUresult result = real(&handle, replay::ToReal(event));
    if (result == CUDA_SUCCESS) result = Share();
    if (result != CUDA_SUCCESS) return result;
    record->set_share_key(vmm::NewShareKey());
    SharedEvents::Get().Note(record->share_key(), handle);
    if (DriverCarries()) TaintOnce(call.fn, true);
  }
  WrittenHandle written;
  written.pid = getpid();
  written.key = record->share_key();
  *pHandle = std::bit_cast<CUipcEventHandle>(written);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(const Call& call, CUevent* phEvent, CUipcEventHandle handle) {
  const auto real = call.Real<decltype(&::cuIpcOpenEventHandle)>();
  const WrittenHandle written = std::bit_cast<WrittenHandle>(handle);
  if (written.magic != WrittenHandle::kMagic || phEvent == nullptr) {
    const CUresult result = real(phEvent, handle);
    if (result == CUDA_SUCCESS) Taint("cuIpcOpenEventHandle of an event outside of the task", true);
    return result;
  }
  if (written.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult shared = Share();
  if (shared != CUDA_SUCCESS) return shared;
  const auto theirs = FetchEvent({static_cast<pid_t>(written.pid), written.key});
  if (!theirs) return CUDA_ERROR_MAP_FAILED;
  const CUresult result = real(phEvent, *theirs);
  if (result != CUDA_SUCCESS) return result;
  constexpr unsigned kFlags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  auto record = std::make_shared<EventRecord>(replay::CurrentContextRecord(), kFlags);
  record->set_share_key(written.key);
  record->set_opened();
  SharedEvents::Get().Note(written.key, *theirs);
  replay::AddRecord(std::move(record), phEvent);
  if (DriverCarries()) TaintOnce(call.fn, true);
  return result;
}

}  // namespace stasis::hooks

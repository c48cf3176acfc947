#include "replay/pause.h"

#include <atomic>
#include <string>
#include <vector>

#include "replay/code_record.h"
#include "replay/context_record.h"
#include "replay/current_context.h"
#include "replay/event_record.h"
#include "replay/object_table.h"
#include "replay/stream_record.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

constinit std::atomic<uint32_t> g_generation{0};
// Whether the program had initialised the driver at the last Save(); what it has not done is not done for it.
bool g_initialised = true;

// Where the variables of the program's code belong while no driver has them.
PageHold& VariableHold() {
  static PageHold* const hold = new PageHold;
  return *hold;
}

void Keep(Status status, Status* first) {
  if (first->ok()) *first = std::move(status);
}

Status SaveContext(ContextRecord& context) {
  RETURN_IF_ERROR(NoteStreamIds(context));
  return SaveEventTimes(context);
}

Status Rebuild(Record& record) {
  Result<uint64_t> real = record.Rebuild();
  if (!real.ok()) return std::move(real).status().WithContext("rebuild " + record.Name());
  if (*real != 0) ObjectTable::Get().SetReal(record, *real);
  return {};
}

bool IsContext(const Record& record) { return record.kind() <= ObjectKind::kContext; }

Status ContinueContexts() {
  for (const ContextPtr& context : ActiveContexts()) {
    const CurrentContext current(context->real_context());
    RETURN_IF_ERROR(current.status());
    RETURN_IF_ERROR(context->events().Continue());
  }
  return {};
}

}  // namespace

Status CheckRebuildable() {
  for (const RecordPtr& record : ObjectTable::Get().InOrder()) RETURN_IF_ERROR(record->Check());
  return {};
}

namespace {

Status SaveAll() {
  int devices = 0;
  g_initialised = Driver().cuDeviceGetCount(&devices) != CUDA_ERROR_NOT_INITIALIZED;
  for (const RecordPtr& record : ObjectTable::Get().InOrder())
    RETURN_IF_ERROR(record->Save().WithContext("save " + record->Name()));
  for (const ContextPtr& context : ActiveContexts()) RETURN_IF_ERROR(SaveContext(*context));
  return {};
}

}  // namespace

Status Save() {
  Status status = SaveAll();
  if (status.ok()) return status;
  // The program runs on; contents of its objects would lie about till the next pause.
  for (const RecordPtr& record : ObjectTable::Get().InOrder()) record->Rebuilt();
  return status;
}

Status Teardown() {
  Status status;
  const std::vector<RecordPtr> records = ObjectTable::Get().InOrder();
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if ((*record)->real() == 0) continue;
    Keep((*record)->Destroy().WithContext("destroy " + (*record)->Name()), &status);
  }
  ObjectTable::Get().ForgetReal();
  VariableHold().Hold(VariablePlaces());
  return status;
}

Status RebuildContexts() {
  if (!g_initialised) return {};
  RETURN_IF_ERROR(DriverStatus(Driver().cuInit(0), "cuInit"));
  RestartContextIds();
  RestartStreamIds();
  RETURN_IF_ERROR(RestorePrimaryFlags());
  for (const RecordPtr& record : ObjectTable::Get().InOrder()) {
    if (IsContext(*record)) RETURN_IF_ERROR(Rebuild(*record));
  }
  return {};
}

Status RebuildObjects() {
  VariableHold().Drop();
  const std::vector<RecordPtr> records = ObjectTable::Get().InOrder();
  for (const RecordPtr& record : records) {
    if (!IsContext(*record)) RETURN_IF_ERROR(Rebuild(*record));
  }
  RETURN_IF_ERROR(ContinueContexts());
  for (const RecordPtr& record : records) record->Rebuilt();
  g_generation.fetch_add(1, std::memory_order_relaxed);
  return {};
}

uint32_t Generation() { return g_generation.load(std::memory_order_relaxed); }

void FillStatus(TaskStatus* status) { status->records = ObjectTable::Get().size(); }

}  // namespace stasis::replay

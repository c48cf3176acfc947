#include "replay/stream_record.h"

#include <algorithm>

#include "replay/current_context.h"
#include "replay/id_series.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

constexpr CUstreamAttrID kAttributes[] = {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
};

constinit IdSeries g_ids;

std::vector<RecordPtr> ParentsOf(const ContextPtr& context) {
  return context == nullptr ? std::vector<RecordPtr>{} : std::vector<RecordPtr>{context};
}

bool SameValue(const CUstreamAttrValue& a, const CUstreamAttrValue& b) {
  return std::equal(reinterpret_cast<const char*>(&a), reinterpret_cast<const char*>(&a + 1),
                    reinterpret_cast<const char*>(&b));
}

}  // namespace

StreamRecord::StreamRecord(ContextPtr context)
    : Record(ObjectKind::kStream, ParentsOf(context)), context_(std::move(context)) {}

Status StreamRecord::Check() {
  if (context_ != nullptr) return {};
  return Errorf(StatusCode::kUnsupported, "%s was created in a context that cannot be rebuilt",
                Name().c_str());
}

void StreamRecord::SaveAttributes(CUstream stream) {
  attributes_.clear();
  for (CUstreamAttrID attribute : kAttributes) {
    CUstreamAttrValue value{};
    if (Driver().cuStreamGetAttribute(stream, attribute, &value) == CUDA_SUCCESS)
      attributes_.emplace_back(attribute, value);
  }
}

Status StreamRecord::Save() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  const CUstream stream = real_stream();
  RETURN_IF_ERROR(DriverStatus(Driver().cuStreamGetFlags(stream, &flags_), "cuStreamGetFlags"));
  RETURN_IF_ERROR(DriverStatus(Driver().cuStreamGetPriority(stream, &priority_), "cuStreamGetPriority"));
  unsigned long long id = 0;
  if (id_ == 0 && Driver().cuStreamGetId(stream, &id) == CUDA_SUCCESS) id_ = g_ids.Show(id);
  SaveAttributes(stream);
  return {};
}

Status StreamRecord::Destroy() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  return DriverStatus(Driver().cuStreamDestroy_v2(real_stream()), "cuStreamDestroy");
}

// An attribute that the new stream already has is left alone: not every device lets all of them be set.
Result<uint64_t> StreamRecord::Rebuild() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  CUstream stream = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuStreamCreateWithPriority(&stream, flags_, priority_),
                               "cuStreamCreateWithPriority"));
  for (const auto& [attribute, value] : attributes_) {
    CUstreamAttrValue fresh{};
    const bool known = Driver().cuStreamGetAttribute(stream, attribute, &fresh) == CUDA_SUCCESS;
    if (known && SameValue(fresh, value)) continue;
    const CUresult set = Driver().cuStreamSetAttribute(stream, attribute, &value);
    if (set == CUDA_SUCCESS) continue;
    (void)Driver().cuStreamDestroy_v2(stream);
    return DriverStatus(set, "cuStreamSetAttribute");
  }
  return reinterpret_cast<uint64_t>(stream);
}

RecordPtr NewStreamRecord() { return std::make_shared<StreamRecord>(CurrentContextRecord()); }

unsigned long long VisibleStreamId(unsigned long long real) { return g_ids.Show(real); }

// The numbers of streams that are gone count too; a stream made now has a higher one than all of them.
Status NoteStreamIds(const ContextRecord& context) {
  const CurrentContext current(context.real_context());
  RETURN_IF_ERROR(current.status());
  CUstream stream = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  unsigned long long id = 0;
  if (Driver().cuStreamGetId(stream, &id) == CUDA_SUCCESS) g_ids.Note(g_ids.Show(id));
  return DriverStatus(Driver().cuStreamDestroy_v2(stream), "cuStreamDestroy");
}

void RestartStreamIds() { g_ids.Restart(); }

}  // namespace stasis::replay

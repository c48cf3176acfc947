#include "softgpu/driver/memory_actions.h"

#include <memory>
#include <utility>

#include "softgpu/driver/actions.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/stream.h"

namespace softgpu {
namespace {

using Where = MemoryView::Where;

// 10^9 bytes a second that the way between the two places has; 0 = no limit.
double Bandwidth(const CopyJob& job) {
  State& state = *State::Get();
  const Device* src = job.src.on_device() ? state.FindDevice(job.src.device) : nullptr;
  const Device* dst = job.dst.on_device() ? state.FindDevice(job.dst.device) : nullptr;
  if (src == nullptr && dst == nullptr) return 0;
  if (src == nullptr) return dst->info().h2d_gbps * dst->slow_factor();
  if (dst == nullptr) return src->info().d2h_gbps * src->slow_factor();
  double gbps = src == dst ? src->info().d2d_gbps : src->info().peer_gbps;
  return gbps * src->slow_factor();
}

bool OnHost(const CopySide& side) { return side.where == Where::kUnknown || side.where == Where::kPinned; }

bool HostWaits(const CopyJob& job, bool async) {
  if (OnHost(job.src) && OnHost(job.dst)) return true;
  if (async) return job.dst.pageable();
  bool between_devices = job.src.on_device() && job.dst.on_device();
  return !between_devices || job.src.sync_memops || job.dst.sync_memops;
}

}  // namespace

CUresult CopyAction::Run(Context& context) const {
  CopyPace pace{Bandwidth(job), [&context] { return context.error() != CUDA_SUCCESS; }};
  return RunCopy(State::Get()->memory().manager(), job, pace);
}

CUresult SetAction::Run(Context&) const { return RunSet(State::Get()->memory().manager(), job); }

CUresult DoCopy(Stream& stream, const CUDA_MEMCPY3D& params, CopyJob job, bool async) {
  bool capturing = stream.capture() != nullptr;
  bool wait = capturing ? !async : HostWaits(job, async);
  if (job.bytes() == 0 && !capturing) return stream.context().error();
  if (wait) return stream.RunBlocking(std::make_shared<CopyAction>(params, std::move(job)));
  if (!capturing && job.src.pageable()) {
    CUresult staged = StageSource(&job);
    if (staged != CUDA_SUCCESS) return staged;
  }
  return stream.Submit(std::make_shared<CopyAction>(params, std::move(job)));
}

CUresult DoSet(Stream& stream, const CUDA_MEMSET_NODE_PARAMS& params, const SetJob& job, bool async) {
  bool capturing = stream.capture() != nullptr;
  if ((job.width == 0 || job.height == 0) && !capturing) return stream.context().error();
  bool wait = !async && (capturing || !job.dst.on_device() || job.dst.sync_memops);
  auto action = std::make_shared<SetAction>(params, job);
  return wait ? stream.RunBlocking(std::move(action)) : stream.Submit(std::move(action));
}

CUDA_MEMCPY3D LinearParams(CUmemorytype dst_type, uint64_t dst, CUmemorytype src_type, uint64_t src,
                           uint64_t bytes) {
  CUDA_MEMCPY3D params{};
  params.srcMemoryType = src_type;
  params.srcHost = src_type == CU_MEMORYTYPE_HOST ? reinterpret_cast<const void*>(src) : nullptr;
  params.srcDevice = src_type == CU_MEMORYTYPE_HOST ? 0 : src;
  params.dstMemoryType = dst_type;
  params.dstHost = dst_type == CU_MEMORYTYPE_HOST ? reinterpret_cast<void*>(dst) : nullptr;
  params.dstDevice = dst_type == CU_MEMORYTYPE_HOST ? 0 : dst;
  params.srcPitch = params.dstPitch = params.WidthInBytes = bytes;
  params.Height = params.Depth = params.srcHeight = params.dstHeight = 1;
  return params;
}

void DrainUsers(Entry& entry, CUcontext context) {
  std::shared_ptr<Context> owner = context == nullptr ? nullptr : entry.state().FindContext(context);
  if (owner != nullptr) return owner->Drain();
  for (const std::shared_ptr<Context>& each : entry.state().Contexts()) each->Drain();
}

}  // namespace softgpu

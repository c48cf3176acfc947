#include "ghost/memory_load.h"

#include <algorithm>

#include "base/parallel.h"
#include "ghost/fault.h"
#include "ghost/staging.h"

namespace stasis {
namespace {

// Copies that a thread asks for before it waits for them.
constexpr size_t kCopiesAtOnce = 16;

// Chunks of a piece that follow each other, in the piece's bytes.
struct Run {
  size_t first_chunk = 0, chunks = 0;
  uint64_t offset = 0, size = 0;  // in the piece
};

std::vector<Run> RunsOf(const MemberPiece& piece, const StreamLayout& layout, const FanPlan& plan) {
  std::vector<Run> runs;
  for (size_t chunk = piece.piece.first_chunk; chunk < piece.piece.first_chunk + piece.piece.chunks;
       ++chunk) {
    if (!plan.Reads(piece.member, chunk)) continue;
    if (runs.empty() || runs.back().first_chunk + runs.back().chunks != chunk) {
      runs.push_back({chunk, 0, layout.ChunkOffset(chunk) - piece.piece.offset, 0});
    }
    ++runs.back().chunks;
    runs.back().size += layout.ChunkSize(chunk);
  }
  return runs;
}

// Of a piece only what the plan reads.
class PlannedSource final : public MemorySource {
 public:
  PlannedSource(const LoadTarget& target, const FanPlan& plan) : target_(target), plan_(plan) {}
  Result<std::span<const std::byte>> Read(const MemberPiece& piece, std::span<std::byte> staging) override {
    for (const Run& run : RunsOf(piece, target_.own.layouts[piece.member], plan_)) {
      RETURN_IF_ERROR(target_.image.ReadRun(target_.streams[piece.member], run.first_chunk, run.chunks,
                                            staging.subspan(run.offset, run.size)));
    }
    return std::span<const std::byte>(staging);
  }

 private:
  const LoadTarget& target_;
  const FanPlan& plan_;
};

Status WriteTo(const LoadTarget& target, size_t member, uint64_t offset, std::span<const std::byte> bytes) {
  return target.own.maps[member].ForParts(
      offset, bytes, [&](size_t extent, uint64_t inside, std::span<const std::byte> part) {
        return target.memory[member][extent].Write(inside, part);
      });
}

Status CopyOne(const LoadTarget& target, const MemoryCopy& copy, const CopySource& source) {
  const StreamMap& from = source.map(copy.from);
  const StreamMap& to = target.own.maps[copy.to.member];
  for (uint64_t done = 0; done < copy.size;) {
    const StreamPart& in = from.At(copy.from.offset + done);
    const StreamPart& out = to.At(copy.to.offset + done);
    uint64_t in_skip = copy.from.offset + done - in.offset, out_skip = copy.to.offset + done - out.offset;
    uint64_t size = std::min({copy.size - done, in.size - in_skip, out.size - out_skip});
    const GpuMemory& memory = target.memory[copy.to.member][out.extent];
    const GpuMemory& other = source.memory(copy.from, in.extent, memory.device());
    RETURN_IF_ERROR(memory.CopyFrom(out.inside + out_skip, other, in.inside + in_skip, size));
    done += size;
  }
  return Status();
}

std::vector<int> DevicesOf(const DeviceMemory& memory) {
  std::vector<int> devices;
  for (const std::vector<GpuMemory>& extents : memory) {
    for (const GpuMemory& extent : extents) {
      if (extent.size() > 0) devices.push_back(extent.device());
    }
  }
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

// The chunks that begin at `offset` of the stream.
Piece ChunksAt(const StreamLayout& layout, uint64_t offset, uint64_t size) {
  auto piece = std::upper_bound(layout.pieces().begin(), layout.pieces().end(), offset,
                                [](uint64_t value, const Piece& p) { return value < p.offset; });
  Piece run{offset, 0, (piece - 1)->first_chunk, 0};
  while (layout.ChunkOffset(run.first_chunk) != offset) ++run.first_chunk;
  while (run.size < size) run.size += layout.ChunkSize(run.first_chunk + run.chunks++);
  return run;
}

}  // namespace

Status LoadFromStore(const LoadTarget& target, const FanPlan& plan, const CopyContext& context) {
  Layouts layouts;
  for (const StreamLayout& layout : target.own.layouts) layouts.push_back(&layout);
  PlannedSource source(target, plan);
  // Of the progress only what is written here.
  CopyContext pieces = context;
  pieces.progress = nullptr;
  return CopyPieces(layouts, source, target.gpu, pieces,
                    [&](const MemberPiece& piece, std::span<const std::byte> bytes) -> Status {
                      RETURN_IF_ERROR(Fault(FaultPoint::kLoadInside));
                      for (const Run& run : RunsOf(piece, *layouts[piece.member], plan)) {
                        RETURN_IF_ERROR(WriteTo(target, piece.member, piece.piece.offset + run.offset,
                                                bytes.subspan(run.offset, run.size)));
                        if (context.progress) context.progress->Add(run.size);
                      }
                      return Status();
                    });
}

Status CopyOnDevices(const LoadTarget& target, const std::vector<MemoryCopy>& copies,
                     const CopySource& source, const CopyContext& context) {
  std::vector<int> devices = DevicesOf(target.memory);
  size_t batches = (copies.size() + kCopiesAtOnce - 1) / kCopiesAtOnce;
  return ParallelFor(batches, CopyThreads(), [&](size_t batch, size_t) -> Status {
    if (context.cancel) RETURN_IF_ERROR(context.cancel->Check());
    Status status;
    uint64_t bytes = 0;
    for (size_t i = batch * kCopiesAtOnce; i < std::min(copies.size(), (batch + 1) * kCopiesAtOnce); ++i) {
      if (status.ok()) status = CopyOne(target, copies[i], source);
      bytes += copies[i].size;
    }
    // Also after a failure: the memory that is being copied goes with the caller.
    for (int device : devices) {
      Status done = target.gpu.FinishCopies(device);
      if (status.ok()) status = std::move(done);
    }
    if (status.ok() && context.progress) context.progress->Add(bytes);
    return status;
  });
}

Status LoadCopies(const LoadTarget& target, const std::vector<MemoryCopy>& copies,
                  const CopyContext& context) {
  if (copies.empty()) return Status();
  const size_t threads = std::min(CopyThreads(), copies.size());
  ASSIGN_OR_RETURN(Staging staging, Staging::Create(threads, &target.gpu));
  return ParallelFor(copies.size(), threads, [&](size_t i, size_t worker) -> Status {
    if (context.cancel) RETURN_IF_ERROR(context.cancel->Check());
    const MemoryCopy& copy = copies[i];
    Piece run = ChunksAt(target.own.layouts[copy.to.member], copy.to.offset, copy.size);
    const std::span<std::byte> bytes = staging.Of(worker, run.size);
    RETURN_IF_ERROR(target.image.ReadRun(target.streams[copy.to.member], run.first_chunk, run.chunks, bytes));
    RETURN_IF_ERROR(WriteTo(target, copy.to.member, copy.to.offset, bytes));
    if (context.progress) context.progress->Add(run.size);
    return Status();
  });
}

}  // namespace stasis

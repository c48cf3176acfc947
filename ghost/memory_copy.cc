#include "ghost/memory_copy.h"

#include <algorithm>

#include "base/files.h"
#include "base/parallel.h"
#include "ghost/fault.h"
#include "ghost/staging.h"

namespace stasis {
namespace {

class DeviceSource final : public MemorySource {
 public:
  DeviceSource(const std::vector<HeldMember>& members, DeviceMemory memory) : memory_(std::move(memory)) {
    for (const HeldMember& member : members) maps_.emplace_back(member);
  }
  Result<std::span<const std::byte>> Read(const MemberPiece& piece, std::span<std::byte> staging) override {
    RETURN_IF_ERROR(ReadPart(piece, piece.piece.offset, staging));
    return std::span<const std::byte>(staging);
  }
  std::optional<DevicePlace> Locate(const MemberPiece& piece, uint64_t offset, uint64_t size) override {
    const StreamPart& part = maps_[piece.member].At(offset);
    uint64_t skip = offset - part.offset;
    if (skip + size > part.size) return std::nullopt;
    const GpuMemory& memory = memory_[piece.member][part.extent];
    return DevicePlace{memory.device(), memory.address() + part.inside + skip};
  }
  Status ReadPart(const MemberPiece& piece, uint64_t offset, std::span<std::byte> out) override {
    return maps_[piece.member].ForParts(offset, out,
                                        [&](size_t extent, uint64_t inside, std::span<std::byte> part) {
                                          return memory_[piece.member][extent].Read(inside, part);
                                        });
  }

 private:
  std::vector<StreamMap> maps_;
  const DeviceMemory memory_;
};

class FileSource final : public MemorySource {
 public:
  FileSource(std::vector<uint64_t> starts, int file) : starts_(std::move(starts)), file_(file) {}
  Result<std::span<const std::byte>> Read(const MemberPiece& piece, std::span<std::byte> staging) override {
    RETURN_IF_ERROR(ReadAt(file_, staging, starts_[piece.member] + piece.piece.offset)
                        .WithContext("device memory that is held in host memory"));
    return std::span<const std::byte>(staging);
  }

 private:
  const std::vector<uint64_t> starts_;
  const int file_;
};

class ImageSource final : public MemorySource {
 public:
  ImageSource(const std::vector<HeldMember>& members, const ImageReader& image) : image_(image) {
    for (const HeldMember& member : members) names_.push_back(member.stream());
  }
  Result<std::span<const std::byte>> Read(const MemberPiece& piece, std::span<std::byte> staging) override {
    RETURN_IF_ERROR(image_.ReadPiece(names_[piece.member], piece.index, staging));
    return std::span<const std::byte>(staging);
  }

 private:
  std::vector<std::string> names_;
  const ImageReader& image_;
};

std::vector<MemberPiece> PiecesOf(const Layouts& layouts) {
  std::vector<MemberPiece> pieces;
  for (size_t m = 0; m < layouts.size(); ++m) {
    const std::vector<Piece>& list = layouts[m]->pieces();
    for (size_t i = 0; i < list.size(); ++i) pieces.push_back({m, i, list[i]});
  }
  return pieces;
}

using PieceWork = std::function<Status(const MemberPiece&, size_t)>;

Status ForPieces(const std::vector<MemberPiece>& pieces, size_t threads, MemorySource& source,
                 const CopyContext& context, const PieceWork& work) {
  return ParallelFor(pieces.size(), threads, [&](size_t i, size_t worker) -> Status {
    if (context.cancel) RETURN_IF_ERROR(context.cancel->Check());
    RETURN_IF_ERROR(work(pieces[i], worker));
    source.Done(pieces[i]);
    if (context.progress) context.progress->Add(pieces[i].piece.size);
    return Status();
  });
}

size_t ThreadsFor(const std::vector<MemberPiece>& pieces) {
  return std::min(CopyThreads(), std::max<size_t>(pieces.size(), 1));
}

// The piece of a member's stream that the byte at `offset` is in.
MemberPiece PieceAt(size_t member, const StreamLayout& layout, uint64_t offset) {
  const std::vector<Piece>& pieces = layout.pieces();
  auto after = std::upper_bound(pieces.begin(), pieces.end(), offset,
                                [](uint64_t value, const Piece& piece) { return value < piece.offset; });
  STASIS_CHECK(after != pieces.begin());
  return {member, static_cast<size_t>(after - pieces.begin()) - 1, *(after - 1)};
}

// Asks the devices for hashes, as far as the source is on them and it is worth it.
Status HashStreams(const std::vector<std::string>& names, const Layouts& layouts, MemorySource& source,
                   DeviceSaver& saver) {
  std::shared_lock places = source.KeepPlaces();
  for (size_t m = 0; m < names.size(); ++m) {
    if (names[m].empty()) continue;
    const StreamLayout& layout = *layouts[m];
    DeviceBytes bytes;
    bytes.read = [m, &layout, &source](uint64_t offset, std::span<std::byte> out) {
      return source.ReadPart(PieceAt(m, layout, offset), offset, out);
    };
    bytes.locate = [m, &layout, &source](uint64_t offset, uint64_t size) {
      return source.Locate(PieceAt(m, layout, offset), offset, size);
    };
    RETURN_IF_ERROR(saver.AddStream(names[m], std::move(bytes)));
  }
  return Status();
}

void FillReport(const DeviceSaver& saver, SaveReport* report) {
  if (!report) return;
  report->copied_bytes += saver.copied_bytes();
  report->hashed_bytes += saver.hashed_bytes();
  report->notes.insert(report->notes.end(), saver.notes().begin(), saver.notes().end());
}

}  // namespace

Status MemorySource::ReadPart(const MemberPiece&, uint64_t, std::span<std::byte>) {
  return Status(StatusCode::kInternal, "no part of this memory is on a device");
}

Result<DeviceMemory> ImportAll(Gpu& gpu, const std::vector<HeldMember>& members) {
  DeviceMemory memory(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    for (const HeldExtent& e : members[m].extents) {
      memory[m].emplace_back();
      if (e.borrowed) continue;
      ASSIGN_OR_RETURN(memory[m].back(), gpu.Import(e.physical, e.fd.get(), e.extent.size));
    }
  }
  return memory;
}

std::unique_ptr<MemorySource> SourceOf(const std::vector<HeldMember>& members, DeviceMemory memory) {
  return std::make_unique<DeviceSource>(members, std::move(memory));
}

std::unique_ptr<MemorySource> SourceOf(std::vector<uint64_t> starts, int file) {
  return std::make_unique<FileSource>(std::move(starts), file);
}

std::unique_ptr<MemorySource> SourceOf(const std::vector<HeldMember>& members, const ImageReader& image) {
  return std::make_unique<ImageSource>(members, image);
}

Status CopyPieces(const Layouts& layouts, MemorySource& source, Gpu& gpu, const CopyContext& context,
                  const std::function<Status(const MemberPiece&, std::span<const std::byte>)>& sink) {
  std::vector<MemberPiece> pieces = PiecesOf(layouts);
  if (pieces.empty()) return Status();
  size_t threads = ThreadsFor(pieces);
  ASSIGN_OR_RETURN(Staging staging, Staging::Create(threads, &gpu));
  return ForPieces(pieces, threads, source, context, [&](const MemberPiece& piece, size_t worker) -> Status {
    ASSIGN_OR_RETURN(std::span<const std::byte> bytes,
                     source.Read(piece, staging.Of(worker, piece.piece.size)));
    return sink(piece, bytes);
  });
}

Status SavePiece(MemorySource& source, const MemberPiece& piece, std::span<std::byte> staging,
                 const std::string& name, ImageWriter& image) {
  RETURN_IF_ERROR(Fault(FaultPoint::kSaveInside));
  ASSIGN_OR_RETURN(std::span<const std::byte> bytes, source.Read(piece, staging));
  return image.WritePiece(name, piece.index, bytes);
}

Status SaveStreams(const std::vector<std::string>& names, MemorySource& source, Gpu* gpu, ImageWriter& image,
                   const CopyContext& context) {
  static const StreamLayout kNothing;
  Layouts layouts;
  for (const std::string& name : names) layouts.push_back(name.empty() ? &kNothing : &image.Layout(name));
  std::vector<MemberPiece> pieces = PiecesOf(layouts);
  if (pieces.empty()) return Status();
  size_t threads = ThreadsFor(pieces);
  ASSIGN_OR_RETURN(Staging staging, Staging::Create(threads, gpu));
  std::optional<DeviceSaver> saver;
  if (gpu && context.device_hash != DeviceHashMode::kOff) {
    saver.emplace(*gpu, image, context.device_hash, context.shared);
    RETURN_IF_ERROR(HashStreams(names, layouts, source, *saver));
  }
  Status status =
      ForPieces(pieces, threads, source, context, [&](const MemberPiece& piece, size_t worker) -> Status {
        const std::string& name = names[piece.member];
        std::span<std::byte> buffer = staging.Of(worker, piece.piece.size);
        if (saver && saver->Knows(name)) {
          RETURN_IF_ERROR(Fault(FaultPoint::kSaveInside));
          return saver->SavePiece(name, piece.index, buffer);
        }
        if (gpu && context.report) context.report->copied_bytes += piece.piece.size;
        return SavePiece(source, piece, buffer, name, image);
      });
  if (saver) FillReport(*saver, context.report);
  return status;
}

}  // namespace stasis

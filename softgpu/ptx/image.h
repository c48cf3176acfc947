// Code images as programs hand them to the driver: fat binaries (CUDA-FACTS: layout measured from nvcc's output, and
// fatbinary_section.h for the wrapper), bare PTX text, our own linked container, and ELF, which we cannot run.
#ifndef SOFTGPU_PTX_IMAGE_H_
#define SOFTGPU_PTX_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace softgpu::ptx {

struct FatbinEntry {
  enum class Kind { kPtx, kElf, kOther } kind;
  int sm = 0;
  char suffix = 0;  // 'a', 'f' or 0
  std::span<const std::byte> payload;  // as stored
  uint64_t uncompressed_size = 0;      // 0 when stored plain
  uint64_t stored_size = 0;            // exact size of the compressed bytes
  enum class Codec { kPlain, kLz4, kZstd } codec = Codec::kPlain;
};

// Reads the entries of the fat binary that begins at data[0]; the spans point into `data`.
// kCorrupt with the offset for anything that does not fit.
stasis::Result<std::vector<FatbinEntry>> ReadFatbin(std::span<const std::byte> data);

// The decompressed PTX text of an entry (without its NUL). Bounded to 256 MiB.
stasis::Result<std::string> PtxText(const FatbinEntry& entry);

// The PTX texts an image holds for a device of compute capability major.minor: one for a fat binary (the highest SM not
// above the device; 'a' for the exact device only, 'f' within its family), one for bare PTX, all units of a linked
// container. kUnsupported when there is only machine code or PTX for newer devices (CUDA error 209), kCorrupt when the
// bytes are none of these (CUDA error 200).
stasis::Result<std::vector<std::string>> ReadImage(std::span<const std::byte> data, int major, int minor);

// How many bytes the image at `data` says it has, read from its own header (or NUL for PTX text); follows a
// fatbin wrapper (magic 0x466243B1) to its data. For the driver entry points that get a pointer and no size.
stasis::Result<std::span<const std::byte>> SpanOfImage(const void* data);

// The container that cuLinkComplete hands out: every unit's PTX text, with a checksum.
std::vector<std::byte> PackLinked(const std::vector<std::string>& units);

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_IMAGE_H_

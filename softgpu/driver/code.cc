#include "softgpu/driver/code.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "base/raw_log.h"
#include "softgpu/ptx/image.h"
#include "softgpu/ptx/parser.h"

namespace softgpu {

namespace {

constexpr int kNewestPtx = 90;
constexpr off_t kLargestFile = off_t{1} << 30;

CUresult Fail(CUresult code, const stasis::Status& status, std::string* log) {
  *log = std::string(status.message());
  stasis::RawLog(stasis::LogLevel::kWarning, "module load: %s", log->c_str());
  return code;
}

CUresult ParseUnits(const std::vector<std::string>& texts, std::vector<ptx::Module>* units,
                    std::string* log) {
  for (const std::string& text : texts) {
    stasis::Result<ptx::Module> unit = ptx::Parse(text);
    if (!unit.ok()) return Fail(CUDA_ERROR_INVALID_PTX, unit.status(), log);
    if (unit->version_major * 10 + unit->version_minor > kNewestPtx) {
      return Fail(
          CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
          stasis::Errorf(stasis::StatusCode::kUnsupported, "PTX version %d.%d is newer than the driver",
                         unit->version_major, unit->version_minor),
          log);
    }
    units->push_back(std::move(*unit));
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult JitOptions::Read(unsigned count, CUjit_option* options, void** values, JitOptions* out) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  }
  out->options_ = std::span(options, count);
  out->values_ = values;
  return CUDA_SUCCESS;
}

void** JitOptions::value(CUjit_option option) const {
  for (size_t i = 0; i < options_.size(); i++) {
    if (options_[i] == option) return &values_[i];
  }
  return nullptr;
}

// The size option is both: how much there is, and how much was filled.
void JitOptions::Fill(char* buffer, void** size, const std::string& text) {
  if (buffer == nullptr || size == nullptr) return;
  size_t room = static_cast<unsigned>(reinterpret_cast<uintptr_t>(*size));
  if (room == 0) return;
  size_t length = std::min(room - 1, text.size());
  std::memcpy(buffer, text.data(), length);
  buffer[length] = 0;
  *size = reinterpret_cast<void*>(length);
}

void JitOptions::Report(const std::string& info, const std::string& error) const {
  if (void** buffer = value(CU_JIT_INFO_LOG_BUFFER)) {
    Fill(static_cast<char*>(*buffer), value(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES), info);
  }
  if (void** buffer = value(CU_JIT_ERROR_LOG_BUFFER)) {
    Fill(static_cast<char*>(*buffer), value(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES), error);
  }
}

CUresult LoadTexts(const std::vector<std::string>& texts, Code* code, std::string* log) {
  std::vector<ptx::Module> units;
  CUresult parsed = ParseUnits(texts, &units, log);
  if (parsed != CUDA_SUCCESS) return parsed;
  if (units.size() == 1) {
    code->source = std::move(units.front());
  } else {
    stasis::Result<ptx::Module> linked = ptx::Link(std::move(units));
    if (!linked.ok()) return Fail(CUDA_ERROR_INVALID_PTX, linked.status(), log);
    code->source = std::move(*linked);
  }
  stasis::Result<std::shared_ptr<exec::Program>> program = exec::Program::Load(code->source);
  if (!program.ok()) return Fail(CUDA_ERROR_INVALID_PTX, program.status(), log);
  code->program = std::move(*program);
  return CUDA_SUCCESS;
}

CUresult LoadCode(std::span<const std::byte> image, const Device& device, Code* code, std::string* log) {
  stasis::Result<std::vector<std::string>> texts = ptx::ReadImage(
      image, static_cast<int>(device.info().compute_major), static_cast<int>(device.info().compute_minor));
  if (!texts.ok()) {
    bool none = texts.status().code() == stasis::StatusCode::kUnsupported;
    return Fail(none ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE, texts.status(), log);
  }
  return LoadTexts(*texts, code, log);
}

CUresult LoadImage(const void* image, const Device& device, const JitOptions& options, Code* code) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string log;
  stasis::Result<std::span<const std::byte>> bytes = ptx::SpanOfImage(image);
  CUresult result = bytes.ok() ? LoadCode(*bytes, device, code, &log)
                               : Fail(CUDA_ERROR_INVALID_IMAGE, bytes.status(), &log);
  options.Report("", log);
  return result;
}

CUresult ReadFile(const char* path, std::vector<std::byte>* bytes) {
  stasis::Fd file(open(path, O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return CUDA_ERROR_FILE_NOT_FOUND;
  if (info.st_size > kLargestFile) return CUDA_ERROR_INVALID_IMAGE;
  bytes->resize(static_cast<size_t>(info.st_size));
  size_t have = 0;
  while (have < bytes->size()) {
    ssize_t got = read(file.get(), bytes->data() + have, bytes->size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return CUDA_ERROR_FILE_NOT_FOUND;
    have += static_cast<size_t>(got);
  }
  return CUDA_SUCCESS;
}

}  // namespace softgpu

// What a ghost reads that it did not write: requests on its socket, records of the task, CRIU's images,
// tables of the kernel. The first byte says which.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/process.h"
#include "ghost/criu.h"
#include "ghost/criu_pages.h"
#include "ghost/request.h"
#include "ghost/task_config.h"
#include "ghost/tcp.h"

namespace {

using Bytes = std::span<const std::byte>;

std::string_view Text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

constexpr void (*kInputs[])(Bytes) = {
    [](Bytes bytes) { (void)stasis::ParseRequest(Text(bytes)); },
    [](Bytes bytes) {
      stasis::Result<stasis::Json> json = stasis::ParseJsonObject(Text(bytes));
      if (json.ok()) (void)stasis::ParseTaskConfig(*json);
    },
    [](Bytes bytes) { (void)stasis::ParseCriuPagemap(bytes); },
    [](Bytes bytes) { (void)stasis::ParseCriuFiles(bytes); },
    [](Bytes bytes) { (void)stasis::ParseTcpTable(std::string(Text(bytes))); },
    [](Bytes bytes) { (void)stasis::ParseTcpAddress(std::string(Text(bytes))); },
    [](Bytes bytes) { (void)stasis::ParseProcessStat(Text(bytes)); },
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  kInputs[data[0] % std::size(kInputs)](std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}

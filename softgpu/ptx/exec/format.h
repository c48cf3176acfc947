// printf formatting for device code.
#ifndef SOFTGPU_PTX_EXEC_FORMAT_H_
#define SOFTGPU_PTX_EXEC_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace softgpu::exec {

// Where the arguments of one vprintf call come from. The buffer is laid out as C varargs promoted: int 4
// bytes, double, pointers and long 8, each naturally aligned.
class FormatArguments {
 public:
  virtual ~FormatArguments() = default;
  // Reads `bytes` (4 or 8) at `offset` of the buffer; false when that memory cannot be read.
  virtual bool Read(uint64_t offset, unsigned bytes, uint64_t* value) = 0;
  // The string at a device address.
  virtual bool ReadString(uint64_t address, std::string* text) = 0;
};

// Formats as C's printf does; *count gets the number of arguments consumed. False when an argument could not
// be read.
bool FormatText(std::string_view format, FormatArguments* arguments, std::string* text, unsigned* count);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_FORMAT_H_

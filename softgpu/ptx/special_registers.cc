#include "softgpu/ptx/special_registers.h"

#include <algorithm>
#include <charconv>

namespace softgpu::ptx {
namespace {

constexpr std::string_view kNames[] = {
    "tid",
    "ntid",
    "laneid",
    "warpid",
    "nwarpid",
    "ctaid",
    "nctaid",
    "smid",
    "nsmid",
    "gridid",
    "is_explicit_cluster",
    "clusterid",
    "nclusterid",
    "cluster_ctaid",
    "cluster_nctaid",
    "cluster_ctarank",
    "cluster_nctarank",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "clock",
    "clock_hi",
    "clock64",
    "globaltimer",
    "globaltimer_lo",
    "globaltimer_hi",
    "reserved_smem_offset_begin",
    "reserved_smem_offset_end",
    "reserved_smem_offset_cap",
    "total_smem_size",
    "aggr_smem_size",
    "dynamic_smem_size",
    "current_graph_exec",
};

// A family of numbered registers: "pm0".."pm7", "pm0_64".., "envreg0".."envreg31".
bool IsNumbered(std::string_view name, std::string_view prefix, std::string_view suffix, unsigned count) {
  if (name.substr(0, prefix.size()) != prefix) return false;
  name.remove_prefix(prefix.size());
  unsigned number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && number < count && name.substr(end - name.data()) == suffix;
}

}  // namespace

bool IsSpecialRegister(std::string_view name) {
  if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) return true;
  return IsNumbered(name, "envreg", "", 32) || IsNumbered(name, "pm", "", 8) ||
         IsNumbered(name, "pm", "_64", 8) || IsNumbered(name, "reserved_smem_offset_", "", 2);
}

}  // namespace softgpu::ptx

#include "softgpu/ptx/exec/program.h"

#include <cstdlib>
#include <cstring>

#include "softgpu/ptx/exec/loader.h"
#include "softgpu/ptx/exec/program_state.h"

namespace softgpu::exec {

using stasis::Errorf;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

Result<std::shared_ptr<Program>> Program::Load(ptx::Module module) {
  return Loader(std::move(module)).Load();
}

const KernelInfo& InfoOf(const Kernel& kernel) { return kernel.info; }

ConstantPool::~ConstantPool() { std::free(rows_); }

Ref ConstantPool::Intern(BoundValue value, unsigned lane_bytes) {
  if (lane_bytes < 8) value.value &= (uint64_t{1} << (8 * lane_bytes)) - 1;
  std::string key(reinterpret_cast<const char*>(&value.value), sizeof value.value);
  key.push_back(static_cast<char>(value.base));
  key.push_back(static_cast<char>(lane_bytes));
  auto [it, added] = index_.try_emplace(std::move(key), bytes_ | kPoolBase);
  if (added) {
    entries_.push_back({value, lane_bytes, bytes_});
    bytes_ += lane_bytes * kWarpSize;
  }
  return it->second;
}

void ConstantPool::Materialize(uint64_t device_base, uint64_t managed_base) {
  std::free(rows_);
  rows_ = static_cast<std::byte*>(std::aligned_alloc(64, bytes_ + 512));
  STASIS_CHECK(rows_ != nullptr);
  std::memset(rows_, 0, bytes_ + 512);
  for (const Entry& e : entries_) {
    uint64_t value = e.value.value;
    if (e.value.base == BoundValue::Base::kDevice) value += device_base;
    if (e.value.base == BoundValue::Base::kManaged) value += managed_base;
    unsigned bytes = e.lane_bytes < 8 ? e.lane_bytes : 8;
    for (unsigned l = 0; l < kWarpSize; ++l) std::memcpy(rows_ + e.offset + l * e.lane_bytes, &value, bytes);
  }
}

const Kernel* ProgramState::FindKernel(std::string_view name) const {
  for (const Kernel* k : kernel_list_) {
    if (k->info.name == name) return k;
  }
  return nullptr;
}

const GlobalInfo* ProgramState::FindGlobal(std::string_view name) const {
  for (const GlobalInfo& g : globals_) {
    if (g.name == name) return &g;
  }
  return nullptr;
}

Result<uint64_t> ProgramState::RelocatedValue(const ptx::Variable::Relocation& relocation,
                                              uint64_t device_base, uint64_t managed_base) const {
  uint64_t addend = static_cast<uint64_t>(relocation.addend);
  auto place = places_.find(relocation.symbol);
  if (place != places_.end()) {
    bool managed = place->second.address.base == BoundValue::Base::kManaged;
    return (managed ? managed_base : device_base) + place->second.address.value + addend;
  }
  auto function = function_index_.find(relocation.symbol);
  if (function != function_index_.end()) return (kFunctionTag | (function->second + 1)) + addend;
  return Errorf(StatusCode::kInvalidArgument, "unresolved extern symbol '%s' in an initializer",
                relocation.symbol.c_str());
}

Status ProgramState::Bind(uint64_t device_base, uint64_t managed_base) {
  for (const VariablePlace& place : placed_) {
    const ptx::Variable& v = *place.variable;
    bool managed = place.address.base == BoundValue::Base::kManaged;
    auto* at = reinterpret_cast<uint8_t*>((managed ? managed_base : device_base) + place.address.value);
    if (v.size == 0) continue;
    std::memset(at, 0, v.size);
    if (!v.init.empty()) std::memcpy(at, v.init.data(), std::min<uint64_t>(v.init.size(), v.size));
    for (const ptx::Variable::Relocation& r : v.relocations) {
      ASSIGN_OR_RETURN(uint64_t value, RelocatedValue(r, device_base, managed_base));
      value >>= r.shift;
      if (r.size > 8 || r.offset > v.size || r.size > v.size - r.offset) {
        return Errorf(StatusCode::kCorrupt, "initializer of '%s' is larger than the variable",
                      v.name.c_str());
      }
      std::memcpy(at + r.offset, &value, r.size);
    }
  }
  pool_.Materialize(device_base, managed_base);
  return Status();
}

}  // namespace softgpu::exec

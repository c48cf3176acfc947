#include "softgpu/ptx/exec/loader.h"

#include <algorithm>
#include <utility>

#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {

using ptx::Space;
using stasis::Errorf;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

// CUDA C++ Programming Guide, technical specifications per compute capability.
constexpr uint64_t kMaxConstantBytes = 64 * 1024;
constexpr uint64_t kMaxStaticShared = 48 * 1024;
constexpr uint64_t kMaxParamBytes = 32 * 1024;
constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 40;
constexpr uint32_t kRegisterFile = 65536;  // 32-bit registers of a multiprocessor
constexpr uint32_t kMaxThreads = 1024;

uint64_t AlignUp(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

void CollectNames(const ptx::Operand& o, std::set<std::string>* names) {
  if (!o.name.empty() && (o.kind == ptx::Operand::Kind::kSymbol || o.kind == ptx::Operand::Kind::kAddress)) {
    names->insert(o.name);
  }
  for (const ptx::Operand& e : o.elements) CollectNames(e, names);
}

bool IsDynamicShared(const ptx::Variable& v) { return v.is_extern || (v.is_array && v.size == 0); }

}  // namespace

Loader::Loader(ptx::Module module) : program_(std::make_shared<ProgramState>()) {
  program_->module_ = std::move(module);
  module_ = &program_->module_;
}

Result<std::shared_ptr<Program>> Loader::Load() {
  IndexFunctions();
  RETURN_IF_ERROR(PlaceVariables());
  FindReferences();
  PlaceCommonShared();
  RETURN_IF_ERROR(LowerFunctions());
  LinkCode();
  for (uint32_t n = 0; n < sources_.size(); ++n) {
    if (kernel_of_[n]) FinishKernel(kernel_of_[n], n);
  }
  return std::shared_ptr<Program>(program_);
}

void Loader::IndexFunctions() {
  for (const ptx::Function& f : module_->functions) {
    if (f.is_declaration || program_->function_index_.count(f.name) != 0) continue;
    program_->function_index_[f.name] = static_cast<uint32_t>(sources_.size());
    sources_.push_back(&f);
    program_->functions_.push_back(std::make_unique<Function>());
    program_->functions_.back()->name = f.name;
    program_->functions_.back()->is_entry = f.is_entry;
  }
  kernel_of_.assign(sources_.size(), nullptr);
}

void Loader::PlaceVariable(const ptx::Variable& v) {
  if ((v.space != Space::kGlobal && v.space != Space::kConst) || program_->places_.count(v.name) != 0) return;
  // Textures, surfaces and samplers of module scope are opaque 64-bit handles.
  uint64_t size = v.size;
  uint32_t align = std::max<uint32_t>(v.align, 1);
  bool managed = v.managed;
  uint64_t& end = managed ? program_->managed_bytes_ : program_->device_bytes_;
  end = AlignUp(end, align);
  VariablePlace place;
  place.variable = &v;
  place.address = {managed ? BoundValue::Base::kManaged : BoundValue::Base::kDevice, end};
  program_->places_[v.name] = place;
  program_->placed_.push_back(place);
  program_->globals_.push_back({v.name, end, size, align, v.space == Space::kConst, managed,
                                v.is_visible || v.is_weak || v.is_common});
  end += size;
}

Status Loader::PlaceVariables() {
  uint64_t constants = 0, total = 0;
  auto place = [&](const ptx::Variable& v) {
    if (v.is_extern) return;
    if (v.space == Space::kConst) constants = AlignUp(constants, std::max<uint32_t>(v.align, 1)) + v.size;
    if (v.space == Space::kConst || v.space == Space::kGlobal) total += v.size;
    if (total <= kMaxVariableBytes) PlaceVariable(v);
  };
  for (const ptx::Variable& v : module_->variables) place(v);
  for (const ptx::Function* f : sources_) {
    for (const ptx::Variable& v : f->locals) place(v);
  }
  if (constants > kMaxConstantBytes) {
    return Errorf(StatusCode::kInvalidArgument, "too much constant data: %llu bytes, at most %llu",
                  static_cast<unsigned long long>(constants),
                  static_cast<unsigned long long>(kMaxConstantBytes));
  }
  if (total > kMaxVariableBytes) return Status(StatusCode::kInvalidArgument, "too much global data");
  program_->device_bytes_ = AlignUp(program_->device_bytes_, 256);
  program_->managed_bytes_ = AlignUp(program_->managed_bytes_, 256);
  return Status();
}

void Loader::FindReferences() {
  references_.resize(sources_.size());
  calls_indirect_.assign(sources_.size(), false);
  for (size_t n = 0; n < sources_.size(); ++n) {
    for (const ptx::Instruction& i : sources_[n]->instructions) {
      for (const ptx::Operand& o : i.operands) CollectNames(o, &references_[n]);
      if (i.opcode != "call") continue;
      for (const ptx::Operand& o : i.operands)
        calls_indirect_[n] = calls_indirect_[n] || o.kind == ptx::Operand::Kind::kReg;
    }
  }
}

// Functions that `root` may call, itself included; an indirect call may reach any.
std::vector<uint32_t> Loader::Reachable(uint32_t root) const {
  std::vector<bool> seen(sources_.size(), false);
  std::vector<uint32_t> found{root};
  seen[root] = true;
  auto add = [&](uint32_t n) {
    if (!seen[n] && !sources_[n]->is_entry) found.push_back(n);
    seen[n] = true;
  };
  for (size_t k = 0; k < found.size(); ++k) {
    for (const std::string& name : references_[found[k]]) {
      auto it = program_->function_index_.find(name);
      if (it != program_->function_index_.end()) add(it->second);
    }
    if (calls_indirect_[found[k]]) {
      for (uint32_t n = 0; n < sources_.size(); ++n) add(n);
    }
  }
  return found;
}

void Loader::PlaceShared(const ptx::Variable& v, uint64_t* bytes, uint32_t* dynamic_align) {
  if (v.space != Space::kShared || shared_.count(v.name) != 0) return;
  if (IsDynamicShared(v)) {
    shared_[v.name] = {0, true};
    if (dynamic_align) *dynamic_align = std::max(*dynamic_align, v.align);
    return;
  }
  *bytes = AlignUp(*bytes, std::max<uint32_t>(v.align, 1));
  shared_[v.name] = {*bytes, false};
  *bytes += v.size;
}

// Shared variables of device functions lie at the same place in every kernel.
void Loader::PlaceCommonShared() {
  for (size_t n = 0; n < sources_.size(); ++n) {
    if (sources_[n]->is_entry) continue;
    for (const ptx::Variable& v : sources_[n]->locals) PlaceShared(v, &common_shared_bytes_, nullptr);
    for (const ptx::Variable& v : module_->variables) {
      if (references_[n].count(v.name) != 0) PlaceShared(v, &common_shared_bytes_, nullptr);
    }
  }
  common_shared_ = std::move(shared_);
}

Status Loader::PlaceKernelShared(uint32_t index, Kernel* kernel) {
  shared_ = common_shared_;
  uint64_t bytes = 0;
  for (uint32_t n : Reachable(index)) {
    bool uses = false;
    for (const std::string& name : references_[n]) {
      auto it = common_shared_.find(name);
      uses |= it != common_shared_.end() && !it->second.dynamic;
    }
    if (uses) bytes = common_shared_bytes_;
  }
  for (const ptx::Variable& v : sources_[index]->locals) PlaceShared(v, &bytes, &kernel->dynamic_align);
  for (const ptx::Variable& v : module_->variables) {
    if (references_[index].count(v.name) != 0) PlaceShared(v, &bytes, &kernel->dynamic_align);
    if (v.space == Space::kShared && IsDynamicShared(v)) {
      kernel->dynamic_align = std::max(kernel->dynamic_align, v.align);
    }
  }
  if (bytes > kMaxStaticShared) {
    return Errorf(StatusCode::kInvalidArgument,
                  "kernel '%s' uses too much shared data: %llu bytes, at most %llu",
                  sources_[index]->name.c_str(), static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(kMaxStaticShared));
  }
  kernel->info.static_shared = static_cast<uint32_t>(bytes);
  return Status();
}

Status Loader::NewKernel(uint32_t index, Kernel** out) {
  const ptx::Function& f = *sources_[index];
  auto kernel = std::make_unique<Kernel>();
  kernel->info.name = f.name;
  kernel->function = program_->functions_[index].get();
  uint64_t at = 0;
  for (const ptx::Variable& v : f.params) {
    uint32_t align = std::max<uint32_t>(v.align, 1);
    at = AlignUp(at, align);
    if (at + v.size > kMaxParamBytes) {
      return Errorf(StatusCode::kInvalidArgument, "kernel '%s' has too many parameters", f.name.c_str());
    }
    kernel->info.params.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(v.size), align});
    at += v.size;
  }
  kernel->info.param_bytes = static_cast<uint32_t>(at);
  kernel->info.pragmas = f.pragmas;
  uint64_t max_threads = 1, required = 1;
  for (int d = 0; d < 3; ++d) {
    kernel->info.maxntid[d] = f.maxntid[d];
    kernel->info.reqntid[d] = f.reqntid[d];
    max_threads *= std::max<uint32_t>(f.maxntid[d], 1);
    required *= std::max<uint32_t>(f.reqntid[d], 1);
  }
  bool given = f.maxntid[0] != 0 || f.reqntid[0] != 0;
  uint64_t limit = f.reqntid[0] != 0 ? required : max_threads;
  kernel->info.max_threads =
      given ? static_cast<uint32_t>(std::min<uint64_t>(limit, kMaxThreads)) : kMaxThreads;
  *out = kernel.get();
  kernel_of_[index] = kernel.get();
  program_->kernels_.push_back(std::move(kernel));
  return Status();
}

Status Loader::LowerFunctions() {
  for (uint32_t n = 0; n < sources_.size(); ++n) {
    Kernel* kernel = nullptr;
    if (sources_[n]->is_entry) {
      RETURN_IF_ERROR(NewKernel(n, &kernel));
      RETURN_IF_ERROR(PlaceKernelShared(n, kernel));
    } else {
      shared_ = common_shared_;
    }
    FunctionLowering lowering(*sources_[n], program_->functions_[n].get(), kernel, this);
    ASSIGN_OR_RETURN(LoweredFunction lowered, lowering.Run());
    lowered_.push_back(std::move(lowered));
  }
  return Status();
}

void Loader::LinkInst(Inst* inst, Draft* draft, Inst* base) {
  *inst = draft->inst;
  using Flow = Draft::Flow;
  if (!draft->refs.empty()) {
    program_->refs_.push_back(std::move(draft->refs));
    inst->refs = program_->refs_.back().data();
  }
  if (draft->flow == Flow::kGoto || draft->flow == Flow::kBranch) inst->target = base + draft->target;
  if (draft->flow == Flow::kTable) {
    BranchTable& table = program_->tables_.emplace_back();
    for (uint32_t t : draft->targets) table.targets.push_back(base + t);
    inst->table = &table;
  }
  bool call = inst->fn == &OpCall || inst->fn == &OpCallIndirect || inst->fn == &OpBuiltin;
  if (!call) return;
  auto* site = const_cast<CallSite*>(inst->call);
  for (std::vector<CallSlot>* slots : {&site->args, &site->results}) {
    for (CallSlot& s : *slots) {
      if (s.is_register) s.ref = inst->refs[s.ref];
    }
  }
}

void Loader::LinkCode() {
  size_t total = 0;
  for (const LoweredFunction& f : lowered_) total += f.drafts.size();
  program_->code_.resize(total);
  Inst* at = program_->code_.data();
  for (size_t n = 0; n < lowered_.size(); ++n) {
    LoweredFunction& source = lowered_[n];
    Function& f = *program_->functions_[n];
    f.entry = at;
    f.instructions = static_cast<uint32_t>(source.drafts.size());
    f.frame_bytes = source.frame_bytes;
    f.register_units = source.register_units;
    Inst* base = at;
    for (Draft& d : source.drafts) LinkInst(at++, &d, base);
    source.drafts.clear();
  }
}

// Local memory of `index` and what it calls; false when there is no static bound.
bool Loader::StackBound(uint32_t index, std::vector<uint8_t>* state, std::vector<uint64_t>* bytes) const {
  struct Step {
    uint32_t function;
    size_t next;
  };
  constexpr uint8_t kOpen = 1, kDone = 2;
  std::vector<Step> path{{index, 0}};
  (*state)[index] = kOpen;
  while (!path.empty()) {
    Step& s = path.back();
    const Function& f = *program_->functions_[s.function];
    if (f.calls_indirect || f.uses_alloca) return false;
    if (s.next < f.callees.size()) {
      uint32_t callee = f.callees[s.next++];
      if ((*state)[callee] == kOpen) return false;
      if ((*state)[callee] == 0) {
        (*state)[callee] = kOpen;
        path.push_back({callee, 0});
      }
      continue;
    }
    uint64_t deepest = 0;
    for (uint32_t callee : f.callees) deepest = std::max(deepest, (*bytes)[callee]);
    (*bytes)[s.function] = AlignUp(f.local_bytes, 16) + deepest;
    (*state)[s.function] = kDone;
    path.pop_back();
  }
  return true;
}

void Loader::FinishKernel(Kernel* kernel, uint32_t index) {
  KernelInfo& info = kernel->info;
  uint32_t units = 0;
  for (uint32_t n : Reachable(index)) {
    const Function& f = *program_->functions_[n];
    units = std::max(units, f.register_units);
    kernel->specials |= f.specials;
    info.uses_device_malloc |= f.calls_malloc;
    info.uses_grid_sync |= f.uses_grid_sync;
  }
  std::vector<uint8_t> state(sources_.size(), 0);
  std::vector<uint64_t> bytes(sources_.size(), 0);
  kernel->unbounded_stack = !StackBound(index, &state, &bytes);
  uint64_t local = kernel->unbounded_stack ? kernel->function->local_bytes : bytes[index];
  info.local_bytes = static_cast<uint32_t>(std::min<uint64_t>(local, UINT32_MAX));
  // A compiler spills rather than exceed what a block of the largest size may have.
  uint32_t limit = std::min(255u, kRegisterFile / std::max(32u, (info.max_threads + 31) / 32 * 32));
  if (sources_[index]->maxnreg != 0) limit = std::min(limit, sources_[index]->maxnreg);
  info.registers = std::clamp<uint32_t>((units + 1) / 2, 1, limit);
  program_->kernel_list_.push_back(kernel);
}

Ref Loader::Constant(uint64_t value, unsigned lane_bytes) {
  return program_->pool_.Intern({BoundValue::Base::kNone, value}, lane_bytes);
}

Ref Loader::BoundConstant(BoundValue value, unsigned lane_bytes) {
  return program_->pool_.Intern(value, lane_bytes);
}

const VariablePlace* Loader::FindVariable(const std::string& name) {
  auto it = program_->places_.find(name);
  return it == program_->places_.end() ? nullptr : &it->second;
}

bool Loader::FindShared(const std::string& name, uint64_t* offset, bool* dynamic) {
  auto it = shared_.find(name);
  if (it == shared_.end()) return false;
  *offset = it->second.offset;
  *dynamic = it->second.dynamic;
  return true;
}

int Loader::FindFunction(const std::string& name) {
  auto it = program_->function_index_.find(name);
  return it == program_->function_index_.end() ? -1 : static_cast<int>(it->second);
}

Function* Loader::FunctionAtIndex(int index) {
  return program_->functions_[static_cast<size_t>(index)].get();
}

CallSite* Loader::NewCall() { return &program_->calls_.emplace_back(); }

AtomicOp* Loader::NewAtomic() { return &program_->atomics_.emplace_back(); }

MmaOp* Loader::NewMatrix() { return &program_->matrices_.emplace_back(); }

}  // namespace softgpu::exec

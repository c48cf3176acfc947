// Lowering of one PTX function: instructions become Inst with virtual registers, are laid out so that paths
// meet again (see layout.h), and get rows (see allocate.h).
#ifndef SOFTGPU_PTX_EXEC_LOWER_H_
#define SOFTGPU_PTX_EXEC_LOWER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "softgpu/ptx/exec/code.h"
#include "softgpu/ptx/exec/matrix.h"
#include "softgpu/ptx/exec/program_state.h"
#include "softgpu/ptx/module.h"

namespace softgpu::exec {

// A register as written or a temporary, before it has a row.
using VReg = uint32_t;
inline constexpr VReg kNoVReg = 0xffffffff;

// Before allocation, references to the frame hold the number of the virtual register.
inline Ref VirtualRef(VReg v) { return v << 6 | kFrameBase; }

// The field of an instruction that a touch is about; from kRefs on, the elements of refs.
enum class Field : uint8_t { kD, kA, kB, kC, kP, kQ, kImm, kRefs };

struct Touch {
  VReg vreg;
  uint8_t field;      // Field, plus the index for kRefs
  bool def;           // writes; else reads
  bool none = false;  // counts for liveness only (operands of calls)
};

struct Draft {
  Inst inst{};
  std::vector<Touch> touches;
  std::vector<Ref> refs;
  enum class Flow : uint8_t {
    kNext,    // goes on behind itself
    kGoto,    // always to target
    kBranch,  // to target or on
    kTable,   // one of targets
    kEnd,     // never goes on
  } flow = Flow::kNext;
  uint32_t target = 0;            // draft index, once resolved; before: index of the source instruction
  std::vector<uint32_t> targets;  // kTable, as target
  bool guarded_next = false;      // is the guard of the draft behind it: the two stay together
  bool guarded = false;           // its definitions may not happen
  bool pure = false;              // computes a temporary and cannot fault: needs no guard
};

// Result of lowering, before it is linked into the program's code.
struct LoweredFunction {
  std::vector<Draft> drafts;  // in final order; target = index into drafts
  uint32_t frame_bytes = 0;
  uint32_t register_units = 0;
};

// What lowering needs from the program as a whole.
class LoweringContext {
 public:
  virtual ~LoweringContext() = default;
  virtual Ref Constant(uint64_t value, unsigned lane_bytes) = 0;
  virtual Ref BoundConstant(BoundValue value, unsigned lane_bytes) = 0;
  // A global or constant variable; null when there is none.
  virtual const VariablePlace* FindVariable(const std::string& name) = 0;
  // Offset of a shared variable in the block's memory; false when there is none such.
  virtual bool FindShared(const std::string& name, uint64_t* offset, bool* dynamic) = 0;
  // Index of a defined function, or -1.
  virtual int FindFunction(const std::string& name) = 0;
  virtual Function* FunctionAtIndex(int index) = 0;
  virtual CallSite* NewCall() = 0;
  virtual AtomicOp* NewAtomic() = 0;
  virtual MmaOp* NewMatrix() = 0;
};

class FunctionLowering {
 public:
  // `kernel` is null for device functions.
  FunctionLowering(const ptx::Function& source, Function* function, Kernel* kernel, LoweringContext* context);

  stasis::Result<LoweredFunction> Run();

 private:
  using Instruction = ptx::Instruction;
  using Operand = ptx::Operand;
  using Type = ptx::Type;
  using Kind = ptx::Operand::Kind;
  using Status = stasis::Status;
  template <typename T>
  using Result = stasis::Result<T>;

  // What the words of a memory instruction say.
  struct MemoryWords {
    ptx::Space space = ptx::Space::kNone;
    Type type = Type::kNone;
    unsigned vector = 1;
    bool strong = false;
    std::string_view operation;  // atom and red
  };

  struct LocalPlace {
    uint32_t offset;
    uint64_t size;
  };

  // --- lower.cc ---
  Status PlaceLocals();
  void FindAliases();
  void CountDefinitions(std::vector<uint8_t>* definitions) const;
  bool AliasOf(const Instruction& i, VReg* v, Ref* ref);
  Status LowerAll();
  Status LowerGuarded(const Instruction& i, uint32_t index);
  Status LowerOne(const Instruction& i);
  Status LowerAlu(const Instruction& i);
  Status LowerAluShape(const Instruction& i, const AluOp& op);
  Status LowerCompare(const Instruction& i, const AluOp& op);
  void ResolveTargets();
  Status Unknown(const Instruction& i) const;
  Status Bad(const Instruction& i, const char* what) const;

  // --- lower_operand.cc: operands ---
  VReg NewTemp(unsigned lane_bytes);
  unsigned BytesOf(VReg v) const { return vreg_bytes_[v]; }
  Ref RefOf(VReg v) const;
  Draft& Emit(Handler fn);
  void Use(Draft& d, Field field, Ref ref, unsigned element = 0);
  void Def(Draft& d, Field field, VReg v, unsigned element = 0);
  void UsePred(Draft& d, Field field, VReg v);
  void DefPred(Draft& d, Field field, VReg v);
  // A row with the operand's value, read as `type`; may emit code.
  Result<Ref> Source(const Operand& o, Type type);
  Result<Ref> SourceBytes(const Operand& o, unsigned lane_bytes);
  Result<Ref> SpecialRow(const std::string& name, unsigned lane_bytes);
  Result<Ref> Resized(Ref ref, unsigned from, unsigned to, bool sign);
  Result<Ref> SymbolRow(const Operand& o, unsigned lane_bytes);
  // The register that an instruction with result type `type` writes: the operand's own, or a temporary that
  // FinishDest copies into it.
  Result<VReg> Dest(const Operand& o, unsigned lane_bytes);
  Status FinishDest(const Operand& o, VReg v, bool sign);
  Result<VReg> PredicateOperand(const Operand& o);
  VReg Carry();
  // Address operand into inst fields a, y, imm; may emit code before, so `out` is filled by ApplyAddress
  // later.
  struct Address {
    MemSpace space = MemSpace::kGeneric;
    AddressMode mode = AddressMode::kNone;
    Ref row = 0;
    int64_t imm = 0;
    bool kernel_param = false;
  };
  Result<Address> AddressOf(const Operand& o, ptx::Space space);
  void ApplyAddress(Draft& d, const Address& address);

  // --- lower_memory.cc ---
  Status ParseMemoryWords(const Instruction& i, MemoryWords* words) const;
  Status LowerLoad(const Instruction& i);
  Status LowerStore(const Instruction& i);
  Status LowerAtomic(const Instruction& i, bool reduction);
  Status LowerCpAsync(const Instruction& i);
  bool TryParamRow(const Operand& address, const MemoryWords& words, unsigned lane_bytes, Ref* ref);

  // --- lower_move.cc ---
  Status LowerMov(const Instruction& i);
  Status LowerPredicateLogic(const Instruction& i);
  Status LowerCvta(const Instruction& i);
  Status LowerIsSpace(const Instruction& i);
  Status LowerAlloca(const Instruction& i);

  // --- lower_texture.cc ---
  struct SampleWords {
    uint8_t geometry = 0xff;
    unsigned vector = 1;
    uint8_t mode = 0;  // SurfaceMode
  };
  Status ParseSampleWords(const Instruction& i, SampleWords* words) const;
  Status SampleOperands(const Instruction& i, const Operand& where, uint8_t geometry, Type coordinate,
                        std::vector<Ref>* rows);
  Status LowerTexture(const Instruction& i);
  Status LowerSurface(const Instruction& i, bool store);

  // --- lower_matrix.cc ---
  Status FragmentRegisters(const Instruction& i, const Operand& o, bool defines, Draft* d,
                           Fragment* fragment);
  Status LowerMultiply(const Instruction& i, bool opaque);
  Status LowerWmma(const Instruction& i);
  Status LowerLoadMatrix(const Instruction& i);

  // --- lower_control.cc ---
  Status LowerBranch(const Instruction& i);
  Status LowerBranchTable(const Instruction& i);
  Status LowerCall(const Instruction& i);
  Status CallSlots(const Instruction& i, const std::vector<Operand>& operands, Draft* d, bool results,
                   const std::vector<CallSlot>* shape, std::vector<CallSlot>* slots);
  Status LowerSync(const Instruction& i, bool* known);
  Status LowerShuffle(const Instruction& i);
  Status LowerVote(const Instruction& i);
  Status LowerMatch(const Instruction& i);
  Status LowerRedux(const Instruction& i);
  Status LowerBarrier(const Instruction& i);
  bool MayBeGuarded(const Instruction& i) const;

  const ptx::Function& source_;
  Function* function_;
  Kernel* kernel_;
  LoweringContext* context_;
  std::vector<Draft> drafts_;
  std::vector<uint8_t> vreg_bytes_;      // 0 = predicate
  std::unordered_map<VReg, Ref> alias_;  // registers that always hold the value of a constant row
  std::unordered_map<std::string, LocalPlace> locals_;  // .local and .param variables: place in the frame
  std::unordered_map<std::string, ParamInfo> kernel_params_;
  std::vector<uint32_t> first_draft_;  // by source instruction
  uint32_t line_ = 0;
  VReg carry_ = kNoVReg;
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_LOWER_H_

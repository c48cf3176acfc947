// The lowered form that the executor runs: an array of fixed-size instructions, each with the function that
// executes it.
//
// Operands are references to rows (see lanes.h) relative to one of the bases that a running warp holds, so
// that code is independent of warps and shared by all of them.
#ifndef SOFTGPU_PTX_EXEC_CODE_H_
#define SOFTGPU_PTX_EXEC_CODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/exec/lanes.h"
#include "softgpu/ptx/exec/program.h"

namespace softgpu::exec {

struct Inst;
struct Warp;
struct Function;
struct CallSite;
struct BranchTable;
struct AtomicOp;
struct MmaOp;

// Executes *i for the lanes of w.mask and returns the next instruction, or kStopPc after having set w.reason.
using Handler = const Inst* (*)(Warp& w, const Inst* i);

// A row: the byte offset of the row, with the number of its base in the low bits (rows are 64-byte aligned).
using Ref = uint32_t;
enum RefBase : uint32_t {
  kFrameBase = 0,    // registers of the running function
  kPoolBase = 1,     // constants of the program
  kSpecialBase = 2,  // special registers, filled in when a warp starts
  kParamBase = 3,    // kernel parameters as rows, filled in when a grid is made
};

// Where memory instructions find their data. kConst and kGlobal are the same: constants lie in device memory.
enum class MemSpace : uint8_t { kGlobal, kShared, kLocal, kKernelParam, kGeneric };

// How the register part of an address is read.
// kFrame: from the local memory of the running activation.
enum class AddressMode : uint8_t { kNone, k32, k64, kFrame };

// The top byte of a generic address tells the window; user memory has zero there (47-bit addresses).
inline constexpr unsigned kTagShift = 56;
inline constexpr uint64_t kSharedTag = uint64_t{0x01} << kTagShift;
inline constexpr uint64_t kLocalTag = uint64_t{0x02} << kTagShift;
inline constexpr uint64_t kParamTag = uint64_t{0x03} << kTagShift;
inline constexpr uint64_t kFunctionTag = uint64_t{0x04} << kTagShift;
inline constexpr uint64_t kOffsetMask = (uint64_t{1} << kTagShift) - 1;

struct LaneAddresses;
using LoadFn = void (*)(void* row, const LaneAddresses& at, unsigned offset, uint32_t mask);
using StoreFn = void (*)(const void* row, const LaneAddresses& at, unsigned offset, uint32_t mask);

struct Inst {
  Handler fn;
  union {
    LaneFn lane;
    Lane4Fn lane4;
    CompareFn compare;
    SelectFn select;
    CarryFn carry;
    TestFn test;
    LoadFn load;
    StoreFn store;
    const Inst* target;
    const CallSite* call;
    const BranchTable* table;
    const AtomicOp* atomic;
    const MmaOp* mma;
    uint64_t number;
  };
  const Ref* refs;  // further operands (vectors)
  int64_t imm;      // displacement of an address, or a constant
  Ref d, a, b, c;
  uint32_t p, q;    // predicates: byte offset of the mask in the frame
  uint32_t line;    // in the PTX text
  uint8_t x, y, z;  // small parameters, meaning by handler
  uint8_t count;    // number of refs
};
static_assert(sizeof(Inst) == 64);

// A predicate operand that is not there.
inline constexpr uint32_t kNoPredicate = 0xffffffff;

struct BranchTable {
  std::vector<const Inst*> targets;
};

// One argument or result of a call: bytes in the local memory of a frame, or a register.
struct CallSlot {
  bool is_register = false;
  Ref ref = 0;           // register form
  uint32_t offset = 0;   // memory form: from the frame's local base
  uint32_t size = 0;     // bytes
  bool skipped = false;  // has no place: nothing is copied
};

// What a function does when it is called and is not written in PTX.
enum class Builtin : uint8_t { kNone, kVprintf, kMalloc, kFree, kAssertFail, kSetConditional };

struct CallSite {
  const Function* callee = nullptr;  // null: indirect, the address is in row inst->a
  Builtin builtin = Builtin::kNone;
  std::vector<CallSlot> args, results;
};

struct Function {
  std::string name;
  const Inst* entry = nullptr;
  uint32_t instructions = 0;
  uint32_t frame_bytes = 0;     // rows and predicates
  uint32_t register_units = 0;  // 16-bit units a thread at the widest point
  uint32_t local_bytes = 0;     // .local and .param variables of one activation
  std::vector<CallSlot> params, results;
  bool is_entry = false;
  bool uses_alloca = false, calls_indirect = false, calls_malloc = false;
  std::vector<uint32_t> callees;  // indices into ProgramImpl::functions
  uint64_t specials = 0;          // bit per Special used
  bool uses_grid_sync = false;
  bool uses_common_shared = false;
};

// Special registers that are constant for a warp and live in rows.
enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kDynamicSmem,
  kTotalSmem,
  kAggrSmem,
  kEnvreg1,
  kEnvreg2,
  kZero,
  kOne,
  kReservedSmemOffset,
  kCount
};
inline constexpr unsigned kSpecialCount = static_cast<unsigned>(Special::kCount);
// Each has a 256-byte slot, wide enough for 64-bit ones (gridid).
inline constexpr uint32_t kSpecialSlot = 256;
inline Ref SpecialRef(Special s) { return static_cast<uint32_t>(s) * kSpecialSlot | kSpecialBase; }

// A kernel parameter that code reads as a row.
struct ParamRow {
  uint32_t offset;  // in the parameter block
  uint32_t bytes;   // read from there: 1, 2, 4, 8
  uint32_t lane_bytes;
  bool sign;
  uint32_t row;  // byte offset in the grid's parameter rows
};

struct Kernel {
  KernelInfo info;
  const Function* function = nullptr;
  std::vector<ParamRow> param_rows;
  uint32_t param_row_bytes = 0;
  uint32_t dynamic_align = 16;
  uint64_t specials = 0;         // of all functions that it can reach
  bool unbounded_stack = false;  // recursion, indirect calls or alloca: no static bound on local memory
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_CODE_H_

// Warp-wide register values and the functions that compute on them.
//
// A PTX register of one warp is a "row": 32 lane values side by side. 8- and 16-bit types take 2 bytes a lane
// (64-byte row), 32-bit and packed types 4 bytes (128), 64-bit 8 bytes (256). Rows are 64-byte aligned. Bits
// of an 8-bit value above bit 7 are unspecified on input and extend the value's sign on output (zeros for
// unsigned). Predicates are not rows but one uint32_t, bit l = lane l.
//
// Every function here is pure, may be called from any thread, reads all 32 lanes of its sources (inactive
// lanes hold arbitrary bits and must not trap) and changes only the lanes of `mask` in its destination.
// Destination may alias a source. The thread's MXCSR is at its default on entry and left at its default.
#ifndef SOFTGPU_PTX_EXEC_LANES_H_
#define SOFTGPU_PTX_EXEC_LANES_H_

#include <cstdint>

#include "base/status.h"
#include "softgpu/ptx/module.h"

namespace softgpu::exec {

inline constexpr unsigned kWarpSize = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

// d = f(a, b, c); unused sources are null.
using LaneFn = void (*)(void* d, const void* a, const void* b, const void* c, uint32_t mask);
// As LaneFn with a fourth source (bfi).
using Lane4Fn = void (*)(void* d, const void* a, const void* b, const void* c, const void* e, uint32_t mask);
// The comparison's outcome for all 32 lanes (bits of inactive lanes are arbitrary).
using CompareFn = uint32_t (*)(const void* a, const void* b);
// d = pred ? a : b.
using SelectFn = void (*)(void* d, const void* a, const void* b, uint32_t pred, uint32_t mask);
// Extended precision: reads and, for `.cc`, writes the condition-code carry bits of the lanes of mask in
// *carry.
using CarryFn = void (*)(void* d, const void* a, const void* b, const void* c, uint32_t mask,
                         uint32_t* carry);
// A property of the 32 lanes of one row: testp.
using TestFn = uint32_t (*)(const void* a);

// Bytes a lane of a register of this type takes in a row: 2, 4, 8 or 16.
unsigned LaneBytes(ptx::Type type);

// An arithmetic, logic, conversion or comparison instruction, resolved. Which sources are rows follows the
// instruction's operands in order. Immediate operands are turned into rows by the caller, using
// `source_type`.
struct AluOp {
  enum class Shape : uint8_t {
    kLane,     // lane(d, a, b, c, mask)
    kLane4,    // lane4(d, a, b, c, e, mask): bfi
    kCompare,  // compare(a, b): setp without its boolean combination; the caller does .and/.or/.xor and p|q
    kSelect,   // select(d, a, b, pred, mask): selp; slct is kLane
    kCarry,    // carry(d, a, b, c, mask, &cc): add.cc sub.cc addc subc mad.cc madc
    kTest,     // test(a): testp
  };
  Shape shape = Shape::kLane;
  union {
    LaneFn lane;
    Lane4Fn lane4;
    CompareFn compare;
    SelectFn select;
    CarryFn carry;
    TestFn test;
  };
  uint8_t sources = 0;       // how many row sources (selp: 2, its predicate not counted)
  ptx::Type dest_type;       // type of the destination row (kPred for compare and test)
  ptx::Type source_type[4];  // type each source row is read as, also how its immediate is encoded
};

// Finds the implementation of an ALU instruction: add sub mul mad fma div rem min max abs neg sad dp2a dp4a
// mul24 mad24 sqrt rcp rsqrt ex2 lg2 sin cos tanh copysign testp, add/sub/addc/subc/mad/madc with carry, and
// or xor not cnot lop3 shl shr shf bfe bfi bfind brev clz popc prmt fns bmsk szext set setp selp slct cvt
// (all types) mov (register to register, same width), cvt.pack, and their packed and saturating forms.
// kNotFound: not an opcode of this table. kUnsupported: the opcode, but not with these words or types.
// The implementation is chosen once per process for the best instruction set the CPU has; results are
// bit-identical whichever is chosen.
stasis::Result<AluOp> FindAlu(const ptx::Instruction& instruction);

// The constant row value of an immediate operand when it is read as `type`: low LaneBytes(type) bytes are
// used. Handles integer literals used as floats' bit patterns (.b32), 0f/0d literals and decimal literals.
uint64_t EncodeImmediate(const ptx::Operand& operand, ptx::Type type);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_LANES_H_

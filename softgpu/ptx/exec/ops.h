// The handlers that lowering puts into instructions, by family. Each comment tells which fields of Inst it
// reads.
#ifndef SOFTGPU_PTX_EXEC_OPS_H_
#define SOFTGPU_PTX_EXEC_OPS_H_

#include "softgpu/ptx/exec/code.h"
#include "softgpu/ptx/exec/warp.h"

namespace softgpu::exec {

// --- ops_basic.cc: arithmetic, moves, predicates ---
// lane(d, a, b, c) with 0 to 3 sources.
const Inst* OpLane0(Warp& w, const Inst* i);
const Inst* OpLane1(Warp& w, const Inst* i);
const Inst* OpLane2(Warp& w, const Inst* i);
const Inst* OpLane3(Warp& w, const Inst* i);
const Inst* OpLane4(Warp& w, const Inst* i);
// compare(a, b) or test(a) into predicate p (and its complement into q), combined with predicate imm by x.
enum Combine : uint8_t { kNoCombine, kAnd, kOr, kXor };
inline constexpr uint8_t kNegateCombined = 1;  // y: the third operand is negated
const Inst* OpCompare(Warp& w, const Inst* i);
const Inst* OpTest(Warp& w, const Inst* i);
// select(d, a, b, predicate p negated by y).
const Inst* OpSelect(Warp& w, const Inst* i);
// carry(d, a, b, c, predicate p is the carry).
const Inst* OpCarry(Warp& w, const Inst* i);
// Copies a row of 2, 4, 8 or 16 bytes a lane.
Handler CopyHandler(unsigned lane_bytes);
// d = a, converted between integer widths; sign extends.
Handler ResizeHandler(unsigned from, unsigned to, bool sign);
// mov with vectors: refs are the parts (x bytes each, low part first), d or a the whole (y bytes).
const Inst* OpPack(Warp& w, const Inst* i);
const Inst* OpUnpack(Warp& w, const Inst* i);
// Predicate logic: p = q (x) r, r = predicate offset in d; y bit 0 negates q, bit 1 negates r.
enum PredicateOp : uint8_t { kPredMov, kPredNot, kPredAnd, kPredOr, kPredXor };
const Inst* OpPredicate(Warp& w, const Inst* i);
// p = constant imm.
const Inst* OpPredicateConst(Warp& w, const Inst* i);
// Executes the next instruction for the lanes of predicate p (negated by y) only.
const Inst* OpGuard(Warp& w, const Inst* i);
// d = an address or id: frame's local base + imm (8 or 4 bytes a lane by x).
const Inst* OpLocalAddress(Warp& w, const Inst* i);
// d = offset of dynamic shared memory + imm.
const Inst* OpDynamicShared(Warp& w, const Inst* i);
// d = a + imm (64 bits), and a - imm by the same.
const Inst* OpAdd64(Warp& w, const Inst* i);
// cvta.to: d = a & imm. Generic null is null in every space.
const Inst* OpMask64(Warp& w, const Inst* i);
// cvta: d = a | imm.
const Inst* OpOr64(Warp& w, const Inst* i);
// isspacep: predicate p = (tag of a == imm).
const Inst* OpIsSpace(Warp& w, const Inst* i);
// Time: d = clock (x = 0), clock_hi (1), globaltimer (2), its halves (3 low, 4 high); y = lane bytes.
const Inst* OpClock(Warp& w, const Inst* i);
const Inst* OpNop(Warp& w, const Inst* i);
const Inst* OpFence(Warp& w, const Inst* i);
// Suspends the warp for a[lane] nanoseconds.
const Inst* OpNanosleep(Warp& w, const Inst* i);
const Inst* OpAlloca(Warp& w, const Inst* i);

// --- ops_memory.cc: cp.async ---
// Copies x bytes: from as loads; to: mode z, row b, displacement number; refs[0], if any: bytes to read, rest
// is zero.
const Inst* OpCopyAsync(Warp& w, const Inst* i);

// --- ops_control.cc ---
const Inst* OpBranch(Warp& w, const Inst* i);      // target
const Inst* OpBranchBack(Warp& w, const Inst* i);  // target, imm = cost
const Inst* OpBranchIf(Warp& w, const Inst* i);    // predicate p negated by y; target, imm = cost (0 forward)
const Inst* OpBranchTable(Warp& w, const Inst* i);  // table, index row a
const Inst* OpPoll(Warp& w, const Inst* i);         // imm = cost
const Inst* OpExit(Warp& w, const Inst* i);
const Inst* OpTrap(Warp& w, const Inst* i);
const Inst* OpIllegal(Warp& w, const Inst* i);
const Inst* OpCall(Warp& w, const Inst* i);          // call
const Inst* OpCallIndirect(Warp& w, const Inst* i);  // call, address row a
const Inst* OpReturn(Warp& w, const Inst* i);
const Inst* OpBuiltin(Warp& w, const Inst* i);  // call

// --- ops_sync.cc ---
const Inst* OpActiveMask(Warp& w, const Inst* i);  // d
const Inst* OpElect(Warp& w, const Inst* i);       // d, p; membermask b
// x = mode; d = result, a = value, b = lane, c = clamp, refs[0] = membermask, p = predicate or none
enum ShuffleMode : uint8_t { kShuffleUp, kShuffleDown, kShuffleBfly, kShuffleIdx };
const Inst* OpShuffle(Warp& w, const Inst* i);
// x = mode; p = result (all, any, uni) or d = ballot; q = source predicate, y = its negation; b = membermask
enum VoteMode : uint8_t { kVoteAll, kVoteAny, kVoteUni, kVoteBallot };
const Inst* OpVote(Warp& w, const Inst* i);
// The forms without .sync: the active lanes take part.
const Inst* OpVoteActive(Warp& w, const Inst* i);
const Inst* OpShuffleActive(Warp& w, const Inst* i);
// x = 1 for .all; y = value bytes; d, a = value, b = membermask, p = predicate or none
const Inst* OpMatch(Warp& w, const Inst* i);
// x = operation; d, a, b = membermask
enum class ReduxOp : uint8_t { kAnd, kOr, kXor, kAdd, kMinU, kMaxU, kMinS, kMaxS };
const Inst* OpRedux(Warp& w, const Inst* i);
const Inst* OpWarpSync(Warp& w, const Inst* i);  // membermask b

// --- ops_barrier.cc: id row a, thread count row b (x bit 0: given) ---
const Inst* OpBarrierSync(Warp& w, const Inst* i);
const Inst* OpBarrierArrive(Warp& w, const Inst* i);
// q = source predicate (negated by z), y = BarrierReduction; d or p = result
enum BarrierReduction : uint8_t { kReducePopc, kReduceAnd, kReduceOr };
const Inst* OpBarrierReduce(Warp& w, const Inst* i);

// --- ops_texture.cc ---
enum class Geometry : uint8_t { k1d, k2d, k3d, kA1d, kA2d };
// Coordinates of a geometry: layers come first.
inline constexpr unsigned kCoordinates[] = {1, 2, 3, 2, 3};
// x = geometry, y bit 0: coordinates are f32, z: results are f32 (0) or integers (1);
// refs: handle, coordinates, four results (kNoPredicate where not wanted)
const Inst* OpTexture(Warp& w, const Inst* i);
enum class SurfaceMode : uint8_t { kTrap, kClamp, kZero };
// x = geometry, y = bytes of an element, z = mode, imm = elements; refs: handle, coordinates, elements
const Inst* OpSurfaceLoad(Warp& w, const Inst* i);
const Inst* OpSurfaceStore(Warp& w, const Inst* i);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_OPS_H_

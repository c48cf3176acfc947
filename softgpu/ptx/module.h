// The parsed form of one PTX translation unit, as written: names, words and numbers, nothing resolved beyond the file.
//
// Source of the language rules: PTX ISA 9.0, chapters 4 (syntax), 5 (state spaces, types), 7 (ABI), 9 (instructions),
// 11 (directives). A Module is plain data: freely copied, immutable once parsed, thread-compatible.
#ifndef SOFTGPU_PTX_MODULE_H_
#define SOFTGPU_PTX_MODULE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace softgpu::ptx {

// Scalar types of PTX (5.2). The packed ones (F16x2 ...) occupy one 32-bit register.
enum class Type : uint8_t {
  kNone, kU8, kU16, kU32, kU64, kS8, kS16, kS32, kS64, kB8, kB16, kB32, kB64, kB128,
  kF16, kF16x2, kBF16, kBF16x2, kTF32, kF32, kF64, kPred, kU16x2, kS16x2,
  kE4M3, kE5M2, kE4M3x2, kE5M2x2, kTexref, kSamplerref, kSurfref,
};

// Bytes of one value of the type in memory; kPred and kNone are 0.
unsigned SizeOf(Type type);
// The type's word without the dot, e.g. "u32".
std::string_view NameOf(Type type);
// kNone when `word` (without the dot) names no type.
Type TypeFromName(std::string_view word);

enum class Space : uint8_t { kNone /* generic */, kReg, kSreg, kConst, kGlobal, kLocal, kParam, kShared, kTex };

using RegId = uint32_t;  // index into Function::registers
inline constexpr RegId kNoReg = 0xffffffff;

struct Register {
  std::string name;  // as declared, e.g. "%r12"
  Type type;
};

struct Operand {
  enum class Kind : uint8_t {
    kReg,      // reg; name: the part taken by a video instruction ("b0", "h1"), nearly always empty
    kInt,      // bits: the literal as a 64-bit two's complement pattern (also WARP_SZ = 32, and predicates' constants)
    kF32,      // bits: low 32 = IEEE single pattern of a 0f literal
    kF64,      // bits: IEEE double pattern of a 0d literal or of a decimal floating literal
    kSpecial,  // name: special register with its component, without '%', e.g. "tid.x", "laneid", "clock64"
    kSymbol,   // name (+ offset in bits): variable, parameter, function or label used as a value
    kAddress,  // [base + bits]: base is reg or, when reg == kNoReg, symbol `name` (empty: absolute address)
    kVector,   // elements: {a, b, c, d}; also the coordinate part of tex/surf operands
    kTexture,  // [elements[0], elements[1]{, elements[2]}] as written: handle (or name), then sampler, then coordinate
               // vector or register; an offset behind the handle is in its bits
    kDiscard,  // '_'
    kLabel,    // name: branch target; also the target list of brx.idx, and a call's prototype or target list
    kList,     // (a, b, ...): results and arguments of a call, which is {list,} callee (kReg or kSymbol) {, list}
               // {, label, or the kSymbol of a variable that holds the possible callees}
  };
  Kind kind = Kind::kDiscard;
  bool negated = false;  // !p on a predicate source operand
  RegId reg = kNoReg;
  uint64_t bits = 0;
  std::string name;
  std::vector<Operand> elements;
};

// One instruction. `words` holds every dotted word after the opcode in source order, types included, without dots:
// "atom.global.add.u32" is opcode "atom", words {"global","add","u32"}. `::` qualifiers stay in one word ("shared::cta").
struct Instruction {
  std::string opcode;
  std::vector<std::string> words;
  std::vector<Type> types;        // the words that are types, in order
  std::vector<Operand> operands;  // in source order; "d|p" destinations become two operands with second_dest set
  bool second_dest = false;       // operands[1] was written after '|' (setp p|q, shfl d|p, match d|p)
  RegId guard = kNoReg;           // @p
  bool guard_negated = false;     // @!p
  uint32_t line = 0;              // line in the PTX text, from 1

  bool Has(std::string_view word) const;
  // e.g. "atom.global.add.u32", for messages.
  std::string Mnemonic() const;
};

// A variable in any space, also function parameters.
struct Variable {
  std::string name;
  Space space = Space::kNone;
  Type type = Type::kNone;
  uint32_t align = 0;           // bytes; natural alignment when the source gives none
  uint64_t size = 0;            // bytes in all; 0 for `name[]`
  uint32_t vector = 1;          // .v2 / .v4
  bool is_array = false;
  bool is_extern = false, is_visible = false, is_weak = false, is_common = false;
  bool managed = false;         // .attribute(.managed)
  std::vector<uint8_t> init;    // initial bytes, shorter than size: the rest is zero
  struct Relocation {
    uint64_t offset;            // into the variable
    uint32_t size;              // bytes to write: 4 or 8 (or 1 with mask())
    std::string symbol;         // variable or function
    int64_t addend = 0;
    bool generic = false;       // generic(symbol)
    uint8_t shift = 0;          // mask(): which byte of the address is taken, in bits
  };
  std::vector<Relocation> relocations;
  uint32_t line = 0;
};

// .callprototype, named by its label.
struct Prototype {
  std::string name;
  std::vector<Variable> results, params;
};

struct Function {
  std::string name;
  bool is_entry = false, is_extern = false, is_visible = false, is_weak = false, noreturn = false;
  bool is_declaration = false;            // no body
  std::vector<Variable> results, params;
  // Body. Nested scopes are flattened: names that a scope hides are made unique by the parser.
  std::vector<Register> registers;
  std::vector<Variable> locals;           // .local, .shared, .param, .const, .global declared inside the body
  std::vector<Instruction> instructions;
  std::unordered_map<std::string, uint32_t> labels;  // label -> index into instructions (may be == size())
  std::vector<Prototype> prototypes;
  // brx.idx tables (.branchtargets), and .calltargets, by label.
  std::unordered_map<std::string, std::vector<std::string>> target_lists;
  // Performance-tuning directives (11.4); 0 = not given.
  uint32_t maxntid[3] = {0, 0, 0}, reqntid[3] = {0, 0, 0};
  uint32_t minnctapersm = 0, maxnreg = 0;
  std::vector<std::string> pragmas;       // between the header and the body
  uint32_t line = 0;
};

// .alias: another name of a function that this unit defines. References inside the unit already name the aliasee; the
// pair serves references from units linked with it.
struct Alias {
  std::string name, aliasee;
};

struct Module {
  int version_major = 0, version_minor = 0;  // .version
  std::string target;                        // e.g. "sm_75", without options
  int sm = 0;                                // 75; the letter of sm_90a is only in `target`
  int address_size = 64;
  std::vector<Variable> variables;           // module scope
  std::vector<Function> functions;           // definitions and declarations, in source order
  std::vector<Alias> aliases;
};

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_MODULE_H_

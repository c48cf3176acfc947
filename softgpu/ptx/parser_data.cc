// Declarations of variables and parameters, and initialisers: PTX ISA 9.0, sections 5.2 to 5.5 and 7.1.
#include <bit>
#include <limits>

#include "softgpu/ptx/literal.h"
#include "softgpu/ptx/parse_context.h"

namespace softgpu::ptx {
namespace {

using stasis::Status;

constexpr uint64_t kMaxBytes = uint64_t{1} << 40;
constexpr uint64_t kMaxAlign = uint64_t{1} << 20;
constexpr size_t kMaxDims = 16;

bool IsOpaque(Type type) {
  return type == Type::kTexref || type == Type::kSamplerref || type == Type::kSurfref;
}

// "(.managed)" or "(.unified(1, 2))", also several of them.
Status ParseAttribute(Cursor& in, Variable* variable) {
  RETURN_IF_ERROR(in.Expect('('));
  do {
    if (in.AcceptDot("managed")) {
      variable->managed = true;
      continue;
    }
    if (!in.AcceptDot("unified")) return in.Error("expected an attribute");
    uint64_t ignored = 0;
    RETURN_IF_ERROR(in.Expect('('));
    RETURN_IF_ERROR(in.ExpectCount(std::numeric_limits<uint64_t>::max(), &ignored));
    RETURN_IF_ERROR(in.Expect(','));
    RETURN_IF_ERROR(in.ExpectCount(std::numeric_limits<uint64_t>::max(), &ignored));
    RETURN_IF_ERROR(in.Expect(')'));
  } while (in.Accept(','));
  return in.Expect(')');
}

Status ParseAlign(Cursor& in, uint32_t* align) {
  uint64_t value = 0;
  RETURN_IF_ERROR(in.ExpectCount(kMaxAlign, &value));
  if (!std::has_single_bit(value)) return in.Error("alignment is no power of two");
  *align = static_cast<uint32_t>(value);
  return Status();
}

// ".ptr .global .align 8" of a kernel's parameter tells about the pointee only.
Status SkipPointee(Cursor& in) {
  if (in.AtDot() && SpaceFromName(in.now().text) != Space::kNone) in.Advance();
  uint32_t ignored = 0;
  return in.AcceptDot("align") ? ParseAlign(in, &ignored) : Status();
}

Status ParseModifier(Cursor& in, Variable* variable) {
  if (in.AcceptDot("align")) return ParseAlign(in, &variable->align);
  if (in.AcceptDot("attribute")) return ParseAttribute(in, variable);
  if (in.AcceptDot("ptr")) return SkipPointee(in);
  for (uint32_t width : {2u, 4u, 8u}) {
    if (in.now().text != "v" + std::to_string(width)) continue;
    variable->vector = width;
    in.Advance();
    return Status();
  }
  const Type type = TypeFromName(in.now().text);
  if (type == Type::kNone) return in.Error("unknown word in a declaration");
  if (variable->type != Type::kNone) return in.Error("second type in a declaration");
  variable->type = type;
  in.Advance();
  return Status();
}

// What all names of one declaration share.
Status ParseShared(Cursor& in, Variable* variable) {
  while (in.AtDot()) RETURN_IF_ERROR(ParseModifier(in, variable));
  if (variable->type == Type::kNone) return in.Error("expected a type");
  const uint32_t natural = SizeOf(variable->type) * variable->vector;
  if (natural == 0 && variable->space != Space::kReg) return in.Error("a predicate lives in a register only");
  if (variable->align == 0) variable->align = natural;
  return Status();
}

Status ParseDims(Cursor& in, Variable* variable, std::vector<uint64_t>* dims) {
  while (in.Accept('[')) {
    variable->is_array = true;
    if (dims->size() == kMaxDims) return in.Error("too many dimensions");
    if (in.Accept(']')) {
      if (!dims->empty()) return in.Error("only the first dimension may be left out");
      dims->push_back(0);
      continue;
    }
    Literal literal;
    RETURN_IF_ERROR(ParseConstant(in, &literal));
    if (literal.kind != Literal::Kind::kInt || literal.bits > kMaxBytes) return in.Error("bad dimension");
    dims->push_back(literal.bits);
    RETURN_IF_ERROR(in.Expect(']'));
  }
  return Status();
}

// False when the product is beyond any device.
bool TotalSize(const Variable& variable, const std::vector<uint64_t>& dims, uint64_t* size) {
  uint64_t total = uint64_t{SizeOf(variable.type)} * variable.vector;
  bool is_empty = false;
  for (uint64_t dim : dims) {
    is_empty |= dim == 0;
    if (dim != 0 && (__builtin_mul_overflow(total, dim, &total) || total > kMaxBytes)) return false;
  }
  *size = is_empty ? 0 : total;
  return true;
}

// Samplers' settings "= { addr_mode_0 = wrap, ... }": bindings decide, so the text's are dropped.
Status SkipBraces(Cursor& in) {
  RETURN_IF_ERROR(in.Expect('{'));
  for (int depth = 1; depth > 0; in.Advance()) {
    if (in.AtEnd()) return in.Error("expected '}'");
    depth += in.At('{') - in.At('}');
  }
  return Status();
}

Status ParseDimsAndInit(ParseContext& context, Variable* variable) {
  Cursor& in = context.in;
  std::vector<uint64_t> dims;
  RETURN_IF_ERROR(ParseDims(in, variable, &dims));
  if (!TotalSize(*variable, dims, &variable->size)) return in.Error("variable is too large");
  if (!in.Accept('=')) return Status();
  if (variable->is_extern || (variable->space != Space::kGlobal && variable->space != Space::kConst)) {
    return in.Error("a variable of this kind has no initialiser");
  }
  if (IsOpaque(variable->type)) return SkipBraces(in);
  if (variable->vector > 1) dims.push_back(variable->vector);
  return ParseInitializer(context, std::move(dims), variable);
}

Status ParseParametrisation(ParseContext& context, Declared* declared) {
  if (!context.in.Accept('<')) return Status();
  if (declared->variable.space != Space::kReg) {
    return Cursor::ErrorAt(declared->variable.line, "only registers can be parametrised");
  }
  RETURN_IF_ERROR(context.in.ExpectCount(kMaxRegistersOfFunction, &declared->count));
  if (declared->count == 0) return context.in.Error("expected a count above zero");
  return context.in.Expect('>');
}

}  // namespace

Linkage ParseLinkage(Cursor& in) {
  Linkage linkage;
  for (;;) {
    if (in.AcceptDot("extern"))
      linkage.is_extern = true;
    else if (in.AcceptDot("visible"))
      linkage.is_visible = true;
    else if (in.AcceptDot("weak"))
      linkage.is_weak = true;
    else if (in.AcceptDot("common"))
      linkage.is_common = true;
    else
      return linkage;
  }
}

Space SpaceFromName(std::string_view word) {
  if (word == "reg") return Space::kReg;
  if (word == "const") return Space::kConst;
  if (word == "global") return Space::kGlobal;
  if (word == "local") return Space::kLocal;
  if (word == "param") return Space::kParam;
  if (word == "shared") return Space::kShared;
  if (word == "tex") return Space::kTex;
  return Space::kNone;
}

Status ParseVariables(ParseContext& context, const Linkage& linkage, Space space,
                      std::vector<Declared>* out) {
  Cursor& in = context.in;
  Variable shared;
  shared.space = space;
  shared.is_extern = linkage.is_extern;
  shared.is_visible = linkage.is_visible;
  shared.is_weak = linkage.is_weak;
  shared.is_common = linkage.is_common;
  RETURN_IF_ERROR(ParseShared(in, &shared));
  do {
    Declared& declared = out->emplace_back();
    declared.variable = shared;
    declared.variable.line = in.line();
    RETURN_IF_ERROR(in.ExpectName(&declared.name));
    declared.variable.name = declared.name;
    RETURN_IF_ERROR(ParseParametrisation(context, &declared));
    RETURN_IF_ERROR(ParseDimsAndInit(context, &declared.variable));
  } while (in.Accept(','));
  return in.Expect(';');
}

Status ParseParams(ParseContext& context, std::vector<Variable>* params) {
  Cursor& in = context.in;
  RETURN_IF_ERROR(in.Expect('('));
  if (in.Accept(')')) return Status();
  do {
    Variable& param = params->emplace_back();
    param.line = in.line();
    param.space = in.AcceptDot("param") ? Space::kParam : in.AcceptDot("reg") ? Space::kReg : Space::kNone;
    if (param.space == Space::kNone) return in.Error("expected .param or .reg");
    RETURN_IF_ERROR(ParseShared(in, &param));
    std::string_view name;
    RETURN_IF_ERROR(in.ExpectName(&name));
    param.name = name;
    RETURN_IF_ERROR(ParseDimsAndInit(context, &param));
  } while (in.Accept(','));
  return in.Expect(')');
}

}  // namespace softgpu::ptx

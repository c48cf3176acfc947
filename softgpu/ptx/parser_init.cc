// Initial contents of variables: PTX ISA 9.0, section 5.4.4.
#include <bit>
#include <string>

#include "softgpu/ptx/literal.h"
#include "softgpu/ptx/parse_context.h"

namespace softgpu::ptx {
namespace {

using stasis::Status;

bool IsFloat(Type type) { return type == Type::kF32 || type == Type::kF64; }

// The literal as the element's bytes. Floating literals are converted to the element's type, bit patterns
// written as single or double precision go unchanged into elements of untyped bits.
uint64_t BitsFor(Type type, const Literal& literal) {
  if (literal.kind == Literal::Kind::kInt && !IsFloat(type)) return literal.bits;
  double value = 0;
  if (literal.kind == Literal::Kind::kF32) {
    if (type != Type::kF64) return literal.bits;
    value = std::bit_cast<float>(static_cast<uint32_t>(literal.bits));
  } else if (literal.kind == Literal::Kind::kF64) {
    if (type != Type::kF32) return literal.bits;
    value = std::bit_cast<double>(literal.bits);
  } else {
    value = literal.is_unsigned ? static_cast<double>(literal.bits)
                                : static_cast<double>(static_cast<int64_t>(literal.bits));
  }
  if (type == Type::kF32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<uint64_t>(value);
}

class InitParser {
 public:
  InitParser(ParseContext& context, std::vector<uint64_t> dims, Variable* variable)
      : context_(context), in_(context.in), dims_(std::move(dims)), variable_(*variable) {}

  Status Parse() {
    strides_.assign(dims_.size() + 1, SizeOf(variable_.type));
    for (size_t i = dims_.size(); i > 0; --i) strides_[i - 1] = strides_[i] * dims_[i - 1];
    if (dims_.empty()) return Scalar();
    const bool open_ended = dims_[0] == 0;
    uint64_t count = 0;
    RETURN_IF_ERROR(List(0, 0, &count));
    if (open_ended) variable_.size = count * strides_[1];
    return Status();
  }

 private:
  // One value for a variable that is no array; braces around it are allowed.
  Status Scalar() {
    const bool braced = in_.Accept('{');
    RETURN_IF_ERROR(Element(0));
    return braced ? in_.Expect('}') : Status();
  }

  // "{a, b, ...}" for dimension `level` at byte `offset`; as deep as there are dimensions. A flat list may
  // run over all inner dimensions. *count is how many elements of this dimension are begun.
  Status List(size_t level, uint64_t offset, uint64_t* count) {
    RETURN_IF_ERROR(in_.Expect('{'));
    const uint64_t end = dims_[level] == 0 ? UINT64_MAX : offset + strides_[level];
    uint64_t at = offset;
    while (!in_.At('}')) {
      const bool nested = in_.At('{');
      if (nested && level + 1 == dims_.size()) return in_.Error("initialiser is nested too deeply");
      const uint64_t size = nested ? strides_[level + 1] : strides_.back();
      if (at > end || end - at < size || size == 0) return in_.Error("too many initial values");
      uint64_t ignored = 0;
      RETURN_IF_ERROR(nested ? List(level + 1, at, &ignored) : Element(at));
      at += size;
      if (!in_.Accept(',')) break;
    }
    if (strides_[level + 1] != 0) *count = (at - offset + strides_[level + 1] - 1) / strides_[level + 1];
    return in_.Expect('}');
  }

  Status Element(uint64_t offset) {
    if (in_.AtName() && in_.now().text != "WARP_SZ") return Address(offset, 0, false);
    Literal literal;
    if (!in_.AtNumber()) {
      RETURN_IF_ERROR(ParseConstant(in_, &literal));
      return Put(offset, BitsFor(variable_.type, literal));
    }
    // A number before a parenthesis is a mask: "0xFF00(symbol)".
    Cursor after = in_;
    after.Advance();
    if (!after.At('(')) {
      RETURN_IF_ERROR(ParseConstant(in_, &literal));
      return Put(offset, BitsFor(variable_.type, literal));
    }
    return Masked(offset);
  }

  Status Masked(uint64_t offset) {
    Literal mask;
    if (!ParseLiteral(in_.now().text, &mask)) return in_.Error("malformed number");
    const int shift = mask.bits == 0 ? 0 : std::countr_zero(mask.bits);
    if (mask.kind != Literal::Kind::kInt || shift % 8 != 0 || mask.bits >> shift != 0xff) {
      return in_.Error("mask is not one byte");
    }
    if (SizeOf(variable_.type) != 1) return in_.Error("mask needs elements of one byte");
    in_.Advance();
    RETURN_IF_ERROR(in_.Expect('('));
    RETURN_IF_ERROR(Address(offset, static_cast<uint8_t>(shift), true));
    return in_.Expect(')');
  }

  // "symbol + 4", "generic(symbol) + 4", "generic(symbol + 4)".
  Status Address(uint64_t offset, uint8_t shift, bool masked) {
    Variable::Relocation relocation{};
    relocation.offset = offset;
    relocation.size = SizeOf(variable_.type);
    relocation.shift = shift;
    if (!masked && relocation.size != 4 && relocation.size != 8)
      return in_.Error("an address needs 4 or 8 bytes");
    uint32_t line = in_.line();
    std::string_view name;
    RETURN_IF_ERROR(in_.ExpectName(&name));
    relocation.generic = name == "generic" && in_.Accept('(');
    if (relocation.generic) {
      line = in_.line();
      RETURN_IF_ERROR(in_.ExpectName(&name));
      RETURN_IF_ERROR(Addend(&relocation.addend));
      RETURN_IF_ERROR(in_.Expect(')'));
    }
    RETURN_IF_ERROR(Addend(&relocation.addend));
    relocation.symbol = name;
    context_.used_names.emplace_back(name, line);
    variable_.relocations.push_back(std::move(relocation));
    return Put(offset, 0);
  }

  Status Addend(int64_t* addend) {
    uint64_t sum = static_cast<uint64_t>(*addend);
    while (in_.At('+') || in_.At('-')) {
      const bool minus = in_.At('-');
      in_.Advance();
      Literal literal;
      RETURN_IF_ERROR(ParseUnaryConstant(in_, &literal));
      if (literal.kind != Literal::Kind::kInt) return in_.Error("expected an integer");
      sum = minus ? sum - literal.bits : sum + literal.bits;
    }
    *addend = static_cast<int64_t>(sum);
    return Status();
  }

  Status Put(uint64_t offset, uint64_t bits) {
    const uint64_t size = SizeOf(variable_.type);
    std::vector<uint8_t>& init = variable_.init;
    if (offset + size > init.size()) {
      const uint64_t more = offset + size - init.size();
      if (more > context_.init_bytes_left) return in_.Error("initialiser is larger than its text can fill");
      context_.init_bytes_left -= more;
      init.resize(offset + size);
    }
    for (uint64_t i = 0; i < size && i < sizeof(bits); ++i)
      init[offset + i] = static_cast<uint8_t>(bits >> (8 * i));
    return Status();
  }

  ParseContext& context_;
  Cursor& in_;
  std::vector<uint64_t> dims_;
  std::vector<uint64_t>
      strides_;  // bytes of what dimension i repeats, from outside in; the last is one element
  Variable& variable_;
};

}  // namespace

Status ParseInitializer(ParseContext& context, std::vector<uint64_t> dims, Variable* variable) {
  return InitParser(context, std::move(dims), variable).Parse();
}

}  // namespace softgpu::ptx

// Function bodies: statements, instructions and operands. PTX ISA 9.0, chapters 4.3, 6 and 9.
#include <deque>
#include <string>

#include "softgpu/ptx/literal.h"
#include "softgpu/ptx/parse_context.h"
#include "softgpu/ptx/scope.h"
#include "softgpu/ptx/special_registers.h"

namespace softgpu::ptx {
namespace {

using stasis::Status;
using Kind = Operand::Kind;

// Element of a register vector that the component word names, or -1.
int ComponentIndex(std::string_view word) {
  if (word.size() != 1) return -1;
  const size_t xyzw = std::string_view("xyzw").find(word[0]);
  const size_t rgba = std::string_view("rgba").find(word[0]);
  if (xyzw != std::string_view::npos) return static_cast<int>(xyzw);
  return rgba == std::string_view::npos ? -1 : static_cast<int>(rgba);
}

class BodyParser {
 public:
  BodyParser(ParseContext& context, Function* function)
      : context_(context),
        in_(context.in),
        function_(*function),
        scopes_(function, &context.names, &context.registers_left) {}

  Status Parse() {
    for (Variable& result : function_.results) RETURN_IF_ERROR(AddParam(&result));
    for (Variable& param : function_.params) RETURN_IF_ERROR(AddParam(&param));
    RETURN_IF_ERROR(in_.Expect('{'));
    while (!scopes_.empty()) RETURN_IF_ERROR(Statement());
    return Status();
  }

 private:
  // The scopes look names up by views, which must not point into a Variable that moves.
  Status AddParam(Variable* param) {
    if (param->name == "_") return Status();
    return scopes_.AddParam(param_names_.emplace_back(param->name), param);
  }

  Status Statement();
  Status Directive();
  Status Declaration(const Linkage& linkage, Space space);
  Status LabelOrInstruction();
  Status LabelDirective(std::string_view name, uint32_t line);
  Status BranchTargets(const std::string& unique);
  Status CallTargets(const std::string& unique);
  Status CallPrototype(const std::string& unique);
  Status DefineTargets(std::string_view name, uint32_t line, std::string* unique);

  Status Guard(Instruction* instruction);
  Status Finish(Instruction instruction, std::string_view opcode);
  Status Words(Instruction* instruction);
  Status Operands(Instruction* instruction);
  Status CallOperands(Instruction* instruction);
  Status LabelOperand(Instruction* instruction, ScopeStack::LabelKind kind);
  Status CallList(Operand* operand);

  Status AnyOperand(Instruction* instruction, Operand* operand);
  Status SimpleOperand(Operand* operand);
  Status ConstantOperand(Operand* operand);
  Status NamedOperand(Operand* operand);
  Status VectorOperand(Operand* operand);
  Status BracketOperand(Operand* operand);
  Status AddressBase(Operand* operand);
  Status TextureRest(Operand* operand);
  Status Offset(Operand* operand);
  Status RegisterOperand(const ScopeStack::Entry& entry, Operand* operand);

  ParseContext& context_;
  Cursor& in_;
  Function& function_;
  ScopeStack scopes_;
  std::deque<std::string> param_names_;
};

Status BodyParser::Statement() {
  if (in_.AtName() || in_.At('@')) return LabelOrInstruction();
  if (in_.AtDot()) return Directive();
  if (in_.Accept(';')) return Status();
  if (in_.At('{')) {
    RETURN_IF_ERROR(scopes_.Push(in_.line()));
    in_.Advance();
    return Status();
  }
  if (!in_.Accept('}')) return in_.Error("expected a statement");
  return scopes_.Pop();
}

Status BodyParser::Directive() {
  bool known = false;
  RETURN_IF_ERROR(SkipAnnotation(in_, &known));
  if (known) return Status();
  const Linkage linkage = ParseLinkage(in_);
  const Space space = in_.AtDot() ? SpaceFromName(in_.now().text) : Space::kNone;
  if (space == Space::kNone) return in_.Error("unknown directive in a function");
  in_.Advance();
  return Declaration(linkage, space);
}

Status BodyParser::Declaration(const Linkage& linkage, Space space) {
  std::vector<Declared> declared;
  RETURN_IF_ERROR(ParseVariables(context_, linkage, space, &declared));
  for (Declared& one : declared) {
    Variable& variable = one.variable;
    if (space == Space::kReg) {
      if (variable.is_array) return Cursor::ErrorAt(variable.line, "registers have no dimensions");
      RETURN_IF_ERROR(
          scopes_.AddRegisters(one.name, one.count, variable.vector, variable.type, variable.line));
      continue;
    }
    if (space != Space::kParam) context_.body_names.insert(one.name);
    RETURN_IF_ERROR(scopes_.AddVariable(one.name, std::move(variable)));
  }
  return Status();
}

Status BodyParser::LabelOrInstruction() {
  Instruction instruction;
  if (in_.At('@')) RETURN_IF_ERROR(Guard(&instruction));
  const bool guarded = instruction.guard != kNoReg;
  instruction.line = in_.line();
  std::string_view name;
  RETURN_IF_ERROR(in_.ExpectName(&name));
  if (guarded || !in_.Accept(':')) return Finish(std::move(instruction), name);
  if (in_.AtDot("branchtargets") || in_.AtDot("calltargets") || in_.AtDot("callprototype")) {
    return LabelDirective(name, instruction.line);
  }
  std::string unique;
  RETURN_IF_ERROR(scopes_.AddLabel(name, ScopeStack::LabelKind::kCode, instruction.line, &unique));
  function_.labels[unique] = static_cast<uint32_t>(function_.instructions.size());
  return Status();
}

Status BodyParser::LabelDirective(std::string_view name, uint32_t line) {
  std::string unique;
  RETURN_IF_ERROR(scopes_.AddLabel(name, ScopeStack::LabelKind::kTargets, line, &unique));
  if (in_.AcceptDot("branchtargets")) return BranchTargets(unique);
  if (in_.AcceptDot("calltargets")) return CallTargets(unique);
  in_.Advance();
  return CallPrototype(unique);
}

Status BodyParser::BranchTargets(const std::string& unique) {
  std::vector<std::string>& list = function_.target_lists[unique];
  do {
    const uint32_t line = in_.line();
    std::string_view target;
    RETURN_IF_ERROR(in_.ExpectName(&target));
    scopes_.UseLabelInTargets(target, line, unique, static_cast<uint32_t>(list.size()));
    list.emplace_back(target);
  } while (in_.Accept(','));
  return in_.Expect(';');
}

Status BodyParser::CallTargets(const std::string& unique) {
  std::vector<std::string>& list = function_.target_lists[unique];
  do {
    context_.used_names.emplace_back(in_.now().text, in_.line());
    std::string_view target;
    RETURN_IF_ERROR(in_.ExpectName(&target));
    list.emplace_back(target);
  } while (in_.Accept(','));
  return in_.Expect(';');
}

Status BodyParser::CallPrototype(const std::string& unique) {
  Prototype& prototype = function_.prototypes.emplace_back();
  prototype.name = unique;
  if (in_.At('(')) RETURN_IF_ERROR(ParseParams(context_, &prototype.results));
  std::string_view placeholder;
  RETURN_IF_ERROR(in_.ExpectName(&placeholder));
  if (in_.At('(')) RETURN_IF_ERROR(ParseParams(context_, &prototype.params));
  Function ignored;
  RETURN_IF_ERROR(ParseFunctionDirectives(in_, &ignored));
  return in_.Expect(';');
}

Status BodyParser::Guard(Instruction* instruction) {
  in_.Advance();
  instruction->guard_negated = in_.Accept('!');
  Operand operand;
  if (!in_.AtName()) return in_.Error("expected a predicate");
  const uint32_t line = in_.line();
  RETURN_IF_ERROR(NamedOperand(&operand));
  if (operand.kind != Kind::kReg || function_.registers[operand.reg].type != Type::kPred) {
    return Cursor::ErrorAt(line, "the guard is no predicate register");
  }
  instruction->guard = operand.reg;
  return Status();
}

Status BodyParser::Finish(Instruction instruction, std::string_view opcode) {
  instruction.opcode = opcode;
  RETURN_IF_ERROR(Words(&instruction));
  if (!in_.At(';')) {
    RETURN_IF_ERROR(opcode == "call" ? CallOperands(&instruction) : Operands(&instruction));
  }
  RETURN_IF_ERROR(in_.Expect(';'));
  function_.instructions.push_back(std::move(instruction));
  return Status();
}

Status BodyParser::Words(Instruction* instruction) {
  for (; in_.AtDot(); in_.Advance()) {
    const Type type = TypeFromName(in_.now().text);
    if (type != Type::kNone) instruction->types.push_back(type);
    instruction->words.emplace_back(in_.now().text);
  }
  return Status();
}

Status BodyParser::Operands(Instruction* instruction) {
  instruction->operands.reserve(4);
  do {
    const size_t index = instruction->operands.size();
    if ((instruction->opcode == "bra" && index == 0) || (instruction->opcode == "brx" && index == 1)) {
      RETURN_IF_ERROR(LabelOperand(
          instruction, index == 0 ? ScopeStack::LabelKind::kCode : ScopeStack::LabelKind::kTargets));
      continue;
    }
    RETURN_IF_ERROR(AnyOperand(instruction, &instruction->operands.emplace_back()));
    if (index != 0 || !in_.At('|')) continue;
    in_.Advance();
    instruction->second_dest = true;
    RETURN_IF_ERROR(SimpleOperand(&instruction->operands.emplace_back()));
  } while (in_.Accept(','));
  return Status();
}

Status BodyParser::LabelOperand(Instruction* instruction, ScopeStack::LabelKind kind) {
  const uint32_t line = in_.line();
  std::string_view name;
  RETURN_IF_ERROR(in_.ExpectName(&name));
  scopes_.UseLabelInOperand(name, kind, line, static_cast<uint32_t>(function_.instructions.size()),
                            static_cast<uint32_t>(instruction->operands.size()));
  instruction->operands.emplace_back().kind = Kind::kLabel;
  return Status();
}

// "(results), callee, (arguments), prototype", of which only the callee must be there.
Status BodyParser::CallOperands(Instruction* instruction) {
  if (in_.At('(')) {
    RETURN_IF_ERROR(CallList(&instruction->operands.emplace_back()));
    RETURN_IF_ERROR(in_.Expect(','));
  }
  const uint32_t line = in_.line();
  if (!in_.AtName()) return in_.Error("expected a function");
  Operand& callee = instruction->operands.emplace_back();
  RETURN_IF_ERROR(NamedOperand(&callee));
  const auto named = context_.names.find(callee.name);
  const bool is_function = callee.kind == Kind::kSymbol && named != context_.names.end() && named->second;
  if (callee.kind != Kind::kReg && !is_function) return Cursor::ErrorAt(line, "the callee is no function");
  if (!in_.Accept(',')) return Status();
  if (in_.At('(')) {
    RETURN_IF_ERROR(CallList(&instruction->operands.emplace_back()));
    if (!in_.Accept(',')) return Status();
  }
  // The targets may also be listed by a variable that holds their addresses.
  const auto table = context_.names.find(in_.now().text);
  if (in_.AtName() && table != context_.names.end() && !table->second) {
    return NamedOperand(&instruction->operands.emplace_back());
  }
  return LabelOperand(instruction, ScopeStack::LabelKind::kTargets);
}

Status BodyParser::CallList(Operand* operand) {
  operand->kind = Kind::kList;
  RETURN_IF_ERROR(in_.Expect('('));
  if (in_.Accept(')')) return Status();
  do {
    RETURN_IF_ERROR(SimpleOperand(&operand->elements.emplace_back()));
  } while (in_.Accept(','));
  return in_.Expect(')');
}

Status BodyParser::AnyOperand(Instruction* instruction, Operand* operand) {
  if (in_.At('{')) return VectorOperand(operand);
  if (!in_.At('[')) return SimpleOperand(operand);
  RETURN_IF_ERROR(BracketOperand(operand));
  // "[address]{.unified}" of ld and st.
  if (in_.AtDot("unified")) return Words(instruction);
  return Status();
}

Status BodyParser::SimpleOperand(Operand* operand) {
  if (in_.AtName() && in_.now().text != "WARP_SZ") return NamedOperand(operand);
  if (!in_.At('!')) return ConstantOperand(operand);
  Cursor after = in_;
  after.Advance();
  if (!after.AtName() || after.now().text == "WARP_SZ") return ConstantOperand(operand);
  in_.Advance();
  const uint32_t line = in_.line();
  RETURN_IF_ERROR(NamedOperand(operand));
  operand->negated = true;
  if (operand->kind == Kind::kReg) return Status();
  return Cursor::ErrorAt(line, "only a predicate register can be negated");
}

Status BodyParser::ConstantOperand(Operand* operand) {
  Literal literal;
  RETURN_IF_ERROR(ParseConstant(in_, &literal));
  operand->kind = literal.kind == Literal::Kind::kInt   ? Kind::kInt
                  : literal.kind == Literal::Kind::kF32 ? Kind::kF32
                                                        : Kind::kF64;
  operand->bits = literal.bits;
  return Status();
}

Status BodyParser::NamedOperand(Operand* operand) {
  const std::string_view name = in_.now().text;
  ScopeStack::Entry entry;
  if (name == "_") {
    in_.Advance();
    return Status();
  }
  if (scopes_.Find(name, &entry)) {
    if (entry.kind != ScopeStack::Entry::Kind::kVariable) return RegisterOperand(entry, operand);
    operand->kind = Kind::kSymbol;
    operand->name = scopes_.UniqueName(entry);
    in_.Advance();
    return Offset(operand);
  }
  if (context_.names.count(name) != 0) {
    operand->kind = Kind::kSymbol;
    operand->name = name;
    in_.Advance();
    return Offset(operand);
  }
  if (name[0] != '%' || !IsSpecialRegister(name.substr(1))) return in_.Error("unknown name");
  operand->kind = Kind::kSpecial;
  operand->name = name.substr(1);
  in_.Advance();
  if (in_.AtDot() && in_.now().glued) {
    if (ComponentIndex(in_.now().text) < 0) return in_.Error("unknown component");
    operand->name.append(".").append(in_.now().text);
    in_.Advance();
  }
  return Status();
}

Status BodyParser::RegisterOperand(const ScopeStack::Entry& entry, Operand* operand) {
  in_.Advance();
  const bool has_component = in_.AtDot() && in_.now().glued;
  operand->kind = Kind::kReg;
  operand->reg = entry.index;
  if (entry.kind == ScopeStack::Entry::Kind::kRegister) {
    if (!has_component) return Status();
    operand->name = in_.now().text;
    in_.Advance();
    return Status();
  }
  if (has_component) {
    const int index = ComponentIndex(in_.now().text);
    if (index < 0 || static_cast<uint32_t>(index) >= entry.width) return in_.Error("unknown component");
    operand->reg += static_cast<RegId>(index);
    in_.Advance();
    return Status();
  }
  operand->kind = Kind::kVector;
  operand->reg = kNoReg;
  operand->elements.resize(entry.width);
  for (uint32_t i = 0; i < entry.width; ++i) {
    operand->elements[i].kind = Kind::kReg;
    operand->elements[i].reg = entry.index + i;
  }
  return Status();
}

Status BodyParser::VectorOperand(Operand* operand) {
  operand->kind = Kind::kVector;
  in_.Advance();
  do {
    RETURN_IF_ERROR(SimpleOperand(&operand->elements.emplace_back()));
  } while (in_.Accept(','));
  return in_.Expect('}');
}

// "[base + offset]", or "[handle, coordinates]".
Status BodyParser::BracketOperand(Operand* operand) {
  in_.Advance();
  Operand base;
  RETURN_IF_ERROR(AddressBase(&base));
  if (in_.At(',')) {
    if (base.kind == Kind::kInt) return in_.Error("expected ']'");
    operand->kind = Kind::kTexture;
    operand->elements.push_back(std::move(base));
    return TextureRest(operand);
  }
  *operand = std::move(base);
  operand->kind = Kind::kAddress;
  return in_.Expect(']');
}

// A register, a symbol or a number, with the offsets behind it added into bits.
Status BodyParser::AddressBase(Operand* operand) {
  const uint32_t line = in_.line();
  RETURN_IF_ERROR(SimpleOperand(operand));
  if (operand->kind != Kind::kReg && operand->kind != Kind::kSymbol && operand->kind != Kind::kInt) {
    return Cursor::ErrorAt(line, "expected an address");
  }
  if (operand->negated || (operand->kind == Kind::kReg && !operand->name.empty())) {
    return Cursor::ErrorAt(line, "expected a whole register");
  }
  return Offset(operand);
}

Status BodyParser::TextureRest(Operand* operand) {
  while (in_.Accept(',')) {
    Operand& element = operand->elements.emplace_back();
    RETURN_IF_ERROR(in_.At('{') ? VectorOperand(&element) : SimpleOperand(&element));
  }
  return in_.Expect(']');
}

// "+4", "+-8", "-4": added to bits.
Status BodyParser::Offset(Operand* operand) {
  while (in_.At('+') || in_.At('-')) {
    const bool minus = in_.At('-');
    in_.Advance();
    Literal literal;
    RETURN_IF_ERROR(ParseUnaryConstant(in_, &literal));
    if (literal.kind != Literal::Kind::kInt) return in_.Error("expected an integer");
    operand->bits += minus ? 0 - literal.bits : literal.bits;
  }
  return Status();
}

}  // namespace

Status ParseBody(ParseContext& context, Function* function) { return BodyParser(context, function).Parse(); }

}  // namespace softgpu::ptx

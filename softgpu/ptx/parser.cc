// Module scope: PTX ISA 9.0, chapter 11.
#include "softgpu/ptx/parser.h"

#include <charconv>
#include <limits>

#include "softgpu/ptx/parse_context.h"
#include "softgpu/ptx/rename.h"

namespace softgpu::ptx {
namespace {

using stasis::Status;

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view text) : context_(text), in_(context_.in) {}

  Status Parse() {
    RETURN_IF_ERROR(Version());
    while (!in_.AtEnd()) RETURN_IF_ERROR(Item());
    if (context_.module.target.empty()) return in_.Error("expected .target");
    for (const auto& [name, line] : context_.used_names) {
      if (context_.names.count(name) == 0 && context_.body_names.count(name) == 0) {
        return Cursor::ErrorAt(line, "unknown name '" + std::string(name) + "'");
      }
    }
    ResolveAliases();
    return Status();
  }

  Module Take() { return std::move(context_.module); }

 private:
  Status Version();
  Status Target();
  Status AddressSize();
  Status Item();
  Status ParseFunction(const Linkage& linkage, bool is_entry);
  Status ParseModuleVariables(const Linkage& linkage, Space space);
  Status AddFunctionName(std::string_view name, const Function& function);
  Status ParseAlias();
  void ResolveAliases();

  ParseContext context_;
  Cursor& in_;
  std::unordered_map<std::string_view, bool> defined_functions_;
  std::unordered_map<std::string_view, size_t> variables_;
};

Status ModuleParser::Version() {
  if (!in_.AcceptDot("version")) return in_.Error("expected .version");
  const std::string_view text = in_.now().text;
  const size_t dot = text.find('.');
  if (!in_.AtNumber() || dot == std::string_view::npos) return in_.Error("expected a version");
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), text.data() + dot, context_.module.version_major);
  const auto minor = std::from_chars(text.data() + dot + 1, end, context_.module.version_minor);
  if (major.ec != std::errc() || minor.ec != std::errc() || minor.ptr != end)
    return in_.Error("expected a version");
  in_.Advance();
  return Status();
}

// ".target sm_90a, debug": the first word is the architecture.
Status ModuleParser::Target() {
  Module& module = context_.module;
  do {
    std::string_view word;
    RETURN_IF_ERROR(in_.ExpectName(&word));
    if (word.substr(0, 3) != "sm_") continue;
    const auto result = std::from_chars(word.data() + 3, word.data() + word.size(), module.sm);
    if (result.ec != std::errc() || word.data() + word.size() - result.ptr > 1) {
      return in_.Error("expected an architecture before this");
    }
    module.target = word;
  } while (in_.Accept(','));
  if (module.target.empty()) return in_.Error("expected an architecture before this");
  return Status();
}

Status ModuleParser::AddressSize() {
  uint64_t bits = 0;
  const uint32_t line = in_.line();
  RETURN_IF_ERROR(in_.ExpectCount(64, &bits));
  if (bits != 64) return Cursor::ErrorAt(line, "addresses have 64 bits");
  return Status();
}

// ".alias name, aliasee;"
Status ModuleParser::ParseAlias() {
  const uint32_t line = in_.line();
  std::string_view name, aliasee;
  RETURN_IF_ERROR(in_.ExpectName(&name));
  RETURN_IF_ERROR(in_.Expect(','));
  RETURN_IF_ERROR(in_.ExpectName(&aliasee));
  const auto declared = context_.names.find(name);
  if (declared == context_.names.end() || !declared->second || defined_functions_.count(name) != 0) {
    return Cursor::ErrorAt(line, "an alias must be a function that is declared and not defined");
  }
  if (defined_functions_.count(aliasee) == 0) return Cursor::ErrorAt(line, "alias of an undefined function");
  context_.module.aliases.push_back({std::string(name), std::string(aliasee)});
  return in_.Expect(';');
}

// Every use names the aliasee from here on, and the aliases' declarations go.
void ModuleParser::ResolveAliases() {
  Module& module = context_.module;
  if (module.aliases.empty()) return;
  Renames renames;
  for (const Alias& alias : module.aliases) renames.emplace(alias.name, alias.aliasee);
  RenameUses(renames, &module);
  std::erase_if(module.functions,
                [&](const Function& function) { return renames.count(function.name) != 0; });
}

Status ModuleParser::Item() {
  if (in_.Accept(';')) return Status();
  if (in_.AcceptDot("target")) return Target();
  if (in_.AcceptDot("address_size")) return AddressSize();
  if (in_.AcceptDot("alias")) return ParseAlias();
  bool known = false;
  RETURN_IF_ERROR(SkipAnnotation(in_, &known));
  if (known) return Status();
  Linkage linkage = ParseLinkage(in_);
  if (in_.AcceptDot("entry")) return ParseFunction(linkage, true);
  if (in_.AcceptDot("func")) return ParseFunction(linkage, false);
  const Space space = in_.AtDot() ? SpaceFromName(in_.now().text) : Space::kNone;
  if (space == Space::kNone || space == Space::kReg || space == Space::kParam || space == Space::kLocal) {
    return in_.Error("unknown directive at module scope");
  }
  in_.Advance();
  return ParseModuleVariables(linkage, space);
}

// A function may be declared many times and defined once; a name belongs to one thing.
Status ModuleParser::AddFunctionName(std::string_view name, const Function& function) {
  const auto [found, is_new] = context_.names.emplace(name, true);
  if (!is_new && !found->second) {
    return Cursor::ErrorAt(function.line, "'" + std::string(name) + "' is declared as a variable");
  }
  if (function.is_declaration) return Status();
  if (!defined_functions_.emplace(name, true).second) {
    return Cursor::ErrorAt(function.line, "function '" + std::string(name) + "' is defined twice");
  }
  return Status();
}

Status ModuleParser::ParseFunction(const Linkage& linkage, bool is_entry) {
  Function& function = context_.module.functions.emplace_back();
  function.is_entry = is_entry;
  function.is_extern = linkage.is_extern;
  function.is_visible = linkage.is_visible;
  function.is_weak = linkage.is_weak;
  RETURN_IF_ERROR(ParseFunctionDirectives(in_, &function));  // .attribute stands here
  if (!is_entry && in_.At('(')) RETURN_IF_ERROR(ParseParams(context_, &function.results));
  function.line = in_.line();
  std::string_view name;
  RETURN_IF_ERROR(in_.ExpectName(&name));
  function.name = name;
  if (in_.At('(')) RETURN_IF_ERROR(ParseParams(context_, &function.params));
  RETURN_IF_ERROR(ParseFunctionDirectives(in_, &function));
  function.is_declaration = in_.At(';');
  RETURN_IF_ERROR(AddFunctionName(name, function));
  if (in_.Accept(';')) return Status();
  if (function.is_extern) return in_.Error("an external function has no body");
  return ParseBody(context_, &function);
}

Status ModuleParser::ParseModuleVariables(const Linkage& linkage, Space space) {
  std::vector<Declared> declared;
  RETURN_IF_ERROR(ParseVariables(context_, linkage, space, &declared));
  std::vector<Variable>& variables = context_.module.variables;
  for (Declared& one : declared) {
    Variable& variable = one.variable;
    const auto [found, is_new] = context_.names.emplace(one.name, false);
    if (is_new) {
      variables_.emplace(one.name, variables.size());
      variables.push_back(std::move(variable));
      continue;
    }
    // The one legal repetition: an external declaration next to the definition.
    const auto before = variables_.find(one.name);
    if (before == variables_.end() ||
        (variable.is_extern == variables[before->second].is_extern && !variable.is_extern)) {
      return Cursor::ErrorAt(variable.line, "'" + variable.name + "' is declared twice");
    }
    if (!variable.is_extern) variables[before->second] = std::move(variable);
  }
  return Status();
}

Status ParseThree(Cursor& in, uint32_t* values) {
  values[0] = values[1] = values[2] = 1;
  for (int i = 0; i < 3; ++i) {
    uint64_t value = 0;
    RETURN_IF_ERROR(in.ExpectCount(std::numeric_limits<uint32_t>::max(), &value));
    values[i] = static_cast<uint32_t>(value);
    if (!in.Accept(',')) break;
  }
  return Status();
}

Status ParseOne(Cursor& in, uint32_t* value) {
  uint64_t wide = 0;
  RETURN_IF_ERROR(in.ExpectCount(std::numeric_limits<uint32_t>::max(), &wide));
  *value = static_cast<uint32_t>(wide);
  return Status();
}

// ".attribute(.unified(1, 2))" of a function tells nothing we need.
Status SkipParentheses(Cursor& in) {
  RETURN_IF_ERROR(in.Expect('('));
  for (int depth = 1; depth > 0; in.Advance()) {
    if (in.AtEnd()) return in.Error("expected ')'");
    depth += in.At('(') - in.At(')');
  }
  return Status();
}

Status SkipLoc(Cursor& in) {
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  uint64_t ignored = 0;
  for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(in.ExpectCount(kAny, &ignored));
  while (in.Accept(',')) {
    std::string_view attribute, label;
    RETURN_IF_ERROR(in.ExpectName(&attribute));
    if (attribute == "inlined_at") {
      for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(in.ExpectCount(kAny, &ignored));
      continue;
    }
    if (attribute != "function_name") return in.Error("expected function_name or inlined_at before this");
    RETURN_IF_ERROR(in.ExpectName(&label));
    if (in.Accept('+')) RETURN_IF_ERROR(in.ExpectCount(kAny, &ignored));
  }
  return Status();
}

Status ExpectString(Cursor& in) {
  if (in.now().kind != Token::Kind::kString) return in.Error("expected a string");
  in.Advance();
  return Status();
}

Status SkipFile(Cursor& in) {
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  uint64_t ignored = 0;
  RETURN_IF_ERROR(in.ExpectCount(kAny, &ignored));
  RETURN_IF_ERROR(ExpectString(in));
  while (in.Accept(',')) RETURN_IF_ERROR(in.ExpectCount(kAny, &ignored));
  return Status();
}

Status SkipSection(Cursor& in) {
  while (in.AtDot() || in.AtName()) in.Advance();
  RETURN_IF_ERROR(in.Expect('{'));
  while (!in.At('}')) {
    if (in.AtEnd()) return in.Error("expected '}'");
    in.Advance();
  }
  in.Advance();
  return Status();
}

Status ParsePragma(Cursor& in, std::vector<std::string>* pragmas) {
  do {
    std::string_view text = in.now().text;
    RETURN_IF_ERROR(ExpectString(in));
    pragmas->emplace_back(text);
  } while (in.Accept(','));
  return in.Expect(';');
}

}  // namespace

Status SkipAnnotation(Cursor& in, bool* known) {
  *known = true;
  if (in.AcceptDot("loc")) return SkipLoc(in);
  if (in.AcceptDot("file")) return SkipFile(in);
  if (in.AcceptDot("section")) return SkipSection(in);
  std::vector<std::string> ignored;
  if (in.AcceptDot("pragma")) return ParsePragma(in, &ignored);
  *known = false;
  return Status();
}

Status ParseFunctionDirectives(Cursor& in, Function* function) {
  uint32_t ignored[3];
  for (;;) {
    if (in.AcceptDot("maxntid"))
      RETURN_IF_ERROR(ParseThree(in, function->maxntid));
    else if (in.AcceptDot("reqntid"))
      RETURN_IF_ERROR(ParseThree(in, function->reqntid));
    else if (in.AcceptDot("reqnctapercluster"))
      RETURN_IF_ERROR(ParseThree(in, ignored));
    else if (in.AcceptDot("minnctapersm"))
      RETURN_IF_ERROR(ParseOne(in, &function->minnctapersm));
    else if (in.AcceptDot("maxnreg"))
      RETURN_IF_ERROR(ParseOne(in, &function->maxnreg));
    else if (in.AcceptDot("maxnctapersm") || in.AcceptDot("maxclusterrank") || in.AcceptDot("abi_preserve") ||
             in.AcceptDot("abi_preserve_control"))
      RETURN_IF_ERROR(ParseOne(in, ignored));
    else if (in.AcceptDot("noreturn"))
      function->noreturn = true;
    else if (in.AcceptDot("explicitcluster") || in.AcceptDot("blocksareclusters"))
      continue;
    else if (in.AcceptDot("attribute"))
      RETURN_IF_ERROR(SkipParentheses(in));
    else if (in.AcceptDot("pragma"))
      RETURN_IF_ERROR(ParsePragma(in, &function->pragmas));
    else
      return Status();
  }
}

stasis::Result<Module> Parse(std::string_view text) {
  ModuleParser parser(text);
  RETURN_IF_ERROR(parser.Parse());
  return parser.Take();
}

}  // namespace softgpu::ptx

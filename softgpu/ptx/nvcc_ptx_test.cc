// Whole programs as nvcc compiles them: every statement of the text must be in the module. The count on the
// other side knows nothing of the parser: it cuts comment-free text at semicolons and braces.
#include <algorithm>
#include <cctype>
#include <set>

#include "softgpu/ptx/parser.h"
#include "softgpu/ptx/testdata_testing.h"

namespace softgpu::ptx {
namespace {

std::string WithoutComments(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
      out += '\n';
    } else if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i) + 1;
      out += ' ';
    } else {
      out += text[i];
    }
  }
  return out;
}

struct Statement {
  std::string mnemonic;
  size_t commas = 0;
  bool guarded = false;
};

// Cuts the text of one body, from behind its '{'; *at ends behind the matching '}'.
class BodyCutter {
 public:
  BodyCutter(const std::string& text, size_t at) : text_(text), at_(at) {}

  std::vector<Statement> Cut() {
    std::vector<Statement> statements;
    for (int depth = 1; depth > 0;) {
      while (std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
      const char c = text_[at_];
      if (c == '{' || c == '}') {
        depth += c == '{' ? 1 : -1;
        ++at_;
      } else if (c == ';') {
        ++at_;
      } else if (text_.compare(at_, 5, ".loc\t") == 0 || text_.compare(at_, 5, ".loc ") == 0) {
        at_ = text_.find('\n', at_);
      } else if (c == '.') {
        at_ = text_.find(';', at_) + 1;
      } else {
        Take(&statements);
      }
    }
    return statements;
  }

  size_t at() const { return at_; }

 private:
  // An instruction, or a label, which is left out; ".branchtargets" and the like follow a label.
  void Take(std::vector<Statement>* statements) {
    const size_t colon = text_.find_first_not_of(kWordChars, at_);
    const size_t after_space = text_.find_first_not_of(" \t", colon);
    if (text_[after_space] == ':' && text_[after_space + 1] != ':') {
      at_ = after_space + 1;
      return;
    }
    const size_t end = text_.find(';', at_);
    statements->push_back(Describe(text_.substr(at_, end - at_)));
    at_ = end + 1;
  }

  static Statement Describe(std::string text) {
    Statement statement;
    if (text[0] == '@') {
      statement.guarded = true;
      const size_t guard = text.find_first_not_of("@! \t");
      text = text.substr(text.find_first_not_of(" \t", text.find_first_of(" \t", guard)));
    }
    statement.mnemonic = text.substr(0, text.find_first_of(" \t\n"));
    int depth = 0;
    for (char c : text) {
      depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
      statement.commas += (c == ',' && depth == 0) || c == '|';
    }
    return statement;
  }

  static constexpr const char* kWordChars =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$%";
  const std::string& text_;
  size_t at_;
};

// Everything between a .func or .entry and its '{' or ';' is header. Names of such functions, in order, with
// bodies.
struct Body {
  std::string name;
  std::vector<Statement> statements;
};

std::vector<Body> CutBodies(const std::string& text) {
  std::vector<Body> bodies;
  for (size_t at = 0;;) {
    const size_t entry = text.find(".entry", at), func = text.find(".func", at);
    const size_t start = std::min(entry, func);
    if (start == std::string::npos) return bodies;
    const size_t end = text.find_first_of("{;", start);
    at = end + 1;
    if (text[end] == ';') continue;
    std::string header = text.substr(start + (start == entry ? 6 : 5), end - start);
    header.erase(0, header.find_first_not_of(" \t\n"));
    if (header[0] == '(') header.erase(0, header.find_first_not_of(" \t\n", header.find(')') + 1));
    BodyCutter cutter(text, at);
    bodies.push_back({header.substr(0, header.find_first_of(" \t\n(")), cutter.Cut()});
    at = cutter.at();
  }
}

void ExpectSame(const Instruction& instruction, const Statement& statement) {
  EXPECT_EQ(instruction.Mnemonic(), statement.mnemonic) << "line " << instruction.line;
  EXPECT_EQ(instruction.guard != kNoReg, statement.guarded) << "line " << instruction.line;
  const size_t operands = instruction.operands.size();
  EXPECT_EQ(operands == 0 ? 0 : operands - 1, statement.commas) << "line " << instruction.line;
}

class NvccPtxTest : public testing::TestWithParam<const char*> {};

TEST_P(NvccPtxTest, EveryStatementIsInTheModule) {
  const std::string text = ReadTestdata(GetParam());
  const stasis::Result<Module> module = Parse(text);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  std::vector<const Function*> defined;
  for (const Function& function : module->functions) {
    if (!function.is_declaration) defined.push_back(&function);
  }
  const std::vector<Body> bodies = CutBodies(WithoutComments(text));
  ASSERT_EQ(bodies.size(), defined.size());
  ASSERT_FALSE(bodies.empty());
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(defined[i]->name);
    EXPECT_EQ(defined[i]->name, bodies[i].name);
    ASSERT_EQ(defined[i]->instructions.size(), bodies[i].statements.size());
    for (size_t k = 0; k < bodies[i].statements.size(); ++k) {
      ExpectSame(defined[i]->instructions[k], bodies[i].statements[k]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, NvccPtxTest,
                         testing::Values("language_75.ptx", "language_debug_80.ptx",
                                         "language_lineinfo_90a.ptx", "language_rdc_121.ptx",
                                         "language_rdc_debug_75.ptx", "groups_75.ptx", "groups_100f.ptx",
                                         "groups_debug_90.ptx", "sort_75.ptx", "unit_a_75.ptx",
                                         "unit_b_75.ptx", "tiny_75.ptx", "tiny_90a.ptx", "tiny_120.ptx"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

template <typename T>
const T* Find(const std::vector<T>& list, const std::string& part) {
  for (const T& one : list) {
    if (one.name.find(part) != std::string::npos) return &one;
  }
  ADD_FAILURE() << "nothing is named like " << part;
  return nullptr;
}

TEST(NvccModuleTest, VariablesHoldWhatTheSourceSays) {
  const stasis::Result<Module> module = Parse(ReadTestdata("language_75.ptx"));
  ASSERT_TRUE(module.ok());
  const Variable* table = Find(module->variables, "kTable");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->space, Space::kConst);
  EXPECT_EQ(table->size, 64u);
  EXPECT_EQ(std::vector<uint8_t>(table->init.begin() + 8, table->init.begin() + 12),
            (std::vector<uint8_t>{0, 0, 0x10, 0xc0}));  // -2.25f
  EXPECT_TRUE(Find(module->variables, "managed_counter")->managed);
  const Variable* names = Find(module->variables, "names");
  ASSERT_EQ(names->relocations.size(), 3u);
  EXPECT_TRUE(names->relocations[1].generic);
  const Variable* functions = Find(module->variables, "functions");
  ASSERT_EQ(functions->relocations.size(), 2u);
  EXPECT_NE(functions->relocations[0].symbol.find("Twice"), std::string::npos);
  const Variable* mixed = Find(module->variables, "mixed");
  EXPECT_EQ(mixed->size, 48u);
  EXPECT_EQ(std::count_if(mixed->relocations.begin(), mixed->relocations.end(),
                          [](const Variable::Relocation& one) { return one.symbol.find("counters") == 0; }),
            mixed->relocations[0].size == 1 ? 16 : 2);
}

TEST(NvccModuleTest, ParametersHaveTheLayoutOfTheStruct) {
  const stasis::Result<Module> module = Parse(ReadTestdata("language_75.ptx"));
  ASSERT_TRUE(module.ok());
  const Function* calls = Find(module->functions, "Calls");
  ASSERT_NE(calls, nullptr);
  ASSERT_EQ(calls->params.size(), 6u);
  EXPECT_EQ(calls->params[0].size, 32u);
  EXPECT_EQ(calls->params[0].align, 16u);
  EXPECT_EQ(calls->params[1].size, 1u);
  EXPECT_EQ(calls->maxntid[0], 128u);
  EXPECT_EQ(calls->minnctapersm, 2u);
}

TEST(NvccModuleTest, UnitsOfOneProgramLink) {
  std::vector<Module> units;
  for (const char* name : {"unit_a_75.ptx", "unit_b_75.ptx"}) {
    stasis::Result<Module> unit = Parse(ReadTestdata(name));
    ASSERT_TRUE(unit.ok());
    units.push_back(std::move(*unit));
  }
  const stasis::Result<Module> module = Link(std::move(units));
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  std::set<std::string> names, unresolved;
  for (const Variable& variable : module->variables)
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
  for (const Function& function : module->functions) {
    EXPECT_TRUE(names.insert(function.name).second) << function.name;
    if (function.is_declaration) unresolved.insert(function.name);
  }
  EXPECT_EQ(unresolved, std::set<std::string>{"vprintf"});
  EXPECT_FALSE(Find(module->variables, "shared_total")->is_extern);
}

}  // namespace
}  // namespace softgpu::ptx

// Everything that nvcc makes of the front end's test programs can be loaded.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "softgpu/ptx/exec/program.h"
#include "softgpu/ptx/parser.h"

namespace softgpu::exec {
namespace {

ptx::Module ParseFile(const std::string& name) {
  std::ifstream file(std::string(SOFTGPU_PTX_TESTDATA) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  auto module = ptx::Parse(text.str());
  EXPECT_TRUE(module.ok()) << name << ": " << module.status().ToString();
  return module.ok() ? std::move(*module) : ptx::Module();
}

class ExecNvccTest : public testing::TestWithParam<const char*> {};

TEST_P(ExecNvccTest, Loads) {
  auto program = Program::Load(ParseFile(GetParam()));
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_FALSE((*program)->kernels().empty());
  for (const Kernel* kernel : (*program)->kernels()) {
    const KernelInfo& info = InfoOf(*kernel);
    EXPECT_GE(info.registers, 1u) << info.name;
    EXPECT_LE(info.registers, 255u) << info.name;
    EXPECT_LE(info.registers * info.max_threads, 65536u + 64 * 1024) << info.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, ExecNvccTest,
                         testing::Values("language_75.ptx", "language_debug_80.ptx",
                                         "language_lineinfo_90a.ptx", "groups_75.ptx", "groups_100f.ptx",
                                         "groups_debug_90.ptx", "sort_75.ptx", "tiny_75.ptx", "tiny_90a.ptx",
                                         "tiny_120.ptx"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

TEST(ExecNvccLinkTest, UnitsOfRelocatableCodeLoadTogether) {
  std::vector<ptx::Module> units;
  units.push_back(ParseFile("unit_a_75.ptx"));
  units.push_back(ParseFile("unit_b_75.ptx"));
  auto linked = ptx::Link(std::move(units));
  ASSERT_TRUE(linked.ok()) << linked.status().ToString();
  auto program = Program::Load(std::move(*linked));
  EXPECT_TRUE(program.ok()) << program.status().ToString();
}

}  // namespace
}  // namespace softgpu::exec

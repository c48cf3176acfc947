#include "coordinator/node/program.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "base/bundled_criu.h"
#include "coordinator/node/own_files.h"
#include "coordinator/node/subprocess.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

void MakeExecutable(const std::string& path, const std::string& text) {
  WriteText(path, text);
  chmod(path.c_str(), 0755);
}

TEST(FindProgram, AsExecvp) {
  TempFolder folder;
  std::filesystem::create_directory(folder.File("a"));
  std::filesystem::create_directory(folder.File("b"));
  MakeExecutable(folder.File("b/tool"), "#!/bin/sh\n");
  WriteText(folder.File("a/tool"), "not executable");
  std::string path = folder.File("a") + ":" + folder.File("b");
  EXPECT_EQ(*FindProgram("tool", path), folder.File("b/tool"));
  EXPECT_EQ(*FindProgram(folder.File("b/tool"), ""), folder.File("b/tool"));
  EXPECT_EQ(*FindProgram("./tool", "", folder.File("b")), folder.File("b/./tool"));
  EXPECT_EQ(FindProgram("b/tool2", "", folder.File("")).status().message(), "no program b/tool2 found");
  EXPECT_EQ(FindProgram("tool", folder.File("a")).status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(FindProgram(folder.File("a"), "").status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(FindProgram("tool2", path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FindProgram("tool", "").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FindProgram("", path).status().code(), StatusCode::kInvalidArgument);
}

// A program as far as its header tells, with one segment of the given type.
std::string ElfProgram(uint32_t segment_type) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof header;
  header.e_phnum = 1;
  header.e_phentsize = sizeof(Elf64_Phdr);
  Elf64_Phdr segment{};
  segment.p_type = segment_type;
  std::string image(reinterpret_cast<char*>(&header), sizeof header);
  return image.append(reinterpret_cast<char*>(&segment), sizeof segment);
}

TEST(WhyUnmanaged, WhatThePreloadDoesNotReach) {
  EXPECT_EQ(*WhyUnmanaged("/bin/sh"), "");
  EXPECT_EQ(*WhyUnmanaged("/proc/self/exe"), "");
  TempFolder folder;
  std::string static_program = folder.File("init");
  MakeExecutable(static_program, ElfProgram(PT_LOAD));
  EXPECT_NE(WhyUnmanaged(static_program)->find("statically linked"), std::string::npos);
  MakeExecutable(folder.File("dynamic"), ElfProgram(PT_INTERP));
  EXPECT_EQ(*WhyUnmanaged(folder.File("dynamic")), "");
  MakeExecutable(folder.File("script"), "#!/bin/sh\necho\n");
  EXPECT_EQ(*WhyUnmanaged(folder.File("script")), "");
  MakeExecutable(folder.File("static"), "#! " + static_program + " -x\n");
  EXPECT_NE(WhyUnmanaged(folder.File("static"))->find("statically linked"), std::string::npos);
  MakeExecutable(folder.File("loop"), "#!" + folder.File("loop") + "\n");
  EXPECT_EQ(*WhyUnmanaged(folder.File("loop")), "");
}

TEST(WhyUnmanaged, DamagedPrograms) {
  TempFolder folder;
  std::string image;
  {
    std::ifstream file("/bin/sh", std::ios::binary);
    image.assign(std::istreambuf_iterator<char>(file), {});
  }
  // Cut off, and with a table of segments beyond the end: whatever the answer, it comes.
  for (size_t size : {0, 1, 3, 17, 63, 64, 100, 400}) {
    WriteText(folder.File("cut"), image.substr(0, size));
    EXPECT_TRUE(WhyUnmanaged(folder.File("cut")).ok()) << size;
  }
  image.replace(32, 8, std::string(8, '\xff'));
  WriteText(folder.File("far"), image);
  EXPECT_NE(*WhyUnmanaged(folder.File("far")), "");
}

TEST(WhyUnmanaged, Setuid) {
  std::string program = "/usr/bin/su";  // setuid root everywhere
  TempFolder folder;
  if (geteuid() == 0) {
    program = folder.File("true");
    std::filesystem::copy_file("/bin/true", program);
    ASSERT_EQ(chown(program.c_str(), 65534, 65534), 0);
    ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  }
  EXPECT_NE(WhyUnmanaged(program)->find("setuid"), std::string::npos);
}

TEST(OwnFiles, InABuildFolderAndInstalled) {
  TempFolder folder;
  for (const char* sub : {"build/bin", "build/lib/softgpu", "usr/bin", "usr/lib/stasis/softgpu",
                          "usr/lib/stasis/" STASIS_VERSION}) {
    std::filesystem::create_directories(folder.File(sub));
  }
  for (const char* file :
       {"build/lib/libstasis.so", "build/bin/stasis-init", "build/lib/softgpu/libcuda.so.1",
        "usr/lib/stasis/" STASIS_VERSION "/libstasis.so", "usr/lib/stasis/" STASIS_VERSION "/stasis-init",
        "usr/lib/stasis/stasis-ghost", "usr/lib/stasis/softgpu/libcuda.so.1"}) {
    WriteText(folder.File(file), "");
  }
  OwnFiles built = FindOwnFilesOf(folder.File("build/bin/stasis"));
  EXPECT_EQ(built.preload, folder.File("build/lib/libstasis.so"));
  EXPECT_EQ(built.init, folder.File("build/bin/stasis-init"));
  EXPECT_EQ(built.softgpu_folder, folder.File("build/lib/softgpu"));
  Status missing = RequireFile(built.ghost, X_OK, "stasis-ghost");
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("stasis-ghost"), std::string_view::npos);
  OwnFiles installed = FindOwnFilesOf(folder.File("usr/bin/stasis"));
  EXPECT_EQ(installed.preload, folder.File("usr/lib/stasis/" STASIS_VERSION "/libstasis.so"));
  EXPECT_EQ(installed.ghost, folder.File("usr/lib/stasis/stasis-ghost"));
  EXPECT_EQ(installed.softgpu_folder, folder.File("usr/lib/stasis/softgpu"));
}

TEST(BundledCriu, IsBesideTheProgramsOfAPackage) {
  TempFolder folder;
  for (const char* sub : {"usr/bin", "usr/lib/stasis"}) std::filesystem::create_directories(folder.File(sub));
  EXPECT_EQ(BundledCriuOf(folder.File("usr/bin/stasis")), "");
  WriteText(folder.File("usr/lib/stasis/criu"), "");
  EXPECT_EQ(BundledCriuOf(folder.File("usr/bin/stasis")), "");  // that cannot be executed
  MakeExecutable(folder.File("usr/lib/stasis/criu"), "");
  EXPECT_EQ(BundledCriuOf(folder.File("usr/bin/stasis")), folder.File("usr/lib/stasis/criu"));
  EXPECT_EQ(BundledCriuOf(folder.File("usr/lib/stasis/stasis-ghost")), folder.File("usr/lib/stasis/criu"));
}

TEST(Environment, Changes) {
  std::vector<std::string> changed = ChangeEnvironment({"A=1", "AB=2", "C=3"}, {"A=9", "D=", "C"});
  EXPECT_EQ(changed, std::vector<std::string>({"AB=2", "A=9", "D="}));
  EXPECT_EQ(EnvironmentValue(changed, "A"), "9");
  EXPECT_EQ(EnvironmentValue(changed, "D"), "");
  EXPECT_EQ(EnvironmentValue(changed, "E"), "");
}

TEST(Subprocess, OutputCodeAndSignal) {
  SubprocessOptions options{{"/bin/sh", "-c", "echo out; echo err >&2; exit 5"}, OwnEnvironment()};
  Result<SubprocessResult> result = RunSubprocess(options, Deadline::After(std::chrono::seconds(60)));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->output, "out\n");
  EXPECT_EQ(result->error_output, "err\n");
  EXPECT_EQ(result->exit_code, 5);
  options.argv[2] = "kill -9 $$";
  EXPECT_EQ(RunSubprocess(options, Deadline::After(std::chrono::seconds(60)))->signal, SIGKILL);
}

TEST(Subprocess, ADeadlineEndsIt) {
  SubprocessOptions options{{"/bin/sh", "-c", "read never </dev/zero | cat"}, OwnEnvironment()};
  options.argv[2] = "kill -STOP $$";
  Result<SubprocessResult> result = RunSubprocess(options, Deadline::After(std::chrono::milliseconds(50)));
  EXPECT_EQ(result.status().code(), StatusCode::kTimeout);
}

TEST(Subprocess, ADaemonThatItLeavesIsNotWaitedFor) {
  TempFolder folder;
  std::string fifo = folder.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  // The reader of the fifo keeps our pipe open until the test lets it go.
  SubprocessOptions options{{"/bin/sh", "-c", "read line <" + fifo + " & echo started"}, OwnEnvironment()};
  Result<SubprocessResult> result = RunSubprocess(options, Deadline::After(std::chrono::seconds(60)));
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->output, "started\n");
  WriteText(fifo, "go\n");
}

TEST(Subprocess, NoSuchProgram) {
  EXPECT_EQ(RunSubprocess({{"/nonexistent"}, {}}, Deadline::Never()).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stasis

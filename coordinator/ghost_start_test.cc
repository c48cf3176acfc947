#include "coordinator/ghost_start.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/files.h"

namespace stasis {
namespace {

class GhostStartTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/ghost-start-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    place_ = {"job", folder_ + "/state", folder_ + "/run", folder_ + "/ghost", {}};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Ghosts that say that they listen, and have ended after serving somebody else, `gone` of them; the next
  // one takes a client and waits until it leaves.
  void WriteGhost(int gone) {
    std::string script = "#!/bin/sh\necho >> " + folder_ + "/starts\n[ $(wc -l < " + folder_ +
                         "/starts) -le " + std::to_string(gone) +
                         " ] && { printf x >&3; exit 0; }\n"
                         "exec python3 -c '\nimport os, socket\ns = socket.socket(socket.AF_UNIX)\n"
                         "s.bind(\"" +
                         place_.RunFolder() +
                         "/ghost.sock\")\ns.listen()\nos.write(3, b\"x\")\n"
                         "c = s.accept()[0]\nc.sendall(b\"here\")\nc.recv(1)'\n";
    ASSERT_TRUE(WriteFileAtomically(place_.ghost, script, 0700).ok());
  }
  size_t Starts() { return ReadFile(folder_ + "/starts")->size(); }

  std::string folder_;
  GhostPlace place_;
};

TEST_F(GhostStartTest, OneThatHasEndedAfterSomebodyElseIsStartedAgain) {
  WriteGhost(2);
  Result<Fd> ghost = ReachGhost(place_);
  ASSERT_TRUE(ghost.ok()) << ghost.status().ToString();
  char word[4];
  ASSERT_EQ(fcntl(ghost->get(), F_SETFL, 0), 0);
  EXPECT_EQ(read(ghost->get(), word, sizeof word), 4);
  EXPECT_EQ(Starts(), 3u);
}

TEST_F(GhostStartTest, OnesThatNeverStayAreGivenUp) {
  WriteGhost(1000);
  EXPECT_EQ(ReachGhost(place_).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Starts(), 4u);
}

}  // namespace
}  // namespace stasis

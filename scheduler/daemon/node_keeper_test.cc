// What a keeper tells of the agent that it is connected to.
#include "scheduler/daemon/node_keeper.h"

#include <gtest/gtest.h>

#include <mutex>

#include "scheduler/daemon/fake_agents.h"

namespace stasis::scheduler {
namespace {

class Listener final : public NodeKeeper::Host {
 public:
  Status Met(const std::string&, const v1::NodeInfo&, const v1::DevicesResponse&,
             const std::shared_ptr<AgentLink>& link, const Pictures&) override {
    std::lock_guard lock(mutex_);
    link_ = link;
    return Status();
  }
  void Told(const std::string&, const v1::Job&) override {}
  void Progressed(const std::string& node, const v1::ProgressResponse& progress) override {
    std::lock_guard lock(mutex_);
    ++answers_;
    rates_.clear();
    for (const v1::JobProgress& job : progress.jobs()) rates_[node + " " + job.job()] = job.rate();
  }
  void Parted(const std::string&) override {}
  void Lost(const std::string&) override {
    std::lock_guard lock(mutex_);
    lost_ = true;
  }

  std::shared_ptr<AgentLink> link() {
    std::lock_guard lock(mutex_);
    return link_;
  }
  std::map<std::string, double> rates() {
    std::lock_guard lock(mutex_);
    return rates_;
  }
  int answers() {
    std::lock_guard lock(mutex_);
    return answers_;
  }
  bool lost() {
    std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<AgentLink> link_;
  std::map<std::string, double> rates_;
  int answers_ = 0;
  bool lost_ = false;
};

TEST(NodeKeeperTest, TellsOfProgressWithEachSignOfLife) {
  FakeAgents agents;
  agents.Add("n0", 1);
  Listener listener;
  NodeKeeper::Options options;
  options.node = "n0";
  options.address = "unix:/n0";
  options.timeout = std::chrono::milliseconds(300);
  options.connect = agents.Connector();
  NodeKeeper keeper(options, listener);
  ASSERT_TRUE(agents.Await([&] { return listener.link() != nullptr; }));
  v1::RunRequest run;
  run.set_name("j");
  ASSERT_TRUE(listener.link()->Begin(run).ok());
  agents.SetRate("j", 12.5);
  ASSERT_TRUE(agents.Await([&] {
    return listener.rates() == std::map<std::string, double>{{"n0 j", 12.5}};
  }));
  agents.SetRate("j", 7);
  ASSERT_TRUE(agents.Await([&] { return listener.rates()["n0 j"] == 7; }));
  const int answers = listener.answers();
  ASSERT_TRUE(agents.Await([&] { return listener.answers() > answers + 3; }));
  EXPECT_FALSE(listener.lost());
}

}  // namespace
}  // namespace stasis::scheduler

// What is shown of agents, apart from whom it is asked of.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "base/fd.h"
#include "cli/command_line.h"
#include "cli/completion.h"
#include "cli/exit_codes.h"
#include "cli/node_choice.h"
#include "cli/top_model.h"
#include "cli/waterfall.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

void AddSpan(v1::Operation* operation, uint32_t id, uint32_t parent, const char* name, int64_t start,
             int64_t end) {
  v1::Span* span = operation->add_spans();
  span->set_id(id);
  span->set_parent(parent);
  span->set_name(name);
  span->set_start_us(start);
  span->set_end_us(end);
}

v1::Operation EndedOperation() {
  v1::Operation operation;
  operation.set_state(v1::OPERATION_STATE_SUCCEEDED);
  operation.set_started_ms(1000);
  operation.set_ended_ms(1001);
  operation.set_result_json(R"({"ok": true})");
  return operation;
}

TEST(Waterfall, ChildrenStandBelowTheirParentInTheOrderOfTime) {
  v1::Operation operation = EndedOperation();
  AddSpan(&operation, 1, 0, "dump", 5000, 10000);
  AddSpan(&operation, 2, 0, "quiesce", 0, 5000);
  AddSpan(&operation, 3, 1, "write", 7500, 10000);
  EXPECT_EQ(WaterfallText(operation, 8),
            "quiesce                            5.0 ms |====    |\n"
            "dump                               5.0 ms |    ====|\n"
            "  write                            2.5 ms |      ==|\n");
}

TEST(Waterfall, WhatIsTooShortIsSeenAndWhatGoesOnReachesTheEnd) {
  v1::Operation operation = EndedOperation();
  AddSpan(&operation, 1, 0, "all", 0, 1000000);
  AddSpan(&operation, 2, 0, "blink", 999999, 1000000);
  AddSpan(&operation, 3, 0, "open", 500000, 0);
  std::string text = WaterfallText(operation, 4);
  EXPECT_NE(text.find("|   =|"), std::string::npos) << text;
  EXPECT_NE(text.find("|  =>|"), std::string::npos) << text;
}

TEST(Waterfall, NonsenseIsShownOnce) {
  v1::Operation operation = EndedOperation();
  AddSpan(&operation, 1, 2, "a", -5, 10);
  AddSpan(&operation, 2, 1, "b", 10, 5);
  AddSpan(&operation, 3, 3, "c", 0, 1);
  AddSpan(&operation, 4, 99, "d", 0, 1);
  std::string text = WaterfallText(operation, 4);
  EXPECT_NE(text.find("c "), std::string::npos);
  EXPECT_NE(text.find("d "), std::string::npos);
  EXPECT_EQ(WaterfallText(EndedOperation(), 4), "");
}

TEST(Waterfall, OutcomesInOneLine) {
  v1::Operation operation = EndedOperation();
  EXPECT_EQ(OutcomeText(operation), "succeeded");
  operation.set_state(v1::OPERATION_STATE_FAILED);
  operation.set_result_json(R"({"ok": false, "code": "TIMEOUT", "message": "late\nagain"})");
  EXPECT_EQ(OutcomeText(operation).find('\n'), std::string::npos);
  operation.set_result_json("no object");
  EXPECT_NE(OutcomeText(operation).find("INTERNAL"), std::string::npos);
  operation.set_state(v1::OPERATION_STATE_RUNNING);
  operation.set_phase("dump");
  operation.set_total_bytes(10);
  operation.set_percent(40);
  EXPECT_EQ(OutcomeText(operation), "dump 40 %");
}

TopNode MakeNode(int jobs) {
  TopNode node;
  node.endpoint = "unix:/a";
  node.info.set_name("n0");
  v1::Device* device = node.devices.add_devices();
  device->set_name("soft");
  device->set_memory_bytes(1 << 20);
  device->set_free_bytes(1 << 19);
  for (int i = 0; i < jobs; i++) {
    v1::Job job;
    job.set_name("job" + std::to_string(i));
    job.set_live(true);
    job.set_text("running");
    node.jobs.push_back(job);
  }
  return node;
}

std::string Text(const std::vector<TopLine>& lines) {
  std::string text;
  for (const TopLine& line : lines) text += line.text + "\n";
  return text;
}

TEST(Top, FitsTheTerminalAndMoves) {
  std::vector<TopNode> nodes = {MakeNode(50)};
  TopView view;
  std::vector<TopLine> lines = TopLines(nodes, &view, 60, 20, 0);
  ASSERT_LE(lines.size(), 20u);
  for (const TopLine& line : lines) EXPECT_LE(line.text.size(), 60u);
  EXPECT_NE(Text(lines).find("job0 "), std::string::npos);
  EXPECT_EQ(Text(lines).find("job49"), std::string::npos);
  view.Move(1000);
  EXPECT_NE(Text(TopLines(nodes, &view, 60, 20, 0)).find("job49"), std::string::npos);
  size_t row = view.first[static_cast<size_t>(TopPart::kJobs)];
  EXPECT_LT(row, 50u);
  view.Move(-1);
  EXPECT_EQ(view.first[static_cast<size_t>(TopPart::kJobs)], row - 1);
  view.Move(-1000);
  EXPECT_NE(Text(TopLines(nodes, &view, 60, 20, 0)).find("job0 "), std::string::npos);
  for (int height : {0, 1, 3, 8})
    EXPECT_LE(TopLines(nodes, &view, 10, height, 0).size(), static_cast<size_t>(height));
}

TEST(Top, SaysWhichAgentDoesNotAnswer) {
  TopNode gone;
  gone.endpoint = "n1:7";
  gone.error = "UNAVAILABLE: nobody\n";
  std::vector<TopNode> nodes = {MakeNode(1), gone};
  std::string text = TopText(nodes, 0);
  EXPECT_NE(text.find("UNAVAILABLE: nobody"), std::string::npos);
  EXPECT_NE(text.find("[##########          ]"), std::string::npos) << text;
  Json document = TopDocument(nodes);
  EXPECT_EQ(document[0]["error"], "");
  EXPECT_EQ(document[1]["endpoint"], "n1:7");
}

Options Parsed(const std::vector<std::string>& arguments) {
  CommandLine line;
  CommandLine::Outcome outcome = line.Parse(arguments);
  EXPECT_FALSE(outcome.done) << outcome.text;
  return line.options();
}

bool IsRefused(const std::vector<std::string>& arguments) {
  CommandLine line;
  return line.Parse(arguments).exit_code == kExitUsage;
}

TEST(AgentCommandLine, Verbs) {
  EXPECT_EQ(Parsed({"pause", "t", "--node", "h:1"}).node, "h:1");
  EXPECT_TRUE(Parsed({"run", "--embedded", "--", "x", "--node", "y"}).embedded);
  Options ops = Parsed({"ops", "ls", "t", "--running", "--limit", "5"});
  EXPECT_EQ(ops.below, "ls");
  EXPECT_EQ(ops.limit, 5);
  Options set = Parsed({"schedule", "set", "t", "--every", "10m", "--keep-every", "7d", "--budget", "2"});
  EXPECT_EQ(set.every, Duration(std::chrono::minutes(10)));
  EXPECT_EQ(set.keep_every, Duration(std::chrono::hours(7 * 24)));
  EXPECT_EQ(Parsed({"migrate", "t", "--to", "h:1"}).to, "h:1");
  EXPECT_TRUE(IsRefused({"migrate", "t"}));
  EXPECT_TRUE(IsRefused({"schedule", "set", "t"}));
  EXPECT_TRUE(IsRefused({"schedule", "set", "t", "--every", "1m", "--cron", "* * * * *"}));
  EXPECT_TRUE(IsRefused({"schedule", "set", "../t", "--every", "1m"}));
  EXPECT_TRUE(IsRefused({"schedule", "set", "t", "--every", "400d"}));
  EXPECT_TRUE(IsRefused({"ops", "frobnicate"}));
}

TEST(AgentCommandLine, CompletionKnowsThem) {
  CommandLine line;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    std::string script = CompletionScript(line.app(), shell);
    for (const char* word : {"ops", "schedule", "complete-operations", "precopy", "top"}) {
      EXPECT_NE(script.find(word), std::string::npos) << shell << " " << word;
    }
  }
}

class NodeChoice : public testing::Test {
 protected:
  NodeChoice() { unsetenv("STASIS_NODE"); }
  ~NodeChoice() override { unsetenv("STASIS_NODE"); }
  std::string Chosen(const Options& options = {}) {
    Result<std::string> node = ChooseNode(options, folders_);
    return node.ok() ? *node : StatusCodeName(node.status().code());
  }
  Fd Listen() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, folder_.File("stasisd.sock").c_str());
    Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(socket.get(), 1), 0);
    return socket;
  }

  TempFolder folder_;
  Folders folders_{folder_.File("state"), folder_.path()};
};

TEST_F(NodeChoice, TheLocalAgentIfItAnswers) {
  EXPECT_EQ(Chosen(), "");
  Fd agent = Listen();
  EXPECT_EQ(Chosen(), "unix:" + folder_.File("stasisd.sock"));
  Options options;
  options.nodes = "places.json";
  EXPECT_EQ(Chosen(options), "");
  options = {};
  options.verb = "restore";
  options.target = "/state/store/images/t/000001.image";
  EXPECT_EQ(Chosen(options), "");
  options.target = "t";
  EXPECT_NE(Chosen(options), "");
  options = {};
  options.embedded = true;
  EXPECT_EQ(Chosen(options), "");
  agent.Reset();
  // Its socket is left behind.
  EXPECT_EQ(Chosen(), "");
}

TEST_F(NodeChoice, WhatIsNamedComesFirst) {
  setenv("STASIS_NODE", "h:7", 1);
  EXPECT_EQ(Chosen(), "h:7");
  Options options;
  options.node = "h:8";
  EXPECT_EQ(Chosen(options), "h:8");
  options.embedded = true;
  EXPECT_EQ(Chosen(options), "INVALID_ARGUMENT");
  options.node = "";
  EXPECT_EQ(Chosen(options), "");
  options = {};
  options.node = "no endpoint";
  EXPECT_EQ(Chosen(options), "INVALID_ARGUMENT");
}

}  // namespace
}  // namespace stasis

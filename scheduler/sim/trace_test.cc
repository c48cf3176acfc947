#include "scheduler/sim/trace.h"

#include <gtest/gtest.h>

#include <sstream>

namespace stasis::scheduler {
namespace {

Result<Trace> Parse(const std::string& text, TraceLayout layout = TraceLayout::kPlain,
                    std::vector<TenantSpec> tenants = {}) {
  std::istringstream stream(text);
  return ParseTrace(stream, "t.csv", layout, std::move(tenants));
}

void ExpectRefused(const Result<Trace>& trace, const std::string& part) {
  ASSERT_FALSE(trace.ok()) << part;
  EXPECT_EQ(trace.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(trace.status().message().find(part), std::string_view::npos) << trace.status().message();
}

constexpr char kHeader[] = "job_id,tenant,submit_s,gpus,duration_s\n";

TEST(TraceTest, ReadsColumnsByNameInAnyOrder) {
  const Result<Trace> trace =
      Parse("gpus,x,duration_s,tenant,job_id,submit_s\n2,-,10.5,b,one,100\r\n1,-,5,a,two,90\n\n");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->jobs.size(), 2u);
  EXPECT_EQ(trace->jobs[0].name, "two");
  EXPECT_EQ(trace->jobs[0].submit, 0);
  EXPECT_EQ(trace->jobs[1].submit, 10 * kSecond);
  EXPECT_EQ(trace->jobs[1].duration, 10500);
  EXPECT_EQ(trace->jobs[1].gpus, 2);
  EXPECT_EQ(trace->tenants[trace->jobs[1].tenant].name, "b");
}

TEST(TraceTest, Layouts) {
  const Result<Trace> philly = Parse(
      "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,x\n2017-10-09 "
      "07:01:53,2,4,8,y\n",
      TraceLayout::kPhilly);
  ASSERT_TRUE(philly.ok()) << philly.status().message();
  EXPECT_EQ(philly->jobs[1].submit, 2 * kSecond);
  const Result<Trace> helios = Parse(
      "job_id,user,gpu_num,vc,submit_time,duration\n7,u,8,vc1,2020-04-01 00:00:01,60\n8,u,0,vc1,2020-04-01 "
      "00:00:02,60\n",
      TraceLayout::kHelios);
  ASSERT_TRUE(helios.ok()) << helios.status().message();
  EXPECT_EQ(helios->jobs.size(), 1u);
  EXPECT_EQ(helios->without_gpus, 1u);
  const Result<Trace> alibaba =
      Parse("job_name,user,inst_num,plan_gpu,start_time,end_time\nj,u,3,150,10,40\n", TraceLayout::kAlibaba);
  ASSERT_TRUE(alibaba.ok()) << alibaba.status().message();
  EXPECT_EQ(alibaba->jobs[0].gpus, 6);
  EXPECT_EQ(alibaba->jobs[0].duration, 30 * kSecond);
}

TEST(TraceTest, BadRowsAreNamed) {
  ExpectRefused(Parse(""), "is empty");
  ExpectRefused(Parse("job_id,tenant,submit_s,gpus\n"), "no column 'duration_s'");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,0,1,10\n2,a,0,1,-1\n"), "line 3: a negative duration");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,0,1\n"), "line 2: has 4 fields, the header 5");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,zero,1,10\n"), "submit_s 'zero' is no number");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,0,1.5,10\n"), "number of devices");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,0,-1,10\n"), "number of devices");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,nan,1,10\n"), "is no number");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,0,1,1e300\n"), "100 years");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,0,1,10\n2,a,1e300,1,10\n"), "100 years");
  ExpectRefused(Parse(std::string(kHeader) + "1,a,0,0,10\n"), "no job that uses a GPU");
  ExpectRefused(Parse(std::string(kHeader) + "1,stranger,0,1,10\n", TraceLayout::kPlain, {{"a", 1}}),
                "tenant 'stranger' has no weight");
  ExpectRefused(Parse("timestamp,duration,num_gpus,cluster\nyesterday,1,1,x\n", TraceLayout::kPhilly),
                "no date and time");
}

TEST(TraceTest, Weights) {
  auto parse = [](const std::string& text) {
    std::istringstream stream(text);
    return ParseWeights(stream, "w.csv");
  };
  const Result<std::vector<TenantSpec>> weights = parse("name,share\na,3\nb,1.5\n");
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((*weights)[1].weight, 1.5);
  EXPECT_FALSE(parse("name,share\na,0\n").ok());
  EXPECT_FALSE(parse("name,share\na,1\na,2\n").ok());
  EXPECT_FALSE(parse("name,share\n").ok());
}

}  // namespace
}  // namespace stasis::scheduler

#include "services_fixture.h"

#include <thread>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

class MetricsTest : public ServicesTest {
 protected:
  const belay_metrics_vt& table() { return service<belay_metrics_vt>(BELAY_HOST_METRICS); }
  Result<uint64_t> define(const belay_host* host, uint64_t kind, const std::string& name) {
    auto req = sized<belay_metric_req>();
    req.kind = kind, req.name = to_str(name), req.unit = to_str("bytes"), req.doc = to_str("A doc.");
    uint64_t id = 0;
    BELAY_TRY(take(table().define(host, &req, &id)));
    return id;
  }
  struct Seen {
    std::string key;
    uint64_t kind;
    int64_t value;
    uint64_t count, sum;
    std::vector<uint64_t> buckets;
  };
  std::vector<Seen> all() {
    std::vector<Seen> seen;
    const Status status = take(table().each(
        a,
        [](void* to, const belay_metric_info* info) {
          static_cast<std::vector<Seen>*>(to)->push_back(
              {to_string(info->plugin) + "." + to_string(info->name), info->kind, info->value, info->count,
               info->sum,
               info->buckets ? std::vector<uint64_t>(info->buckets, info->buckets + BELAY_METRIC_BUCKETS)
                             : std::vector<uint64_t>()});
        },
        &seen));
    EXPECT_TRUE(status.ok());
    return seen;
  }
};

TEST_F(MetricsTest, CountersGaugesAndHistogramsOfTwoPluginsAreReadByAnyone) {
  const uint64_t copies = *define(a, BELAY_METRIC_COUNTER, "copies"),
                 depth = *define(b, BELAY_METRIC_GAUGE, "depth"),
                 sizes = *define(a, BELAY_METRIC_HISTOGRAM, "sizes");
  table().add(a, copies, 3), table().add(a, copies, -1);  // a counter only grows
  table().set(b, depth, 7), table().add(b, depth, -9);
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, UINT64_MAX})
    table().observe(a, sizes, size);
  const std::vector<Seen> seen = all();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].key, "a.copies");
  EXPECT_EQ(seen[0].value, 3);
  EXPECT_EQ(seen[1].key, "b.depth");
  EXPECT_EQ(seen[1].value, -2);
  EXPECT_EQ(seen[2].count, 5u);
  EXPECT_EQ(seen[2].sum, 5u);  // modulo 2^64
  EXPECT_EQ(seen[2].buckets[0], 1u);
  EXPECT_EQ(seen[2].buckets[1], 1u);
  EXPECT_EQ(seen[2].buckets[2], 2u);
  EXPECT_EQ(seen[2].buckets[64], 1u);
}

TEST_F(MetricsTest, ANameIsOneMetricInEachPluginAndKeepsItsKind) {
  const uint64_t first = *define(a, BELAY_METRIC_COUNTER, "n");
  EXPECT_EQ(*define(a, BELAY_METRIC_COUNTER, "n"), first);
  EXPECT_NE(*define(b, BELAY_METRIC_COUNTER, "n"), first);
  EXPECT_EQ(define(a, BELAY_METRIC_GAUGE, "n").status().code(), Code::kAlreadyExists);
  EXPECT_EQ(define(a, BELAY_METRIC_COUNTER, "Not An Id").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(define(a, 9, "x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(take(table().define(a, nullptr, nullptr)).code(), Code::kInvalidArgument);
}

TEST_F(MetricsTest, WrongIdsAndKindsAreIgnored) {
  const uint64_t counter = *define(a, BELAY_METRIC_COUNTER, "n");
  for (const uint64_t id : {uint64_t{0}, counter + 1, uint64_t{4097}, UINT64_MAX})
    table().add(a, id, 1), table().set(a, id, 1), table().observe(a, id, 1);
  table().set(a, counter, 5), table().observe(a, counter, 5);
  EXPECT_EQ(all()[0].value, 0);
}

TEST_F(MetricsTest, TheNumberOfMetricsIsBounded) {
  for (uint64_t i = 0; i < Metrics::kMost; ++i)
    ASSERT_TRUE(define(a, BELAY_METRIC_COUNTER, "m" + std::to_string(i)).ok());
  const Status full = define(a, BELAY_METRIC_COUNTER, "one.more").status();
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("'one.more' is one too many"));
}

TEST_F(MetricsTest, ManyThreadsDefineCountAndRead) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto id = define(a, BELAY_METRIC_COUNTER, "n" + std::to_string(i % 10));
        table().add(a, *id, 1);
        if (i % 50 == 0) all();
      }
    });
  for (auto& thread : threads) thread.join();
  int64_t sum = 0;
  for (const Seen& seen : all()) sum += seen.value;
  EXPECT_EQ(sum, 1600);
}

TEST_F(MetricsTest, WhatAClosedPluginCountedIsStillRead) {
  const uint64_t counter = *define(a, BELAY_METRIC_COUNTER, "n");
  table().add(a, counter, 4);
  ASSERT_TRUE(host->plugins().unload("a", 5s).ok());
  const belay_metrics_vt& metrics = kMetricsTable;
  metrics.add(a, counter, 4);  // refused
  auto req = sized<belay_metric_req>();
  uint64_t id = 0;
  EXPECT_EQ(take(metrics.define(a, &req, &id)).code(), Code::kFailedPrecondition);
  std::vector<int64_t> values;
  metrics.each(
      b,
      [](void* to, const belay_metric_info* info) {
        static_cast<std::vector<int64_t>*>(to)->push_back(info->value);
      },
      &values);
  EXPECT_THAT(values, ElementsAre(4));
}

}  // namespace
}  // namespace belay::core

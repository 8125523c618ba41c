// Fakes and mocks of the host's services, and what C++ authors use them through.
#include <belay/services.hpp>
#include <belay/testing/fake_services.hpp>
#include <belay/testing/mock_services.hpp>

#include <gtest/gtest.h>

#include <unistd.h>
#include <string>

namespace {

using belay::Code;
using belay::Status;
using belay::to_str;
using belay::testing::FakeHost;
using belay::testing::FakeServices;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::Return;
using ::testing::StrictMock;

template <class Table>
const Table& need(FakeHost& host) {
  const auto found = belay::service<Table>(host);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return **found;
}
template <class T>
T sized() {
  T value{};
  value.hdr.struct_size = sizeof value;
  return value;
}

TEST(ServiceTest, AMissingServiceIsNamedWithTheHost) {
  FakeHost host;
  EXPECT_TRUE(belay::service<belay_executor_vt>(host).ok());
  const Status status = belay::service<belay_metrics_vt>(host).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("This host (fake 0.0.0) has no service 'belay.host.metrics/1'"));
  {
    const FakeServices services(host);
    EXPECT_TRUE(belay::service<belay_metrics_vt>(host).ok());
  }
  EXPECT_FALSE(belay::service<belay_metrics_vt>(host).ok());
}

TEST(FakeServicesTest, LogAndMetricsKeepWhatTheyAreTold) {
  FakeHost host;
  FakeServices services(host);
  const belay_log_field fields[] = {{to_str("bytes"), to_str("12")}};
  auto line = sized<belay_log_req>();
  line.level = BELAY_LOG_WARNING, line.part = to_str("ring"), line.message = to_str("slow");
  line.fields = fields, line.field_count = 1;
  need<belay_log_vt>(host).write(&host, &line);
  ASSERT_EQ(services.lines().size(), 1u);
  EXPECT_EQ(services.lines()[0].part, "ring");
  EXPECT_THAT(services.lines()[0].fields, ElementsAre(Pair("bytes", "12")));
  EXPECT_EQ(host.log_text(), "slow\n");

  const auto& metrics = need<belay_metrics_vt>(host);
  auto req = sized<belay_metric_req>();
  uint64_t count = 0, sizes = 0, again = 0;
  req.kind = BELAY_METRIC_COUNTER, req.name = to_str("count");
  EXPECT_EQ(metrics.define(&host, &req, &count), BELAY_OK);
  EXPECT_EQ(metrics.define(&host, &req, &again), BELAY_OK);
  EXPECT_EQ(count, again);
  req.kind = BELAY_METRIC_HISTOGRAM, req.name = to_str("sizes");
  EXPECT_EQ(metrics.define(&host, &req, &sizes), BELAY_OK);
  metrics.add(&host, count, 5), metrics.observe(&host, sizes, 9), metrics.observe(&host, sizes, 0);
  EXPECT_EQ(services.metric("count"), 5);
  EXPECT_THAT(services.observed("sizes"), ElementsAre(9, 0));
  uint64_t bucket = 0;
  metrics.each(
      &host,
      [](void* to, const belay_metric_info* info) BELAY_NOEXCEPT {
        if (info->buckets) *static_cast<uint64_t*>(to) = info->buckets[4];
      },
      &bucket);
  EXPECT_EQ(bucket, 1u);
}

TEST(FakeServicesTest, ASpanIsARecordWhileSomebodyListens) {
  FakeHost host;
  FakeServices services(host);
  const auto& trace = need<belay_trace_vt>(host);
  EXPECT_EQ(trace.ring(&host), nullptr);
  { const belay::Span nothing(host, trace.ring(&host), 1); }
  services.trace(true);
  uint32_t name = 0;
  ASSERT_EQ(trace.name(&host, to_str("conv"), &name), BELAY_OK);
  {
    const belay::Span span(host, trace.ring(&host), name, 7);
    host.advance(1500);
  }
  const auto records = services.records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].duration_ns, 1500u);
  EXPECT_EQ(records[0].value, 7u);
  EXPECT_EQ(services.name(records[0].name), "conv");
  EXPECT_TRUE(services.records().empty());
}

TEST(FakeServicesTest, FilesMemoryThreadsAndFaultsFailWhenToldTo) {
  FakeHost host;
  FakeServices services(host);
  const auto& fs = need<belay_fs_vt>(host);
  services.set_file(BELAY_FS_DATA, "table", "abc");
  belay::StringSink text;
  EXPECT_EQ(fs.read(&host, BELAY_FS_DATA, to_str("table"), text.sink()), BELAY_OK);
  EXPECT_EQ(text.text(), "abc");
  int32_t fd = -1;
  ASSERT_EQ(fs.open(&host, BELAY_FS_DATA, to_str("table"), 0, &fd), BELAY_OK);
  char first = 0;
  EXPECT_EQ(pread(fd, &first, 1, 0), 1);
  EXPECT_EQ(first, 'a');
  close(fd);
  EXPECT_EQ(fs.write(&host, to_str("cache"), {"xy", 2}), BELAY_OK);
  services.disk_full(true);
  EXPECT_EQ(host.take(fs.write(&host, to_str("cache"), {"z", 1})).code(), Code::kResourceExhausted);
  EXPECT_EQ(services.scratch("cache"), "xy");

  const auto& memory = need<belay_memory_vt>(host);
  auto req = sized<belay_memory_req>();
  req.bytes = 100;
  void* block = nullptr;
  ASSERT_EQ(memory.alloc(&host, &req, &block), BELAY_OK);
  EXPECT_EQ(host.live_bytes(), 100u);
  memory.free(&host, block);
  host.fail_alloc_from(1);
  EXPECT_EQ(host.take(memory.alloc(&host, &req, &block)).code(), Code::kResourceExhausted);

  const auto& threads = need<belay_thread_check_vt>(host);
  services.set_domain(BELAY_THREAD_IO);
  EXPECT_EQ(threads.domain(&host), BELAY_THREAD_IO);
  EXPECT_EQ(threads.check(&host, BELAY_THREAD_IO, to_str("x")), BELAY_OK);
  EXPECT_EQ(host.take(threads.check(&host, BELAY_THREAD_INIT, to_str("x"))).code(),
            Code::kFailedPrecondition);

  const auto& fault = need<belay_fault_vt>(host);
  services.fail_at("submit", Code::kDeviceLost, 1);
  EXPECT_EQ(fault.at(&host, to_str("submit")), BELAY_OK);
  EXPECT_EQ(host.take(fault.at(&host, to_str("submit"))).code(), Code::kDeviceLost);
  EXPECT_EQ(fault.at(&host, to_str("other")), BELAY_OK);
  EXPECT_EQ(host.live_details(), 0u);
}

TEST(FakeHostTest, StrandsDescriptorsAndWatchesRunWhenTheTestSaysSo) {
  FakeHost host;
  const auto& executor = need<belay_executor_vt>(host);
  const auto& registry = need<belay_registry_vt>(host);
  int ran = 0;
  const auto count = [](void* user) BELAY_NOEXCEPT { ++*static_cast<int*>(user); };
  uint64_t strand = 0, fd_watch = 0, watch = 0;
  ASSERT_EQ(executor.strand(&host, &strand), BELAY_OK);
  ASSERT_EQ(executor.post_to(&host, strand, count, &ran), BELAY_OK);
  EXPECT_EQ(host.take(executor.post_to(&host, 99, count, &ran)).code(), Code::kNotFound);
  ASSERT_EQ(executor.watch_fd(&host, 5, 0, count, &ran, &fd_watch), BELAY_OK);
  host.ready(5), host.ready(6);
  host.run_all();
  EXPECT_EQ(ran, 2);
  executor.cancel(&host, fd_watch);
  host.ready(5);
  host.run_all();
  EXPECT_EQ(ran, 2);

  std::vector<std::string> events;
  belay_obj object{};
  host.provide("test.kind/1:a", &object);
  ASSERT_EQ(registry.watch(
                &host, to_str("test.kind/1"),
                [](void* user, belay_str key, uint32_t what) BELAY_NOEXCEPT {
                  static_cast<std::vector<std::string>*>(user)->push_back(std::to_string(what) +
                                                                          belay::to_string(key));
                },
                &events, &watch),
            BELAY_OK);
  belay_lease lease{};
  ASSERT_EQ(registry.acquire(&host, to_str("test.kind/1:a"), &lease), BELAY_OK);
  EXPECT_EQ(registry.valid(&host, lease.id), BELAY_OK);
  host.withdraw("test.kind/1:a");
  EXPECT_EQ(host.take(registry.valid(&host, lease.id)).code(), Code::kNotFound);
  host.provide("other.kind/1:a", &object);
  host.run_all();
  EXPECT_THAT(events, ElementsAre("1test.kind/1:a", "2test.kind/1:a"));
  registry.unwatch(&host, watch);
  host.provide("test.kind/1:b", &object);
  host.run_all();
  EXPECT_EQ(events.size(), 2u);
}

TEST(MockServicesTest, AMockAnswersForItsHostUntilItDies) {
  FakeHost host;
  {
    StrictMock<belay::testing::MockMetrics> metrics(host);
    EXPECT_CALL(metrics, define(Field(&belay_metric_req::kind, BELAY_METRIC_GAUGE)))
        .WillOnce(Return(uint64_t{7}));
    EXPECT_CALL(metrics, set(7, -3));
    auto req = sized<belay_metric_req>();
    req.kind = BELAY_METRIC_GAUGE;
    uint64_t id = 0;
    EXPECT_EQ(need<belay_metrics_vt>(host).define(&host, &req, &id), BELAY_OK);
    need<belay_metrics_vt>(host).set(&host, id, -3);
  }
  EXPECT_FALSE(belay::service<belay_metrics_vt>(host).ok());
}

TEST(MockServicesTest, EveryTableCallsItsMock) {
  FakeHost host;
  StrictMock<belay::testing::MockLog> log(host);
  StrictMock<belay::testing::MockTrace> trace(host);
  StrictMock<belay::testing::MockFs> fs(host);
  StrictMock<belay::testing::MockMemory> memory(host);
  StrictMock<belay::testing::MockThreadCheck> threads(host);
  StrictMock<belay::testing::MockFault> fault(host);
  EXPECT_CALL(log, enabled(BELAY_LOG_DEBUG, std::string_view("ring"))).WillOnce(Return(true));
  EXPECT_EQ(need<belay_log_vt>(host).enabled(&host, BELAY_LOG_DEBUG, to_str("ring")), 1u);
  EXPECT_CALL(trace, name(std::string_view("conv"))).WillOnce(Return(uint32_t{4}));
  uint32_t name = 0;
  EXPECT_EQ(need<belay_trace_vt>(host).name(&host, to_str("conv"), &name), BELAY_OK);
  EXPECT_EQ(name, 4u);
  EXPECT_CALL(fs, read(BELAY_FS_DATA, std::string_view("x")))
      .WillOnce(Return(Status(Code::kNotFound, "There is no file 'x'.")));
  EXPECT_EQ(host.take(need<belay_fs_vt>(host).read(&host, BELAY_FS_DATA, to_str("x"), {})).message(),
            "There is no file 'x'.");
  EXPECT_CALL(fs, write_file(std::string_view("y"), std::string_view("ab"))).WillOnce(Return(Status()));
  EXPECT_EQ(need<belay_fs_vt>(host).write(&host, to_str("y"), {"ab", 2}), BELAY_OK);
  EXPECT_CALL(memory, alloc(Field(&belay_memory_req::bytes, 64u)))
      .WillOnce(Return(static_cast<void*>(&host)));
  auto req = sized<belay_memory_req>();
  req.bytes = 64;
  void* block = nullptr;
  EXPECT_EQ(need<belay_memory_vt>(host).alloc(&host, &req, &block), BELAY_OK);
  EXPECT_EQ(block, &host);
  EXPECT_CALL(threads, domain()).WillOnce(Return(BELAY_THREAD_LONG));
  EXPECT_EQ(need<belay_thread_check_vt>(host).domain(&host), BELAY_THREAD_LONG);
  EXPECT_CALL(fault, at(std::string_view("p"))).WillOnce(Return(Status(Code::kAborted, "Ordered.")));
  EXPECT_EQ(host.take(need<belay_fault_vt>(host).at(&host, to_str("p"))).code(), Code::kAborted);
  EXPECT_EQ(host.live_details(), 0u);
}

}  // namespace

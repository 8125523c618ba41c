#include "test_host.h"

#include <future>
#include <thread>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using namespace std::chrono_literals;

TEST(ObjectsTest, ManyThreadsGetOneObject) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a.config]\nmode = \"create_slow\"\n");
  ASSERT_TRUE(test.host->start().ok());
  std::vector<std::future<belay_obj*>> all;
  for (int i = 0; i < 8; ++i)
    all.push_back(
        std::async(std::launch::async, [&] { return test.host->acquire("test.counter/1:a")->object(); }));
  std::set<belay_obj*> objects;
  for (auto& one : all) objects.insert(one.get());
  EXPECT_THAT(objects, SizeIs(1));
  EXPECT_THAT(test.log(), ElementsAre("plugin.a: a open", "plugin.a: a start", "plugin.a: a create"));
}

TEST(ObjectsTest, ACircleOfAcquiresIsAnErrorAndNoDeadlock) {
  TempDir dir;
  install(dir, "a");
  install(dir, "b");
  TestHost test(dir,
                "[plugin.a.config]\nacquires = \"test.counter/1:b\"\n[plugin.b.config]\nacquires = "
                "\"test.counter/1:a\"\n");
  ASSERT_TRUE(test.host->start().ok());
  const Status status = test.host->acquire("test.counter/1:a").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("Making 'test.counter/1:a' waits for itself"));
  // From two threads at once, both ends: one of them finds the circle, whoever is first.
  auto one = std::async(std::launch::async, [&] { return test.host->acquire("test.counter/1:a").status(); });
  auto two = std::async(std::launch::async, [&] { return test.host->acquire("test.counter/1:b").status(); });
  EXPECT_FALSE(one.get().ok());
  EXPECT_FALSE(two.get().ok());
}

TEST(ObjectsTest, LeasesMoveAndAreGivenBackOnce) {
  TempDir dir;
  install(dir, "a");
  TestHost test(dir, "[plugin.a]\n");
  ASSERT_TRUE(test.host->start().ok());
  Lease lease = test.host->acquire("test.counter/1:a").value();
  const uint64_t id = lease.id();
  Lease other = std::move(lease);
  EXPECT_FALSE(lease.valid());  // NOLINT: a moved-from lease is empty
  EXPECT_TRUE(other.valid());
  other = Lease();
  EXPECT_FALSE(test.host->objects().valid(id));
  EXPECT_TRUE(test.host->shutdown(5s).ok());
}

}  // namespace
}  // namespace belay::core

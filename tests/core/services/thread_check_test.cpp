#include "core/base/slot_call.h"
#include "services_fixture.h"

#include <future>

namespace belay::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

class ThreadCheckTest : public ServicesTest {
 protected:
  const belay_thread_check_vt& table() { return service<belay_thread_check_vt>(BELAY_HOST_THREAD_CHECK); }
};

TEST_F(ThreadCheckTest, EveryKindOfCallHasItsDomain) {
  const belay_thread_check_vt& check = table();
  EXPECT_EQ(check.domain(a), BELAY_THREAD_OUTSIDE);
  for (const uint32_t domain :
       {BELAY_THREAD_ENTRY, BELAY_THREAD_INIT, BELAY_THREAD_SERIAL, BELAY_THREAD_DESTROY})
    EXPECT_TRUE(call_slot("b", "a slot", domain, [&] {
                  EXPECT_EQ(check.domain(a), domain);
                  auto info = sized<belay_thread_info>();
                  EXPECT_EQ(check.info(a, &info), BELAY_OK);
                  EXPECT_EQ(info.domain, domain);
                  EXPECT_EQ(to_view(info.plugin), "b");
                  EXPECT_EQ(to_view(info.slot), "a slot");
                }).ok());
  EXPECT_EQ(check.domain(a), BELAY_THREAD_OUTSIDE);
  struct Seen {
    const belay_host* host;
    const belay_thread_check_vt& check;
    std::promise<uint32_t> domain;
  } shorts{a, check, {}}, longs{a, check, {}};
  const auto task = [](void* user) {
    Seen& seen = *static_cast<Seen*>(user);
    seen.domain.set_value(seen.check.domain(seen.host));
  };
  const auto& executor = service<belay_executor_vt>(BELAY_HOST_EXECUTOR);
  ASSERT_EQ(executor.post(a, task, &shorts), BELAY_OK);
  ASSERT_EQ(executor.post_blocking(a, task, &longs), BELAY_OK);
  EXPECT_EQ(shorts.domain.get_future().get(), BELAY_THREAD_IO);
  EXPECT_EQ(longs.domain.get_future().get(), BELAY_THREAD_LONG);
}

TEST_F(ThreadCheckTest, ABreachNamesBothDomainsAndIsLoggedOnce) {
  const belay_thread_check_vt& check = table();
  EXPECT_EQ(check.check(a, BELAY_THREAD_OUTSIDE | BELAY_THREAD_IO, to_str("submit")), BELAY_OK);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(
        call_slot("b", "open", BELAY_THREAD_INIT, [&] {
          const Status status = take(check.check(a, BELAY_THREAD_IO | BELAY_THREAD_LONG, to_str("submit")));
          EXPECT_EQ(status.code(), Code::kFailedPrecondition);
          EXPECT_EQ(status.message(),
                    "'submit' of plugin 'a' was called from init (open of plugin 'b'), want io or long.");
        }).ok());
  EXPECT_THAT(log(), ElementsAre(HasSubstr("thread-check: 'submit' of plugin 'a' was called from init")));
}

TEST_F(ThreadCheckTest, AClosedPluginGetsNothing) {
  const belay_thread_check_vt& check = table();
  ASSERT_TRUE(host->plugins().unload("a", 5s).ok());
  auto info = sized<belay_thread_info>();
  EXPECT_EQ(check.info(a, &info), BELAY_FAILED_PRECONDITION);
  EXPECT_EQ(check.check(a, ~0u, to_str("x")), BELAY_FAILED_PRECONDITION);
}

}  // namespace
}  // namespace belay::core

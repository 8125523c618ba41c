// The same plugin as a shared object and inside this program, called as a host would.
#include <belay/abi/plugin.h>
#include <belay/testing/fake_host.hpp>

#include <dlfcn.h>
#include <gmock/gmock.h>

extern "C" const belay_plugin* belay_plugin_v0__in_the_program(const belay_host*, belay_handshake*);

namespace {

void expect_echo(belay_entry_fn entry, std::string_view id) {
  belay::testing::FakeHost host;
  belay_handshake handshake{};
  handshake.hdr.struct_size = sizeof(handshake);
  const belay_plugin* plugin = entry(&host, &handshake);
  ASSERT_NE(plugin, nullptr);
  EXPECT_EQ(handshake.layout, BELAY_ABI_LAYOUT);
  EXPECT_EQ(belay::to_view(plugin->id), id);
  EXPECT_EQ(plugin->component_count, 1u);
  belay_ctx* ctx = nullptr;
  ASSERT_EQ(plugin->open(&host, nullptr, &ctx), BELAY_OK);
  EXPECT_EQ(host.log_text(), "the echo is open\n");
  plugin->close(ctx);
}

TEST(OutsidePlugin, IsLoadedFromItsFile) {
  void* library = dlopen(OUTSIDE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto entry = reinterpret_cast<belay_entry_fn>(dlsym(library, BELAY_ENTRY_NAME));
  ASSERT_NE(entry, nullptr);
  expect_echo(entry, "outside");
  dlclose(library);
}

TEST(OutsidePlugin, IsInsideTheProgram) { expect_echo(belay_plugin_v0__in_the_program, "in.the-program"); }

}  // namespace

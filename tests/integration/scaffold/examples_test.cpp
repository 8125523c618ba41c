// The examples that are not in C++, sdk/examples/diagnostics_c and diagnostics_python, as their files are
// built: each answers as any other diagnostics.
#include <belay/abi/diagnostics.h>
#include <belay/testing/fake_services.hpp>
#include <belay/testing/plugin_file.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using belay::Code;
using belay::StringSink;
using belay::testing::FakeHost;
using belay::testing::FakeServices;
using belay::testing::PluginFile;

std::string text_of(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

bool has_python() {
  for (int minor = 14; minor >= 9; --minor)
    if (dlopen(("libpython3." + std::to_string(minor) + ".so.1.0").c_str(), RTLD_NOW | RTLD_GLOBAL))
      return true;
  return false;
}
#define NEEDS_PYTHON() \
  if (!has_python())   \
  GTEST_SKIP() << "There is no libpython3.9 to libpython3.14 here (on Debian 12: libpython3.11)."

struct Named {  // an example, and what it says of one record of 250 ns and one of 750 ns
  const char* file;
  const char* check;
  const char* json;
};

class Examples : public testing::TestWithParam<Named> {
 protected:
  FakeHost host;
  FakeServices services{host};
};

TEST_P(Examples, AnswersLikeAnyOther) {
  const bool is_python = std::string(GetParam().file) == PYTHON_PLUGIN_FILE;
  if (is_python) {
    NEEDS_PYTHON();
    services.set_file(BELAY_FS_DATA, "diagnostics.py", text_of(PYTHON_SCRIPT));
  }
  for (int time = 0; time < 2; ++time) {  // opened again, it begins anew
    {
      PluginFile plugin(host, GetParam().file);
      const auto object = plugin.make<belay_diagnostics_vt>(BELAY_DIAGNOSTICS_KIND);
      belay_trace_record records[2]{};
      records[0].kind = BELAY_TRACE_COPY, records[0].duration_ns = 250;
      records[1].kind = 999, records[1].duration_ns = 750;  // of a newer host
      // Records come on threads of the host, several at a time.
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
          for (int batch = 0; batch < 25; ++batch) object->on_records(object, records, 2);
        });
      for (std::thread& thread : threads) thread.join();

      StringSink json, text, other, said;
      ASSERT_EQ(object->dump(object, belay::to_str("json"), json.sink()), BELAY_OK);
      EXPECT_EQ(json.text(), GetParam().json);
      ASSERT_EQ(object->dump(object, belay::to_str("text"), text.sink()), BELAY_OK);
      EXPECT_NE(text.text().find("100000"), std::string::npos) << text.text();
      EXPECT_EQ(host.take(object->dump(object, belay::to_str("xml"), other.sink())).code(),
                Code::kUnimplemented);

      ASSERT_EQ(object->check_count(object), 1u);
      belay_check_info info{};
      info.hdr.struct_size = sizeof info;
      ASSERT_EQ(object->check_info(object, 0, &info), BELAY_OK);
      EXPECT_EQ(belay::to_view(info.name), GetParam().check);
      EXPECT_GT(info.doc.len, 0u);
      uint64_t outcome = BELAY_CHECK_FAILED;
      ASSERT_EQ(object->run_check(object, 0, &outcome, said.sink()), BELAY_OK);
      EXPECT_LE(outcome, BELAY_CHECK_WARNING);
      EXPECT_FALSE(said.text().empty());
      const auto wrong = host.take(object->run_check(object, 7, &outcome, said.sink()));
      EXPECT_EQ(wrong.code(), Code::kOutOfRange);
      EXPECT_NE(wrong.message().find("no check 7"), std::string::npos) << wrong.message();
      // A host that knows fewer fields gets these alone.
      belay_check_info old{};
      old.hdr.struct_size = offsetof(belay_check_info, doc);
      ASSERT_EQ(object->check_info(object, 0, &old), BELAY_OK);
      EXPECT_EQ(old.doc.ptr, nullptr);
    }
    EXPECT_EQ(host.lines().back().text, "200 records were seen");
  }
  EXPECT_EQ(host.live_details(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    , Examples,
    testing::Values(
        Named{C_PLUGIN_FILE, "diagnostics_c.clock", R"({"records": 200, "nanoseconds": 100000})"},
        Named{PYTHON_PLUGIN_FILE, "diagnostics_python.temporary-files",
              R"({"other": 100, "operation": 0, "copy": 100, "alloc": 0, "free": 0, "wait": 0, "load": 0, )"
              R"("error": 0, "range": 0, "nanoseconds": 100000})"}),
    [](const auto& info) { return std::string(info.index == 0 ? "C" : "Python"); });

class PythonExample : public testing::Test {
 protected:
  // Why it could not be opened with this script.
  std::string refusal(const std::string& script) {
    services.set_file(BELAY_FS_DATA, "diagnostics.py", script);
    try {
      PluginFile plugin(host, PYTHON_PLUGIN_FILE);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }
  FakeHost host;
  FakeServices services{host};
};

TEST_F(PythonExample, AScriptThatFailsIsAnErrorWithItsTraceback) {
  NEEDS_PYTHON();
  EXPECT_NE(refusal("x = 1\nraise ValueError('no luck')\n").find("line 2"), std::string::npos);
  EXPECT_NE(refusal("raise ValueError('no luck')\n").find("ValueError: no luck"), std::string::npos);
  EXPECT_NE(refusal("def broken(:\n").find("SyntaxError"), std::string::npos);
  EXPECT_NE(refusal("pass\n").find("KeyError: 'fill'"), std::string::npos);
  std::string other = text_of(PYTHON_SCRIPT);
  other.replace(other.find("(\"flush\", c_void_p), "), 21, "");
  EXPECT_NE(refusal(other).find("of different versions"), std::string::npos);
  EXPECT_EQ(refusal(text_of(PYTHON_SCRIPT)), "");  // and is no harm to what comes after
  EXPECT_EQ(host.live_details(), 0u);
}

TEST_F(PythonExample, WithoutItsScriptOrItsHostsFilesItSaysSo) {
  EXPECT_THROW(PluginFile(host, PYTHON_PLUGIN_FILE), std::runtime_error);
  host.offer(BELAY_HOST_FS, nullptr);
  try {
    PluginFile plugin(host, PYTHON_PLUGIN_FILE);
    FAIL() << "It was opened.";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(BELAY_HOST_FS), std::string::npos) << error.what();
  }
}

TEST_F(PythonExample, WhatItsSlotsRaiseIsAStatus) {
  NEEDS_PYTHON();
  std::string script = text_of(PYTHON_SCRIPT);
  const std::string body = "    folder = tempfile.gettempdir()\n";
  script.replace(script.find(body), body.size(), "    raise ZeroDivisionError('nothing to share')\n");
  services.set_file(BELAY_FS_DATA, "diagnostics.py", script);
  PluginFile plugin(host, PYTHON_PLUGIN_FILE);
  const auto object = plugin.make<belay_diagnostics_vt>(BELAY_DIAGNOSTICS_KIND);
  uint64_t outcome = 0;
  StringSink said;
  const auto status = host.take(object->run_check(object, 0, &outcome, said.sink()));
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find("nothing to share"), std::string::npos) << status.message();
}

}  // namespace

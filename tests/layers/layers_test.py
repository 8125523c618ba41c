"""The checks of this folder find what they are there to find: each is given small trees with one breach."""
import pathlib
import tempfile
import unittest

import includes
import lengths
import scripts
import words


class TreeTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class IncludesTest(TreeTest):
    def setUp(self):
        super().setUp()
        for header in ["core/host.h", "core/base/log.h", "core/config/config.h", "core/services/services.h", "hal/device.h", "plugins/memory/pool/pool.h",
                       "plugins/memory/reuse/reuse.h", "sdk/graph/include/belay/graph/builder.h",
                       "sdk/include/belay/abi/base.h", "sdk/include/belay/abi/graph.h",
                       "sdk/runtime/include/runtime/runtime.h", "plugins/engine/graph/ir/value.h",
                       "plugins/engine/graph/plan/arena.h"]:
            self.write(header, "\n")

    def problem(self, name, include):
        """The one problem of a file with one #include; '' when it is allowed."""
        path = self.write(name, f"// a comment\n#include {include}\n")
        found = includes.check(self.root)
        path.unlink()
        self.assertLessEqual(len(found), 1, found)
        return found[0] if found else ""

    def test_what_the_architecture_allows(self):
        for name, include in [
                ("plugins/memory/pool/pool.cpp", '"pool.h"'), ("plugins/memory/pool/pool.cpp", "<belay/abi/base.h>"),
                ("plugins/formats/onnx/reader.cpp", "<belay/graph/builder.h>"),
                ("plugins/formats/onnx/reader.cpp", "<protozero/pbf_reader.hpp>"),
                ("plugins/engine/graph/plan/lifetimes.cpp", '"ir/value.h"'),
                ("core/host.cpp", '"core/host.h"'), ("core/host.cpp", "<vector>"), ("core/host.cpp", "<sys/stat.h>"),
                ("core/host.cpp", "<boost/asio.hpp>"), ("core/host.cpp", '"core/base/log.h"'),
                ("core/config/config.cpp", '"core/base/log.h"'), ("core/config/value.cpp", "<toml++/toml.h>"),
                ("hal/device.cpp", '"core/host.h"'), ("sdk/cli/main.cpp", "<runtime/runtime.h>"),
                ("sdk/runtime/c_api.cpp", '"hal/device.h"'), ("tests/hal/device_test.cpp", '"hal/device.h"'),
                ("tests/plugins/memory/pool/pool_test.cpp", '"pool.h"'), ("sdk/include/belay/a.hpp", "<string>"),
                ("sdk/include/belay/abi/driver.h", "<stdint.h>")]:
            with self.subTest(name=name, include=include):
                self.assertEqual(self.problem(name, include), "")

    def test_what_it_does_not(self):
        for name, include, why in [
                ("core/host.cpp", '"hal/device.h"', "core may include from"),
                ("core/host.cpp", '"core/services/services.h"', "may not include from core/services"),
                ("core/services/services.cpp", '"hal/device.h"', "core/services may include from"),
                ("core/base/log.cpp", '"core/host.h"', "core/base may include from"),
                ("core/base/log.cpp", '"core/config/config.h"', "core/base may include from"),
                ("core/config/config.cpp", '"core/host.h"', "core/config may include from"),
                ("core/host.cpp", "<toml++/toml.h>", "may use boost"),
                ("core/config/value.cpp", "<belay/abi/graph.h>", "the core knows no tensor"),
                ("core/host.cpp", '"plugins/memory/pool/pool.h"', "core may include from"),
                ("core/host.cpp", "<belay/abi/graph.h>", "the core knows no tensor"),
                ("core/host.cpp", "<protozero/pbf_reader.hpp>", "may use boost"),
                ("hal/device.cpp", '"plugins/memory/pool/pool.h"', "hal may include from"),
                ("hal/device.cpp", "<spdlog/spdlog.h>", "may use boost"),
                ("plugins/memory/pool/pool.cpp", '"core/host.h"', "plugins/memory/pool may include from"),
                ("plugins/memory/pool/pool.cpp", '"hal/device.h"', "plugins/memory/pool may include from"),
                ("plugins/memory/pool/pool.cpp", '"../reuse/reuse.h"', "plugins/memory/pool may include from"),
                ("plugins/memory/pool/pool.cpp", "<toml++/toml.h>", "may use protozero"),
                ("plugins/engine/graph/ir/value.cpp", '"plan/arena.h"', "plugins/engine/graph/ir may include from"),
                ("sdk/cli/main.cpp", '"hal/device.h"', "sdk/cli may include from"),
                ("sdk/graph/builder.cpp", "<runtime/runtime.h>", "sdk/graph may include from"),
                ("sdk/include/belay/a.hpp", '"core/host.h"', "sdk/include may include from"),
                ("sdk/include/belay/a.hpp", "<boost/asio.hpp>", "no third-party library"),
                ("sdk/include/belay/abi/driver.h", "<stdbool.h>", "the ABI needs"),
                ("tests/core/host_test.cpp", '"hal/device.h"', "tests/core may include from"),
                ("tests/core/base/log_test.cpp", '"core/host.h"', "tests/core/base may include from"),
                ("hal/device.cpp", '"nowhere.h"', "no file of the tree"),
                ("other/a.cpp", "<vector>", "no row of the table")]:
            with self.subTest(name=name, include=include):
                self.assertIn(why, self.problem(name, include))

    def test_the_core_does_not_see_tensors_through_another_header(self):
        self.write("sdk/include/belay/plugin.hpp", "#include <belay/abi/graph.h>\n")
        self.assertIn("plugin.hpp -> sdk/include/belay/abi/graph.h", self.problem("core/host.cpp", "<belay/plugin.hpp>"))

    def test_an_include_in_a_comment_is_none(self):
        self.write("core/host.cpp", '/*\n#include "hal/device.h"\n*/\n// #include "hal/device.h"\n')
        self.assertEqual(includes.check(self.root), [])


class LengthsTest(TreeTest):
    def test_only_code_over_the_limit_is_a_problem(self):
        self.write("core/a.cpp", "\n" * 1000)
        self.write("sdk/golden/layout.txt", "\n" * 2000)
        self.assertEqual(lengths.check(self.root), [])
        self.write("tests/b.py", "\n" * 1001)
        self.assertEqual(lengths.check(self.root), ["tests/b.py: 1001 lines, want 1000 at most"])


    def test_the_core_itself_has_a_limit_of_its_own_that_its_libraries_do_not_count_for(self):
        self.write("core/a.cpp", "\n" * 900)
        self.write("core/a.h", "\n" * 100)
        self.write("core/b.cpp", "\n" * 1000)
        self.write("core/base/c.cpp", "\n" * 900)
        self.assertEqual(lengths.check(self.root), [])
        self.write("core/a.h", "\n" * 101)
        self.assertEqual(lengths.check(self.root), ["core: 2001 lines in its own sources, want 2000 at most"])


class WordsTest(TreeTest):
    def test_places_of_a_machine_and_hosts_of_registries_are_found(self):
        for text in ["cd /wo" "rk/main", "see '/ho" "me/me/x'", "regis" "try.npm" "js.org", "https://deb.deb" "ian.org"]:
            with self.subTest(text=text):
                self.write("README.md", f"first\n{text}\n")
                self.assertEqual(len(words.check(self.root)), 1)

    def test_paths_below_a_variable_or_a_folder_are_not(self):
        self.write("a.sh", "out=$PWD/wo" "rk/x; cat build/ho" "me/y; ls /usr/share/common-licenses\n")
        self.assertEqual(words.check(self.root), [])


class ScriptsTest(TreeTest):
    def test_what_does_not_parse_is_found(self):
        for name, text in [("a.sh", "set -euo pipefail\nif true; then\n"), ("b.sh", "echo no error mode\n"),
                           ("run", "#!/usr/bin/env bash\nset -euo pipefail\n((\n"), ("c.py", "def f(:\n"),
                           ("d.json", "{,}")]:
            with self.subTest(name=name):
                path = self.write(name, text)
                self.assertNotEqual(scripts.check(self.root), [])
                path.unlink()

    def test_what_parses_is_not(self):
        self.write("a.sh", "#!/usr/bin/env bash\nset -euo pipefail\necho ready\n")
        self.write("b.py", "x = 1\n")
        self.write("c.json", "{}")
        self.assertEqual(scripts.check(self.root), [])


if __name__ == "__main__":
    unittest.main()

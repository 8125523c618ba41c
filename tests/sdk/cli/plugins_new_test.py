"""`belay plugins new`: what it writes, and that nothing is left where it cannot. That what it writes builds and runs is
tested in tests/integration/scaffold.

  plugins_new_test.py PROGRAM
"""
import os
import re
import resource
import signal
import sys
import unittest

from program import ProgramTest

KINDS = ["driver", "memory-policy", "model-format", "kernel-provider", "engine", "diagnostics", "layer"]


class PluginsNewTest(ProgramTest):
    def new(self, *arguments, code=0, **options):
        return self.belay("plugins", "new", *arguments, code=code, **options)

    def left(self):
        return sorted(path.name for path in self.folder.iterdir())

    def refused(self, *arguments, code, says, **options):
        """It fails with these words and changes nothing."""
        before = self.left()
        err = self.new(*arguments, code=code, **options).stderr
        for word in says:
            self.assertIn(word, err)
        self.assertEqual(self.left(), before)

    def test_every_kind_is_a_whole_project_with_the_id_in_place(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                plugin = f"a.{kind}_2"
                said = self.json("plugins", "new", kind, plugin, schema="belay.plugins-new/1")
                folder = self.folder / plugin
                self.assertEqual([said["kind"], said["id"], said["folder"]], [kind, plugin, plugin])
                self.assertEqual(sorted(said["files"]), sorted(path.name for path in folder.iterdir()))
                self.assertLessEqual({"CMakeLists.txt", "README.md", "plugin.cpp", "plugin.toml", "plugin_test.cpp"}, set(said["files"]))
                for path in folder.iterdir():
                    self.assertNotRegex(path.read_text(), r"@[A-Z]+@", path.name)
                manifest = (folder / "plugin.toml").read_text()
                self.assertRegex(manifest, rf'(?m)^id +=  ?"{re.escape(plugin)}"$')
                self.assertIn(f'kind = "belay.{kind}/1"\nname = "{plugin}"\n', manifest)
                self.assertIn(f"project(belay_plugin_{re.sub('[.-]', '_', plugin)} ", (folder / "CMakeLists.txt").read_text())
                self.assertIn(f'BELAY_DEFINE_PLUGIN(Plugin, "{plugin}"', (folder / "plugin.cpp").read_text())

    def test_folders_and_files_are_as_the_umask_says(self):
        (self.folder / "there").mkdir()
        said = self.new("layer", "mine", "--dir", "there", umask=0o027).stdout
        self.assertIn("there/mine", said)
        self.assertEqual((self.folder / "there/mine").stat().st_mode & 0o777, 0o750)
        self.assertEqual((self.folder / "there/mine/plugin.cpp").stat().st_mode & 0o777, 0o640)

    def test_what_is_there_stays(self):
        self.new("layer", "mine")
        self.write("mine/plugin.cpp", "my own")
        self.refused("layer", "mine", code=3, says=["'mine'", "already", "--dir"])
        self.assertEqual((self.folder / "mine/plugin.cpp").read_text(), "my own")
        self.write("file", "")
        self.refused("layer", "file", code=3, says=["'file'", "already"])
        os.symlink("nothing", self.folder / "link")
        self.refused("layer", "link", code=3, says=["'link'", "already"])
        (self.folder / "empty").mkdir()
        self.refused("layer", "empty", code=3, says=["'empty'", "already"])

    def test_wrong_words_are_named(self):
        self.refused("layr", "mine", code=2, says=["'layr'", "did you mean 'layer'?", "memory-policy"])
        for plugin in ("Mine", "9lives", "a b", "../up", "a/b", ".hidden", "\x1b", "ä", "a" * 65):
            self.refused("layer", plugin, code=2, says=["is no id of a plugin"])
        self.new("layer", "a" * 64)
        self.refused("layer", code=2, says=["wants a plugin's id"])
        self.refused(code=2, says=["wants a kind of plugin"])
        self.refused("layer", "mine", "more", code=2, says=["'more'"])
        self.refused("layer", "mine", "--dir", "nowhere", code=3, says=["There is no folder 'nowhere'"])
        self.write("file", "")
        self.refused("layer", "mine", "--dir", "file", code=3, says=["'file' is no folder"])

    def test_a_place_where_nothing_can_be_made(self):
        self.refused("layer", "mine", "--dir", "/proc", code=3, says=["Cannot make the folder '/proc/mine'", "--dir"])
        if os.getuid() != 0:  # root may write anywhere
            (self.folder / "closed").mkdir(mode=0o555)
            self.refused("layer", "mine", "--dir", "closed", code=3, says=["closed/mine", "Permission denied"])

    def test_a_full_disk_leaves_nothing(self):
        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        self.refused("driver", "mine", code=3, says=["Cannot write 'mine/", "Nothing was left behind"], preexec_fn=no_room,
                     restore_signals=False)


if __name__ == "__main__":
    PluginsNewTest.program = sys.argv[1]
    unittest.main(argv=sys.argv[:1])

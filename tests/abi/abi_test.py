"""The checks of this folder find what they are there to find: each is given headers or shared objects with a breach."""
import pathlib
import subprocess
import tempfile
import unittest

import cdecls
import elf
import headers
import layout

PLUGIN = """#ifndef PLUGIN_H
#define PLUGIN_H
#include <stdint.h>
#include <stddef.h>
#define BELAY_ABI_LAYOUT 1u
#define BELAY_LIMIT 0xffffffffu
typedef struct belay_hdr { uint32_t struct_size, flags; const void* next; } belay_hdr;
#endif
"""


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.header("plugin", PLUGIN)

    def header(self, name, text):
        path = self.root / f"sdk/include/belay/abi/{name}.h"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class LayoutTest(FolderTest):
    def table(self, body):
        """Problems of a header with the struct belay_x { body }."""
        self.header("x", f"#include <belay/abi/plugin.h>\ntypedef struct belay_x {{ {body} }} belay_x;\n")
        return "\n".join(layout.dump(self.root)[2])

    def golden(self):
        return (self.root / layout.GOLDEN).read_text()

    def test_an_update_is_what_the_check_accepts_and_it_writes_the_digest(self):
        self.assertEqual(self.table("belay_hdr hdr; void (*f)(struct belay_x*, uint64_t);"), "")
        self.assertNotEqual(layout.check(self.root), [])
        self.assertEqual(layout.update(self.root), [])
        self.assertEqual(layout.check(self.root), [])
        self.assertIn("const BELAY_LIMIT 0xffffffffu\n", self.golden())
        self.assertIn("struct belay_x 24\n  0 +16 hdr: belay_hdr\n  16 +8 f: void (*)(struct belay_x *, uint64_t)\n",
                      self.golden())

    def test_each_change_of_the_layout_is_seen(self):
        body = "uint32_t a; uint32_t b; void (*f)(uint32_t);"
        self.assertEqual(self.table(body), "")
        layout.update(self.root)
        for changed in ["uint32_t b; uint32_t a; void (*f)(uint32_t);", "uint32_t a; int32_t b; void (*f)(uint32_t);",
                        "uint32_t a; uint32_t b; void (*f)(uint64_t);", "uint64_t a; void (*f)(uint32_t);",
                        body + " uint64_t c;", "uint32_t a; uint32_t b; void (*g)(uint32_t);"]:
            with self.subTest(changed=changed):
                self.table(changed)
                self.assertIn("the layout changed", "\n".join(layout.check(self.root)))
        self.table(body)
        self.header("plugin", (self.root / "sdk/include/belay/abi/plugin.h").read_text().replace("0xffffffffu", "7u"))
        self.assertIn("+const BELAY_LIMIT 7u", "\n".join(layout.check(self.root)))

    def test_a_stale_digest_is_seen(self):
        layout.update(self.root)
        self.header("plugin", PLUGIN)
        self.assertIn("BELAY_ABI_LAYOUT is 1u, want 0x", "\n".join(layout.check(self.root)))

    def test_what_does_not_belong_into_an_abi_is_named(self):
        for body, why in [("uint32_t a; uint64_t b;", "belay_x.b: 4 bytes of padding"),
                          ("uint64_t a; uint32_t b;", "belay_x: 4 bytes of padding at its end"),
                          ("long a;", "has 'long'"), ("size_t a;", "has 'size_t'"), ("_Bool a;", "has '_Bool'"),
                          ("int (*f)(void);", "has 'int'"), ("void (*f)(uint64_t, ...);", "has '...'"),
                          ("void (*f)(const struct other*);", "has 'other'"),
                          ("uint32_t a : 3;", "is a bit-field"), ("union { uint32_t b; };", "inside a struct"),
                          ("union belay_u { uint32_t b; } u;", "belay_u"), ("enum belay_e { A } e;", "belay_e"),
                          ("", "has no fields")]:
            with self.subTest(body=body):
                self.assertIn(why, self.table(body))

    def test_a_foreign_name_and_an_unreadable_header_are_named(self):
        self.header("x", "typedef struct other { int a; } other;\n")
        self.assertIn("other", "\n".join(layout.dump(self.root)[2]))
        self.header("x", "typedef struct belay_x { unknown a; } belay_x;\n")
        with self.assertRaisesRegex(cdecls.Unreadable, "unknown type name 'unknown'"):
            layout.dump(self.root)

    def test_a_tree_without_headers_is_no_success(self):
        (self.root / "sdk/include/belay/abi/plugin.h").unlink()
        with self.assertRaises(cdecls.Unreadable):
            layout.check(self.root)


class HeadersTest(FolderTest):
    def test_a_header_that_stands_alone_in_all_languages_passes(self):
        self.assertEqual(headers.check(self.root), [])

    def test_each_breach_is_seen(self):
        for text in ["typedef struct belay_x { uint32_t a; } belay_x;\n",          # includes nothing
                     "#include <stdint.h>\nstruct belay_x { uint32_t a; };\n",     # twice
                     "#pragma once\ntypedef struct belay_x { char a; int b; } belay_x;\n",    # padding
                     "#pragma once\nstatic int unused(void) { return 1; }\n",
                     "#pragma once\nvoid belay_f(int class);\n",
                     "#pragma once\ntypedef struct belay_x { union { int a; }; int b[]; } belay_x;\n"]:
            with self.subTest(text=text):
                self.header("x", text)
                self.assertNotEqual(headers.check(self.root), [])


class ElfTest(FolderTest):
    NOTE = '__asm__(".section .note.belay,\\"a\\",@note\\n.long 6,4,1\\n.asciz \\"BELAY\\"\\n.balign 4\\n.long 1\\n.text");\n'
    ENTRY = "const void* belay_plugin_v0(void) { return 0; }\n"
    FLAGS = ["-Wl,-z,now,-z,relro", "-fvisibility=default"]

    def build(self, code, flags=(), manifest='id = "x"\n', language="c"):
        file = self.root / "libbelay_x.so"
        subprocess.run(["gcc", "-x", language, "-shared", "-fPIC", "-nostdlib", "-o", file, "-", *(flags or self.FLAGS)],
                       input=code, text=True, check=True)
        file.with_suffix(".plugin.toml").write_text(manifest)
        return file

    def problems(self, *arguments, **options):
        return "\n".join(elf.check_plugin(self.build(*arguments, **options), "x"))

    def test_a_good_plugin_passes(self):
        self.assertEqual(self.problems(self.NOTE + self.ENTRY), "")

    def test_each_breach_is_seen(self):
        good = self.NOTE + self.ENTRY
        unique = 'template <class T> struct S { static int x; }; template <class T> int S<T>::x = 1; int* p = &S<int>::x;\n'
        for code, options, why in [
                (good + "int other;\n", {}, "exports belay_plugin_v0, other, want"),
                (self.NOTE + "int other;\n", {}, "exports other"),
                (good + "void belay_version(void); void f(void) { belay_version(); }\n", {}, "imports belay_version"),
                (self.ENTRY, {}, "has no note"),
                (good, {"manifest": 'id = "y"\n'}, "is not that of 'x'"),
                (good, {"flags": ["-Wl,-z,lazy,-z,relro"]}, "-z now"),
                (good, {"flags": ["-Wl,-z,now,-z,norelro"]}, "-z relro"),
                (good, {"flags": [*self.FLAGS, "-Wl,-z,execstack"]}, "executable stack"),
                (self.NOTE + unique, {"language": "c++"}, "unique symbols")]:
            with self.subTest(why=why):
                self.assertIn(why, self.problems(code, **options))

    def test_a_missing_manifest_is_seen(self):
        file = self.build(self.NOTE + self.ENTRY)
        file.with_suffix(".plugin.toml").unlink()
        self.assertIn("no manifest", "\n".join(elf.check_plugin(file, "x")))

    def test_a_runtime_exports_what_its_header_declares(self):
        (self.root / "sdk/include/belay/runtime.h").write_text("int belay_a(void);\nint belay_b(void);\n")
        file = self.build("int belay_a(void) { return 1; }\nint belay_b(void) { return 1; }\n")
        self.assertEqual(elf.check_runtime(file, self.root), [])
        file = self.build("int belay_a(void) { return 1; }\nint belay_c(void) { return 1; }\n")
        problems = "\n".join(elf.check_runtime(file, self.root))
        self.assertIn("does not declare: belay_c", problems)
        self.assertIn("does not export: belay_b", problems)


if __name__ == "__main__":
    unittest.main()

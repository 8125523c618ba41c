"""The layout of the C ABI against the golden file: constants, types, and size and offsets of every struct.

    layout.py ROOT            compares; also finds padding and types that do not belong into an ABI
    layout.py ROOT --update   writes the golden file and BELAY_ABI_LAYOUT, the digest of it, into plugin.h

clang says what the headers declare; a program made from that and compiled by the C compiler says where it lies.
"""
import difflib
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import cdecls

GOLDEN = "sdk/golden/layout.txt"
DIGEST_IN = "belay/abi/plugin.h"
DIGEST = "BELAY_ABI_LAYOUT"
HEAD = "# Layout of the C ABI; bytes. Written by tests/abi/layout.py --update, compared by a test.\n"
ALLOWED = re.compile(r"const|void|char|float|double|u?int(8|16|32|64)_t|struct|belay_\w+")


def foreign_words(type_text):
    """Words of a C type that the ABI does not allow: bool, long, int, enum, size_t, ... and varargs."""
    words = re.findall(r"[A-Za-z_]\w*|\.\.\.", type_text)
    return [word for word in words if not ALLOWED.fullmatch(word)]


class Abi:
    """Structs, typedefs and constants of the headers; `problems` are breaches of the rules of an ABI."""

    def __init__(self, root):
        self.problems = []
        self.structs, self.typedefs, self.functions, self.opaque = {}, {}, {}, set()
        self.headers = cdecls.abi_headers(root)
        if not self.headers:
            raise cdecls.Unreadable("no header in sdk/include/belay/abi")
        self.constants = cdecls.constants(root, self.headers)
        self.digest = self.constants.pop(DIGEST, None)
        for node in cdecls.declarations(root, self.headers):
            self.add(node)
        self.opaque -= self.structs.keys()
        self.check_all_seen(root)

    def add(self, node):
        kind, name = node["kind"], node.get("name", "")
        if not name.startswith("belay_"):
            self.problems.append(f"{kind} '{name}': want a name that begins with belay_")
        elif kind == "RecordDecl" and node["tagUsed"] != "struct":
            self.problems.append(f"{name} is a {node['tagUsed']}, want a struct")
        elif kind == "RecordDecl" and node.get("completeDefinition"):
            self.structs[name] = self.fields(node)
        elif kind == "RecordDecl":
            self.opaque.add(name)
        elif kind == "TypedefDecl":
            self.typedefs[name] = self.clean(name, node["type"]["qualType"])
        elif kind == "FunctionDecl":
            self.functions[name] = self.clean(name, node["type"]["qualType"])
        else:
            self.problems.append(f"{name}: a {kind} does not belong into the ABI")

    def fields(self, record):
        fields = []
        for node in record.get("inner", []):
            if node["kind"].endswith("Comment") or node["kind"].endswith("Attr"):
                continue
            place = f"{record['name']}.{node.get('name', '(no name)')}"
            if node["kind"] != "FieldDecl" or "name" not in node:
                self.problems.append(f"{place}: a {node['kind']} inside a struct; want named fields only")
            elif node.get("isBitfield"):
                self.problems.append(f"{place} is a bit-field")
            else:
                fields.append((node["name"], self.clean(place, node["type"]["qualType"])))
        if not fields:
            self.problems.append(f"{record['name']} has no fields")
        return fields

    def clean(self, place, type_text):
        for word in foreign_words(type_text):
            self.problems.append(f"{place}: type '{type_text}' has '{word}'; want fixed-width integers and belay_ types")
        return type_text

    def check_all_seen(self, root):
        """The text of the headers names no struct that clang did not give."""
        for header in self.headers:
            text = (cdecls.include_dir(root) / header).read_text()
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
            for name in re.findall(r"\b(?:struct|union|enum)\s*(\w*)\s*\{", text):
                if name not in self.structs:
                    self.problems.append(f"{header}: '{name or 'a type without a name'}' is not in the dump")


def measure(root, abi):
    """{struct: (size, [(offset, size) of each field])} by the C compiler."""
    lines = ["#include <stdio.h>"] + [f"#include <{header}>" for header in abi.headers] + ["int main(void) {"]
    for struct, fields in abi.structs.items():
        lines.append(f'  printf("{struct} %zu", sizeof(struct {struct}));')
        for field, _ in fields:
            lines.append(f'  printf(" %zu %zu", offsetof(struct {struct}, {field}), sizeof(((struct {struct}*)0)->{field}));')
        lines.append('  printf("\\n");')
    lines.append("  return 0;\n}\n")
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "layout.c", pathlib.Path(folder) / "layout"
        source.write_text("\n".join(lines))
        command = [os.environ.get("CC", "cc"), "-std=c11", "-I", cdecls.include_dir(root), "-o", program, source]
        built = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if built.returncode:
            raise cdecls.Unreadable(f"the layout program does not compile:\n{built.stdout}")
        output = subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout
    measured = {}
    for line in output.splitlines():
        struct, size, *numbers = line.split()
        numbers = [int(n) for n in numbers]
        measured[struct] = int(size), list(zip(numbers[::2], numbers[1::2]))
    return measured


def padding(struct, fields, size, places):
    end = 0
    for (name, _), (offset, bytes_) in zip(fields, places):
        if offset != end:
            yield f"{struct}.{name}: {offset - end} bytes of padding before it"
        end = offset + bytes_
    if size != end:
        yield f"{struct}: {size - end} bytes of padding at its end"


def dump(root):
    """(text of the golden file, digest as in plugin.h, problems)."""
    abi = Abi(root)
    measured = measure(root, abi)
    lines = [f"const {name} {text}" for name, text in sorted(abi.constants.items())]
    lines += [f"type {name} = {text}" for name, text in sorted(abi.typedefs.items()) if text != f"struct {name}"]
    lines += [f"function {name}: {text}" for name, text in sorted(abi.functions.items())]
    lines += [f"opaque {name}" for name in sorted(abi.opaque)]
    for struct, fields in sorted(abi.structs.items()):
        size, places = measured[struct]
        abi.problems += padding(struct, fields, size, places)
        lines.append(f"struct {struct} {size}")
        lines += [f"  {offset} +{bytes_} {name}: {text}" for (name, text), (offset, bytes_) in zip(fields, places)]
    text = HEAD + "\n".join(lines) + "\n"
    return text, abi.digest, abi.problems


def digest_of(text):
    return f"0x{hashlib.sha256(text.encode()).hexdigest()[:8]}u"


def check(root):
    text, digest, problems = dump(root)
    path = pathlib.Path(root) / GOLDEN
    golden = path.read_text() if path.exists() else ""
    if text != golden:
        difference = difflib.unified_diff(golden.splitlines(), text.splitlines(), GOLDEN, "the headers", "", "", 1, "")
        problems.append("\n".join(["the layout changed (if that is meant: tests/abi/layout.py . --update):", *difference]))
    elif digest != digest_of(text):
        problems.append(f"{DIGEST} is {digest}, want {digest_of(text)}: run tests/abi/layout.py . --update")
    return problems


def update(root):
    text, digest, problems = dump(root)
    path = pathlib.Path(root) / GOLDEN
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    header = cdecls.include_dir(root) / DIGEST_IN
    source, count = re.subn(rf"(#define {DIGEST} )\S+", rf"\g<1>{digest_of(text)}", header.read_text())
    if count != 1:
        problems.append(f"{header}: want one '#define {DIGEST} ...', found {count}")
    elif digest != digest_of(text):
        header.write_text(source)
    return problems


def main(root, *options):
    try:
        problems = update(root) if options == ("--update",) else check(root)
    except cdecls.Unreadable as error:
        problems = [str(error)]
    for problem in problems:
        print(problem)
    print(f"layout: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""What the shared objects of the build show to the world.

    elf.py plugin FILE ID        exports belay_plugin_v0 and nothing else, carries its note, has its manifest beside it
    elf.py runtime FILE ROOT     libbelay.so exports exactly the functions that belay/runtime.h declares
"""
import pathlib
import re
import subprocess
import sys

import cdecls

ENTRY = "belay_plugin_v0"


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def symbols(file, *options):
    """(name, type) of dynamic symbols, as nm gives them."""
    lines = run("nm", "-D", "--format=posix", *options, file).splitlines()
    return [(line.split()[0].split("@")[0], line.split()[1]) for line in lines]


def hardening(file):
    """Properties that every shared object of ours has."""
    dynamic, segments = run("readelf", "-dW", file), run("readelf", "-lW", file)
    if "BIND_NOW" not in dynamic and not re.search(r"FLAGS_1.*\bNOW\b", dynamic):
        yield "not linked with -z now: an undefined symbol would end the process at its first call"
    if "TEXTREL" in dynamic:
        yield "has text relocations"
    if "GNU_RELRO" not in segments:
        yield "not linked with -z relro"
    if re.search(r"GNU_STACK\s.*\bRWE\b", segments):
        yield "wants an executable stack"
    unique = [name for name, kind in symbols(file, "--defined-only") if kind == "u"]
    if unique:
        yield f"has unique symbols, so it cannot be unloaded: {', '.join(unique)}"


def check_plugin(file, plugin_id):
    problems = list(hardening(file))
    exported = sorted(name for name, _ in symbols(file, "--defined-only"))
    if exported != [ENTRY]:
        problems.append(f"exports {', '.join(exported) or 'nothing'}, want {ENTRY} alone")
    imported = [name for name, _ in symbols(file, "--undefined-only") if name.startswith("belay_")]
    if imported:
        problems.append(f"imports {', '.join(imported)} of the host, want only what the host's table gives")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", file))
    if any(name.startswith("libbelay") for name in needed):
        problems.append(f"needs {', '.join(needed)}, want no library of Belay")
    if not re.search(r"^\s*BELAY\s", run("readelf", "-nW", file), re.MULTILINE):
        problems.append("has no note of owner BELAY; use BELAY_DEFINE_PLUGIN")
    manifest = pathlib.Path(file).with_suffix(".plugin.toml")
    if not manifest.is_file():
        problems.append(f"no manifest {manifest.name} beside it")
    elif not re.search(rf'^id\s*=\s*"{re.escape(plugin_id)}"', manifest.read_text(), re.MULTILINE):
        problems.append(f"{manifest.name} is not that of '{plugin_id}'")
    return problems


def check_runtime(file, root):
    problems = list(hardening(file))
    exported = {name for name, _ in symbols(file, "--defined-only")}
    declared = set(cdecls.functions(root, ["belay/runtime.h"]))
    if exported - declared:
        problems.append(f"exports what belay/runtime.h does not declare: {', '.join(sorted(exported - declared))}")
    if declared - exported:
        problems.append(f"belay/runtime.h declares what it does not export: {', '.join(sorted(declared - exported))}")
    return problems


if __name__ == "__main__":
    kind, file, argument = sys.argv[1:]
    problems = check_plugin(file, argument) if kind == "plugin" else check_runtime(file, argument)
    for problem in problems:
        print(f"{pathlib.Path(file).name}: {problem}")
    sys.exit(1 if problems else 0)

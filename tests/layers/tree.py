"""The files of a source tree, as the checks of this folder see them."""
import os
import pathlib
import shutil
import subprocess

CODE = {".c", ".cc", ".cpp", ".h", ".hpp", ".py", ".sh", ".cmake", ".map", ".js"}


def files(root):
    """All files of the tree, relative to it: what git knows or would add; where git has no say, what is not built."""
    root = pathlib.Path(root)
    if (root / ".git").exists() and shutil.which("git"):
        git = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if git.returncode == 0:
            return sorted(name for name in set(git.stdout.decode().split("\0")) if name and (root / name).is_file())
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [d for d in subfolders if not d.startswith("build") and d not in (".git", "node_modules", "__pycache__")]
        found += [str((pathlib.Path(folder) / name).relative_to(root)) for name in names]
    return sorted(found)


def is_code(name):
    path = pathlib.PurePath(name)
    return path.suffix in CODE or path.name == "CMakeLists.txt" or name == ".ci/run"


def report(problems, title):
    """Prints the problems, one a line, and returns the exit code of a check."""
    for problem in problems:
        print(problem)
    print(f"{title}: {len(problems)} problem{'' if len(problems) == 1 else 's'}")
    return 1 if problems else 0

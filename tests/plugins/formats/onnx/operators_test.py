"""operator_table.hpp is what make_operators.py writes. Skipped (77) where python3-onnx is of another version.

  operators_test.py FOLDER_OF_THE_PLUGIN
"""
import pathlib
import subprocess
import sys

try:
    import onnx
except ImportError:
    print("skipped: python3-onnx is not installed")
    sys.exit(77)
if onnx.defs.onnx_opset_version() != 17:
    print(f"skipped: python3-onnx knows opset {onnx.defs.onnx_opset_version()}, the table was made with 17")
    sys.exit(77)
folder = pathlib.Path(sys.argv[1])
made = subprocess.run([sys.executable, "-B", str(folder / "make_operators.py")], check=True, capture_output=True, text=True)
if made.stdout != (folder / "operator_table.hpp").read_text():
    sys.exit("operator_table.hpp is not what make_operators.py writes; run it again")

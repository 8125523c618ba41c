#!/usr/bin/env bash
# Reads handwritten digits with the release build (sdk/quickstart.sh makes it). Options go to the program:
# --config FILE, --set KEY=VALUE.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$here/../../../build/release/bin/belay_digits
[ -x "$program" ] || {
  echo "demo: no $program; run sdk/quickstart.sh first" >&2
  exit 1
}
exec "$program" "$here" "$@"

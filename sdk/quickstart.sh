#!/usr/bin/env bash
# Installs what a build needs, builds Belay (release) and reads handwritten digits with it, on the CPU.
# Options go to the demonstration, for example --ocr. Can be run again: then it only shows the demonstration.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/release

bash sdk/setup/install.sh build
mkdir -p build
log=build/quickstart.log
step() { # what it does, command
  echo "quickstart: $1"
  shift
  "$@" </dev/null >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    echo "quickstart: failed: $* (all of its output: $log)" >&2
    exit 1
  }
}
# A build folder that has tests keeps them; here they are not needed.
[ -f "$build/build.ninja" ] || step "configuring $build" cmake --preset release -DBELAY_TESTS=OFF
step "building the program and the plugins (the first time takes minutes)" \
  cmake --build "$build" --target belay_cli belay_plugins

exec bash sdk/examples/digits/demo.sh "$@"

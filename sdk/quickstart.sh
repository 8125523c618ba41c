#!/usr/bin/env bash
# Installs what a build needs, builds Belay (release) and reads handwritten digits with it, on the CPU. With --ocr it
# then reads a drawn page of text with PP-OCRv4, whose models npm gets. Can be run again: what is done is not done twice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/release

ocr=no
for option in "$@"; do
  case $option in
    --ocr) ocr=yes ;;
    -h | --help)
      sed -n '2,/^set /{/^# /s///p}' sdk/quickstart.sh # the comment at the top
      exit 0
      ;;
    *)
      echo "quickstart: unknown option '$option', want --ocr, --help or nothing" >&2
      exit 2
      ;;
  esac
done

mkdir -p build
log=build/quickstart.log
step() { # what it does, command
  local start=$SECONDS
  printf 'quickstart: %s ...' "$1"
  shift
  "$@" </dev/null >"$log" 2>&1 || {
    echo " failed after $((SECONDS - start)) s"
    tail -n 40 "$log" >&2
    echo "quickstart: failed: $* (all of its output: $log)" >&2
    exit 1
  }
  echo " $((SECONDS - start)) s"
}

groups=(build)
targets=(belay_cli belay_plugins belay_digits)
if [ "$ocr" = yes ]; then
  groups+=(ocr)
  command -v npm >/dev/null || groups+=(npm)
  targets+=(belay_ocr)
fi
step "installing packages that are missing" bash sdk/setup/install.sh "${groups[@]}"
# A build folder that has tests keeps them; here they are not needed.
[ -f "$build/build.ninja" ] || step "configuring $build" cmake --preset release -DBELAY_TESTS=OFF
step "building the program and the plugins (the first time takes minutes)" \
  cmake --build "$build" --target "${targets[@]}"

echo "quickstart: reading handwritten digits"
echo
bash sdk/examples/digits/demo.sh
if [ "$ocr" = yes ]; then
  echo
  echo "quickstart: reading text with PP-OCRv4"
  bash sdk/examples/ocr/demo.sh
fi
echo
echo "quickstart: done in $SECONDS s; the program is $build/bin/belay, README.md says what it can do"

#!/usr/bin/env bash
# Installs, builds and runs all tests: release; AddressSanitizer and UndefinedBehaviorSanitizer; ThreadSanitizer on the
# tests labelled `tsan`; fuzz targets for some seconds each. Prints the time of each stage; the last line counts.
# --full: also tests labelled `full`, fuzz targets for five minutes each, ThreadSanitizer three times over.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
exec </dev/null

full=no
fuzz_seconds=15
for option in "$@"; do
  case $option in
    --full)
      full=yes
      fuzz_seconds=300
      ;;
    *)
      echo "run.sh: unknown option '$option', want --full or nothing" >&2
      exit 2
      ;;
  esac
done

jobs=$(nproc)
logs=build/logs
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# stage <name> <function>: runs it, prints its time; a function that fails without having counted a failure is one.
stage() {
  local name=$1 before=$failed start=$SECONDS code=0
  shift
  echo "== $name"
  "$@" || code=$?
  if [ "$code" -ne 0 ] && [ "$failed" -eq "$before" ]; then failed=$((failed + 1)); fi
  printf '== %s: %s, %d s\n' "$name" "$([ "$failed" -eq "$before" ] && echo ok || echo FAILED)" $((SECONDS - start))
  return "$code"
}

# quietly <log> <command>: its output goes to the log, the end of it is shown when it fails.
quietly() {
  local log=$logs/$1.log
  shift
  "$@" >"$log" 2>&1 && return
  tail -n 60 "$log"
  echo "failed: $* (all of its output: $log)"
  return 1
}

# build <preset> [option of cmake]...: configures and builds a preset.
build() {
  local preset=$1
  shift
  quietly "$preset-configure" cmake --preset "$preset" "$@" &&
    quietly "$preset-build" cmake --build --preset "$preset" -j "$jobs"
}

# ThreadSanitizer of clang 14 knows no address space randomised by more than 28 bits: there the tests run without it.
without_aslr=()
if [ "$(sysctl -n vm.mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ] && setarch -R true 2>/dev/null; then
  without_aslr=(setarch -R)
fi

# run_ctest <preset> [option of ctest]...: runs and counts the tests of a preset; fails when one fails or none ran.
run_ctest() {
  local preset=$1 junit=$PWD/$logs/$1.xml code=0 total bad skip
  shift
  rm -f "$junit"
  [ "$full" = yes ] || set -- "$@" -LE '^full$'
  "${without_aslr[@]}" ctest --preset "$preset" -j "$jobs" --output-junit "$junit" "$@" >"$logs/$preset-test.log" 2>&1 || code=$?
  if [ ! -s "$junit" ]; then
    tail -n 20 "$logs/$preset-test.log"
    return 1
  fi
  read -r total bad skip < <(python3 - "$junit" <<'PY'
import sys, xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot()
print(suite.get("tests"), suite.get("failures"), int(suite.get("skipped")) + int(suite.get("disabled")))
PY
  )
  passed=$((passed + total - bad - skip)) failed=$((failed + bad)) skipped=$((skipped + skip))
  echo "$preset: $total tests, $bad failed, $skip skipped"
  if [ "$code" -ne 0 ]; then sed -n '/tests passed/,$!p' "$logs/$preset-test.log" | tail -n 200; fi
  sed -n '/The following tests/,$p' "$logs/$preset-test.log"
  return "$code"
}

release() { build release -DBELAY_TESTS=ON && run_ctest release; }
core_only() { build core-only && run_ctest core-only; }
asan() { build asan && run_ctest asan; }

tsan() {
  local repeat=()
  [ "$full" = no ] || repeat=(--repeat until-fail:3)
  build tsan && run_ctest tsan "${repeat[@]}"
}

# fuzz_one <name>: runs a fuzz target; what it finds goes to the build folder, not into the corpus of the tree.
fuzz_one() {
  local name=$1 work=build/fuzz/found/$1
  mkdir -p "$work"
  if quietly "$name" "build/fuzz/fuzz/$name" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$work/" "$work" "$(cat "build/fuzz/fuzz/$name.corpus")"; then
    echo "$name: nothing found in $fuzz_seconds s"
  else
    return 1
  fi
}
export -f fuzz_one quietly
export fuzz_seconds logs

fuzz() {
  rm -f build/fuzz/fuzz/*.corpus # of targets that are no more
  build fuzz || return
  local names bad
  names=$(cd build/fuzz/fuzz && ls -- *.corpus) || return
  # shellcheck disable=SC2016 # the inner shell expands
  bad=$(xargs -P "$jobs" -I {} bash -c 'name={}; fuzz_one "${name%.corpus}" >&2 || echo "$name"' <<<"$names" | wc -l)
  failed=$((failed + bad)) passed=$((passed + $(wc -l <<<"$names") - bad))
  [ "$bad" -eq 0 ]
}

stage "packages" bash sdk/setup/install.sh &&
  { stage "core alone" core_only || true; } &&
  { stage "release" release || true; } &&
  { stage "AddressSanitizer, UndefinedBehaviorSanitizer" asan || true; } &&
  { stage "ThreadSanitizer" tsan || true; } &&
  { stage "fuzz targets" fuzz || true; }

echo "all stages: $SECONDS s"
summary="$passed passed, $failed failed"
if [ "$skipped" -gt 0 ]; then summary="$summary, $skipped skipped"; fi
echo "$summary"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

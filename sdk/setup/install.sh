#!/usr/bin/env bash
# Installs the Debian packages of packages.txt that are missing: `install.sh build` those that a build needs,
# `install.sh` (or `install.sh build test`) all. Where nothing is missing it changes nothing and asks nobody.
set -euo pipefail

list=$(dirname "${BASH_SOURCE[0]}")/packages.txt
[ $# -gt 0 ] || set -- build test
for group in "$@"; do
  case $group in
    build | test | ocr | npm) ;;
    *)
      echo "install: unknown group '$group', want build, test, ocr or npm" >&2
      exit 2
      ;;
  esac
done

command -v dpkg-query >/dev/null || {
  echo "install: no dpkg-query here; on a system other than Debian install what $list names" >&2
  exit 1
}

wanted=()
while read -r name group _; do
  case $name in '' | '#'*) continue ;; esac
  case " $* " in *" $group "*) wanted+=("$name") ;; esac
done <"$list"

# dpkg-query fails when one of the names is unknown to it; then that one is not in its answer.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
missing=()
for name in "${wanted[@]}"; do
  grep -qxF "installed $name" <<<"$installed" || missing+=("$name")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "install: all ${#wanted[@]} packages are there"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "install: missing packages and neither root nor sudo without a password; as root run:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi
echo "install: ${#missing[@]} of ${#wanted[@]} packages are missing, installing: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$log" 2>&1 || {
    echo "install: failed: $*" >&2
    tail -n 20 "$log" >&2
    exit 1
  }
}
run apt-get -qq -o DPkg::Lock::Timeout=300 update
run apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}"
echo "install: done"

#!/bin/sh
# Prints the path of a Python that lbzoo can run on (3.9, 3.10 or 3.11, 64 bits, with venv), or nothing and exit 1.
# Usage: find-python.sh [VERSION ...]     VERSION: 3.11, 3.10, 3.9; default: these three, in this order
# Every candidate is run before it is believed: version managers leave shims that answer "command not found",
# or that start another version than their name says.

versions="${*:-3.11 3.10 3.9}"

usable() { # usable CANDIDATE: its version is wanted, and it can make virtual environments
    "$1" -c '
import ensurepip, struct, sys, venv
sys.exit("%d.%d" % sys.version_info[:2] not in sys.argv[1:] or struct.calcsize("P") != 8)
' $versions </dev/null >/dev/null 2>&1
}

names=""
for version in $versions; do names="$names python$version"; done

for name in $names python3 python; do
    # all of PATH, not only its first match: a dead shim often stands before a working interpreter
    old_ifs=$IFS
    IFS=:
    for folder in $PATH; do
        IFS=$old_ifs
        candidate="${folder:-.}/$name"
        if [ -x "$candidate" ] && usable "$candidate"; then
            echo "$candidate"
            exit 0
        fi
    done
    IFS=$old_ifs
done

for version in $versions; do
    for candidate in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version"*/bin/python; do
        if [ -x "$candidate" ] && usable "$candidate"; then
            echo "$candidate"
            exit 0
        fi
    done
done
exit 1

#!/usr/bin/env bash
# smoke.sh VENV: lbzoo, installed in VENV, works there; run it outside the checkout.
set -euo pipefail
venv=$1

where=$("$venv/bin/python" -c 'import lbzoo; print(lbzoo.__file__)')
case $where in
    "$venv"/*) ;;
    *) echo "lbzoo was imported from $where, not from $venv" >&2; exit 1 ;;
esac
# every module, with the syntax and the annotations of this Python
TF_CPP_MIN_LOG_LEVEL=3 "$venv/bin/python" -W ignore -c '
import importlib, pkgutil, lbzoo
names = [m.name for m in pkgutil.walk_packages(lbzoo.__path__, "lbzoo.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names), "modules imported")
'
"$venv/bin/lbzoo" --help >/dev/null
"$venv/bin/lbzoo" list
"$venv/bin/python" -m lbzoo list >/dev/null

answers=$("$venv/bin/lbzoo" predict \
    "A wonderful film, I loved every minute of it." "A terrible waste of money, it broke after one day.")
echo "$answers"
if ! grep -Eq "loved.*,positive,(0\.[5-9]|1)" <<<"$answers" || ! grep -Eq "waste.*,negative,(0\.[5-9]|1)" <<<"$answers"; then
    echo "lbzoo predict did not call the first positive and the second negative" >&2
    exit 1
fi

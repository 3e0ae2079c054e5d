#!/bin/sh
# make_venv.sh FOLDER [EXTRA]: make the environment of this checkout, once; again when pyproject.toml or constraints.txt
# change, or the checkout was moved. PYTHON chooses the Python. Whatever is missing is said in one sentence, with a hint.
set -eu

venv=$1
extra=${2:-}
stamp=$venv/.headrace-installed

refuse() {
    echo "headrace: $1" >&2
    echo "  hint: $2" >&2
    exit 1
}

# What the environment was made from: the folder (scripts inside name it), the two files, the Python that was asked for.
wanted() {
    echo "folder $(pwd -P)"
    echo "python ${PYTHON:-any}"
    cksum pyproject.toml constraints.txt
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

can_make_venv() {
    "$1" -c 'import venv, ensurepip' >/dev/null 2>&1
}

version_of() {
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true
}

# Sets `python`. A name on PATH may be a stub that does not run (pyenv's, for a version that is not chosen): try each.
find_python() {
    found=
    without_venv=
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        version=$(version_of "$candidate")
        [ -n "$version" ] || continue
        if ! is_new_enough "$candidate"; then
            found="$found, found $candidate $version"
        elif can_make_venv "$candidate"; then
            python=$candidate
            return
        elif [ -z "$without_venv" ]; then
            without_venv="$candidate $version"
        fi
    done
    [ -z "$without_venv" ] || refuse "$without_venv lacks the modules venv and ensurepip" \
        "install them (Debian and Ubuntu: apt install python3-venv), or name another: make PYTHON=/path/to/python3"
    if [ -n "${PYTHON:-}" ] && [ -z "$found" ]; then
        refuse "PYTHON is $PYTHON, which cannot be run" "name a Python 3.11 or newer: make PYTHON=/path/to/python3"
    fi
    refuse "Python 3.11 or newer is needed${found:-, and no python3 was found}" \
        "install Python 3.11 or newer with its venv module, or name one: make PYTHON=/path/to/python3"
}

# The environment for development has all that the one for running has.
if [ -f "$stamp" ] && [ "$(head -n 4 "$stamp")" = "$(wanted)" ]; then
    if [ -z "$extra" ] || grep -qx "extra $extra" "$stamp"; then
        exit 0
    fi
fi

mkdir -p "$venv" 2>/dev/null && touch "$venv/.written" 2>/dev/null ||
    refuse "the folder $(pwd) cannot be written, and the environment is made in it" \
        "make it writable for $(id -un), or use a copy of it elsewhere"
rm -f "$venv/.written"

if [ ! -f "$stamp" ] || [ "$(head -n 2 "$stamp")" != "$(wanted | head -n 2)" ] || [ ! -x "$venv/bin/python" ]; then
    find_python
    echo "headrace: making $venv with Python $(version_of "$python")"
    rm -f "$stamp"
    "$python" -m venv --clear "$venv" || refuse "$venv could not be made; the lines above say why" "mend that and try again"
fi
if [ -f "$stamp" ] && [ -z "$extra" ]; then
    extra=$(sed -n 's/^extra //p' "$stamp")
fi
rm -f "$stamp"

echo "headrace: installing what constraints.txt lists (Spark is 450 MB: this takes a minute or more, once)"
# As variables, and not as -c, they hold for what builds packages too; a relative path, as spaces would cut it.
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
    "$venv/bin/python" -m pip install --quiet --editable ".${extra:+[$extra]}" ||
    refuse "the packages could not be installed; pip's own words are above" \
        "check the network and pip's settings, then run make again; it goes on from here"
{ wanted; [ -z "$extra" ] || echo "extra $extra"; } >"$stamp"

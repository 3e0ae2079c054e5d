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

# What the environment is made for: this folder (its scripts name it), the Python that is asked for (else the one it
# has), the two files.
place_of() {
    echo "folder $(pwd -P)"
    if [ -n "${PYTHON:-}" ] || [ ! -f "$stamp" ]; then
        echo "python ${PYTHON:-any}"
    else
        grep '^python ' "$stamp"
    fi
}
contents_of() {
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
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.13 python3.12 python3.11; fi
    for candidate in "$@"; do
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

place=$(place_of)
contents=$(contents_of)
is_placed=no
if [ -f "$stamp" ] && [ -x "$venv/bin/python" ] && [ "$(head -n 2 "$stamp")" = "$place" ]; then
    is_placed=yes
    # The environment for development has all that the one for the demonstration has.
    if [ "$(sed -n 's/^extra //p' "$stamp")" = dev ]; then extra=dev; fi
    if [ "$(cat "$stamp")" = "$place
$contents
extra $extra" ]; then exit 0; fi
fi

mkdir -p "$venv" 2>/dev/null && touch "$venv/.written" 2>/dev/null ||
    refuse "the folder $(pwd) cannot be written, and the environment is made in it" \
        "make it writable for $(id -un), or use a copy of it elsewhere"
rm -f "$venv/.written"

if [ $is_placed = no ]; then
    find_python
    rm -f "$stamp"
    echo "headrace: making $venv with Python $(version_of "$python")"
    "$python" -m venv --clear "$venv" || refuse "$venv could not be made; the lines above say why" "mend that and try again"
fi

rm -f "$stamp"
echo "headrace: installing what constraints.txt lists (Spark alone is 450 MB: this takes a minute or more, once)"
# As variables, and not as -c, they hold for what builds packages too; a relative path, as spaces would cut it.
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
    "$venv/bin/python" -m pip install --quiet --editable ".${extra:+[$extra]}" ||
    refuse "the packages could not be installed; pip's own words are above" \
        "check the network and pip's settings, then run make again"
printf '%s\n' "$place" "$contents" "extra $extra" >"$stamp"

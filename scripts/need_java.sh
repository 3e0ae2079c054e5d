#!/bin/sh
# Ends with one sentence and a hint unless Spark will find Java 17 or newer: in JAVA_HOME if that is set, else on PATH.
# The same rule as headrace/environment.py, for the time before there is anything to run that with.
set -eu

refuse() {
    echo "headrace: $1" >&2
    echo "  hint: install Java 17 or newer (for instance openjdk-17-jre-headless or Temurin), or set JAVA_HOME to one" >&2
    exit 1
}

if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
    [ -x "$java" ] || refuse "JAVA_HOME is $JAVA_HOME, but there is no bin/java in it that can be run"
else
    java=$(command -v java) || refuse "Java is missing: JAVA_HOME is not set and there is no java on PATH"
fi

text=$("$java" -version 2>&1) || refuse "$java cannot be run"
version=$(printf '%s\n' "$text" | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1)
major=$(printf '%s\n' "$version" | sed -e 's/^1\.//' -e 's/[^0-9].*//')
[ -n "$major" ] || refuse "$java does not report its Java version"
[ "$major" -ge 17 ] || refuse "$java is Java $version: Spark needs Java 17 or newer"

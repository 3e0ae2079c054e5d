#!/usr/bin/env bash
# Chromium, for the tests of `headrace ui`: installed where root may and Debian's packages are; else it says what is missing.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" > /dev/null; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  echo "headrace: installing Chromium, once, for the tests of headrace ui"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium > /dev/null
else
  echo "headrace: there is no Chromium: the tests of headrace ui are skipped (on Debian: apt-get install chromium)"
fi

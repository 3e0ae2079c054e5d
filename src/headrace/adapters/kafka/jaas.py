"""The one line of JAAS that the Java client takes its credentials from (`sasl.jaas.config`): read and written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import ConfigError

MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
_LINE = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*?);\s*", re.DOTALL)
_OPTION = re.compile(r"""\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Jaas:
    """A login module and its options. The options are secrets: they are in no `repr`."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Jaas({self.module}, options: {', '.join(sorted(self.options))})"


def parsed(text: str) -> Jaas:
    """`ConfigError`, which does not show the text, unless it is one module with a flag, options and a semicolon."""
    line = _LINE.fullmatch(text)
    if line is None:
        raise _refusal("expected MODULE required NAME=\"VALUE\" …; with a semicolon at the end")
    options: dict[str, str] = {}
    rest, position = line[3].rstrip(), 0
    while position < len(rest):
        option = _OPTION.match(rest, position)
        if option is None:
            raise _refusal(f"what follows option {len(options)} is no NAME=\"VALUE\"")
        quoted = option[2] if option[2] is not None else option[3]
        options[option[1]] = option[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = option.end()
    return Jaas(line[1], options)


def written(jaas: Jaas) -> str:
    r"""The text that `parsed` reads back.

    >>> written(Jaas("a.Login", {"password": 'x"y'}))
    'a.Login required password="x\\"y";'
    """
    options = "".join(f' {name}="{escaped(value)}"' for name, value in jaas.options.items())
    return f"{jaas.module} required{options};"


def escaped(value: str) -> str:
    """A value as written between the quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _refusal(reason: str) -> ConfigError:
    # the text itself is not shown: there is a password in it
    return ConfigError(
        f"kafka.sasl.jaas.config cannot be read: {reason}",
        "or set kafka.sasl.username and kafka.sasl.password instead",
    )

"""What is a secret: by the name of a setting, and by what a text holds; and how a text is cleaned of secrets.

One rule serves what Headrace prints, what Spark shows (its redaction pattern is made here) and what is kept off command
lines. Too much is hidden rather than too little: a name that only sounds like a secret costs a `***`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
_SHORTEST = 3  # a shorter text is found in half of all words, and guards nothing
_SHORTEST_IN_PATTERN = 6  # Spark hides the whole of a value in which one is found
_NO_SECRETS = frozenset({"true", "false", "none", "null"})

# Words that mean a secret wherever they are in a name.
_WORDS = r"(?i:secret|passw|passphrase|passcode|token|credential|jaas|private|webhook|oauthbearer\.config)"
# Short ones count as a part of a name only: between `.`, `_`, `-` and the capitals of camelCase. `key` also ends a part
# (`accesskey`); a key store and a key tab are files.
_KEY = "(?i:key)s?(?!(?i:stores?|tab|size)(?i:[^a-z]|$))(?![a-z])"
_SHORT = "(?:(?<![A-Za-z])(?i:sas|pem|pwd)|(?<=[a-z0-9])(?:Sas|SAS|Pem|PEM|Pwd|PWD))(?![a-z])"
# `pass` also ends a part (`PGPASS`, `dbpass`), `auth` is a whole one; its kind (`auth.type`) and whether clients have to give
# theirs (`needClientAuth`) are no secrets.
_PASS = "(?:[Pp]ass(?![a-z])|PASS(?![A-Za-z]))"
_AUTH = (
    "(?:(?<![A-Za-z])(?i:auth)|(?<=[a-z0-9])(?:Auth|AUTH))(?![a-z])"
    "(?!(?i:[._-]?(?:type|method|mechanism|scheme|enabled?)))(?<!(?i:client)[Aa]uth)(?<!(?i:client)[._-](?i:auth))"
)
_NAME = f"{_WORDS}|^[^\\s/=,;]*(?:{_KEY}|{_SHORT}|{_PASS}|{_AUTH})"
# In a value: `AccountKey=...`, `db.pass=...`, the signature of a signed address, a user with a password in an address.
_VALUE = f"(?i:key|signature|pass|pwd)=|{_AUTH}=|[?&;](?i:sig)=|://[^/\\s:@]*:[^/\\s@]+@"
# The last part of a name that says that its value is no secret, but where one is kept or how it is used.
_ABOUT = re.compile(
    r"(?:[._-](?:location|file|path|url|uri|type|class|enabled|provider)|"
    r"(?:Location|File|Path|Url|URL|Uri|URI|Type|Class|Enabled|Provider))$"
)
# An address that is the secret itself: who knows it may write there.
_ADDRESS = re.compile(r"(?i:(?:secret|private|webhook)[._-]?ur[li])$")
_NAME_PATTERN = re.compile(_NAME)
_TEXT_PATTERN = re.compile(f"{_WORDS}[\\w.-]*[\"']?\\s*[=:]|{_VALUE}")


def is_secret(name: str) -> bool:
    """Whether the value of a setting, of Kafka's or Spark's too, is a password or the like, by the parts of its name.

    >>> is_secret("spark.hadoop.fs.azure.account.key.ACCOUNT.dfs.core.windows.net"), is_secret("kafka.sasl.jaas.config")
    (True, True)
    >>> is_secret("max_round_ms"), is_secret("kafka.sasl.mechanism"), is_secret("kafka.ssl.key.location")
    (False, False, False)
    """
    if _ADDRESS.search(name) is not None:
        return True
    return _NAME_PATTERN.search(name) is not None and _ABOUT.search(name) is None


def holds_secret(name: str, value: str, secrets: Secrets) -> bool:
    """Whether a setting is to be kept from command lines and environments: for its name, or for what its value holds.

    >>> holds_secret("spark.driver.extraJavaOptions", "-Da.trustStorePassword=tiger", Secrets())
    True
    """
    return is_secret(name) or _TEXT_PATTERN.search(value) is not None or secrets.cleaned(value) != value


def secret_values(settings: Mapping[str, str]) -> tuple[str, ...]:
    """The values that were put under the names of secrets.

    >>> secret_values({"sasl.password": "tiger", "client.id": "me"})
    ('tiger',)
    """
    return tuple(value for name, value in settings.items() if is_secret(name))


def redaction_pattern(values: Iterable[str], given: str | None = None) -> str:
    """Spark's `spark.redaction.regex`: what it finds in the name or in the value of a setting, it shows as `***`.

    `values` are secrets themselves, which may be under other names too; the pattern finds itself, so that it is not shown.
    `given` is a pattern of the user's, which counts as well.
    """
    known = sorted({one for one in values if len(one) >= _SHORTEST_IN_PATTERN and one.lower() not in _NO_SECRETS})
    literal = [re.sub(r"([^A-Za-z0-9_])", r"\\\1", one) for one in known if one.isprintable()]
    return "|".join([*([f"(?:{given})"] if given else []), _NAME, _VALUE, *literal])


class Secrets:
    """Secret values. Its own `repr` says how many there are, and nothing of them."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        # the longest first: where one is part of another, nothing of the longer one must be left
        known = {value for value in values if len(value) >= _SHORTEST and value.lower() not in _NO_SECRETS}
        self._values = sorted(known, key=lambda v: (-len(v), v))

    def cleaned(self, text: str) -> str:
        """`text` with every secret in it replaced.

        >>> Secrets(["tiger"]).cleaned("user scott, password tiger")
        'user scott, password ***'
        """
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"Secrets({len(self._values)} hidden)"

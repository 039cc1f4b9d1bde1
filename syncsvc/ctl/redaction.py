"""Removes secrets from texts that an operator passes on.

The patterns are generous: it is better to lose a harmless word than to pass on a secret. Repetitions before a keyword
are bounded, so that the time is proportional to the length of the text. The functions here have no side effects.
"""

from __future__ import annotations

import re

_REDACTED = "(redacted)"

_KEY = re.compile(
    r"()-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    re.S,
)
# An authority ends before white space or a quotation mark, not before @ or /, which passwords may contain. In a JSON
# string, quotation marks are escaped.
_AUTHORITY = re.compile(r"(://)((?:\\.|[^\s\"\\])+)")
_PARAMETER = re.compile(
    r"([?&;](?:[\w-]{0,40}(?:password|secret|token)[\w-]{0,40}|authMechanismProperties)=)[^&\s\"]*",
    re.I,
)

_NAME = (
    r"(?:password|passwd|pwd|passphrase|secret|(?:access|api|private|server|stored)[_-]?key|tokenfile"
    r"|(?:access|api|auth|bearer|id|refresh|security|session)[_-]?token|(?<![a-z_])token)[\w-]{0,40}"
)
_QUOTE = r"\\?[\"']?"
# A value after its opening quotation mark. In JSON inside of JSON, quotation marks are escaped.
_QUOTED = r"(?<=\\\")(?:\\[^\"\n]|[^\"\\\n])+|(?<=\")(?:\\.|[^\"\\\n])+|(?<=')(?:''|[^'\n])+"
# A value without quotation marks. It ends before white space, and before a comma, a closing brace or a quotation mark
# at the end of a word: a password may hold them inside a word.
_WORD = r"(?:\\[^\"]|[\"',}](?=\w)|[^\"',\\\s}])+"

# The authentication schemes whose credentials are one word, and the scheme whose credentials are many words.
_SCHEME = re.compile(r"(\b(?:Bearer|Basic|Negotiate)\s{1,9})[\w.~+/=-]+", re.I)
_DIGEST = re.compile(r"(\bDigest\s{1,9})(?=\w+=)[^\n]+", re.I)
_HEADER = re.compile(
    rf"(\bauthorization{_QUOTE}\s{{0,9}}[:=]\s{{0,9}}{_QUOTE})(?:{_QUOTED}|[^\n]+)", re.I
)
# In YAML and in a header, a value without quotation marks ends at the end of its line, and before a double quotation
# mark at the end of a word, which ends the string that contains the line.
_LINE = re.compile(rf"({_NAME}:[ ]{{1,9}})(?![\"'])(?:\\[^\"n]|\"(?=\w)|[^\"\\\n])+", re.I)
_FIELD = re.compile(rf"({_NAME}{_QUOTE}\s{{0,9}}[:=]\s{{0,9}}{_QUOTE})(?:{_QUOTED}|{_WORD})", re.I)
_OPTION = re.compile(
    rf"(--[\w-]{{0,40}}(?!\w{{0,40}}file\b){_NAME}\s{{1,9}}{_QUOTE})(?:{_QUOTED}|{_WORD})", re.I
)
# A line of a token file. A token has at least 16 characters. In JSON, a line break is a backslash and the letter n.
_TOKEN = re.compile(r"((?:\b|(?<=\\n))(?:reader|operator)\s{1,99})[\w.~+/-]{16,}=*", re.I)

# An environment variable. Only names in capital letters count, because a resume_token is no secret.
_VARIABLE = re.compile(r"(\b[A-Z][A-Z0-9_]{0,40}_TOKEN=[\"']?)[^\s\"']+")
# The path of a webhook's URL.
_WEBHOOK = re.compile(
    rf"(webhook{_QUOTE}[:=\s]\s{{0,9}}{_QUOTE}https?://[^/\s\"'\\]{{1,255}}/)[^\s\"'\\]+", re.I
)

# The text of the first group of each pattern is kept.
_PATTERNS = (
    *(_KEY, _PARAMETER, _SCHEME, _DIGEST, _HEADER, _LINE, _FIELD, _OPTION, _TOKEN),
    *(_VARIABLE, _WEBHOOK),
)


def redacted(text: str) -> str:
    """Return the text with `(redacted)` in place of the passwords, tokens and other secrets that it recognizes."""
    text = _AUTHORITY.sub(lambda found: found[1] + _without_user(found[2]), text)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\1{_REDACTED}", text)
    return text


def _without_user(address: str) -> str:
    """Return `address`, the part of a connection string after `://`, with user and password redacted."""
    _, at, hosts = address.rpartition("@")
    return f"{_REDACTED}@{hosts}" if at else address

"""Make a release, or a candidate for one: `make release VERSION=0.2.0` runs `python packaging/release.py 0.2.0`.

Writes the version into the files that show it, moves the unreleased changes in the changelog below the version,
builds the documentation, checks the result, commits and tags it, and builds the artefacts. If a step before the
artefacts fails, everything is as before. Nothing is published: push the commit and the tag when you have tested the
artefacts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION_FILE = "verifier/runtime/version.py"
CHANGELOG = "CHANGELOG.rst"
# Files that name the tag of the image.
_IMAGES = ("packaging/kubernetes", "docs/howto/kubernetes.rst")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+))?")
_UNRELEASED = "Unreleased\n----------\n"
# The headings of a version, of a section of its changes, and of a part of a section (New, Changed, Fixed).
_HEADING = re.compile(r"^(\S.*\n-+\n)", re.M)
_SECTION = re.compile(r"^(\S.*\n~+\n\n)", re.M)
_PART = re.compile(r"^(\S.*\n\^+\n\n)", re.M)


class Refusal(Exception):
    """Raised if the release cannot be made. The message says why, and what to do."""


def order(version: str) -> tuple[int, ...]:
    """Return a sort key of a version such as 1.2.3 or 1.2.3rc1. Raises Refusal if `version` has another form."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise Refusal(f"{version!r} is not a version such as 1.2.3 or 1.2.3rc1.")
    major, minor, patch, candidate = found.groups()
    # A release comes after its candidates.
    return int(major), int(minor), int(patch), 0 if candidate else 1, int(candidate or 0)


def with_version(text: str, old: str, new: str) -> str:
    """Return `text`, the content of the version file, with the version `new` instead of `old`.

    Raises Refusal if `new` is not later than `old`, or if one of them is not a version (see `order`).
    """
    if order(new) <= order(old):
        raise Refusal(f"The version {new} is not later than the current version {old}.")
    return text.replace(f'VERSION = "{old}"', f'VERSION = "{new}"')


def with_image(text: str, old: str, new: str) -> str:
    """Return `text` with the version `new` instead of `old` in every tag of the container image."""
    return text.replace(f"syncsvc:{old}", f"syncsvc:{new}")


def with_release(text: str, version: str, date: str) -> str:
    """Return `text`, the changelog, with its unreleased changes below a new heading of the version and the date.

    If the newest version is a candidate for `version`, the new heading replaces its heading: its changes are those of
    `version`, too. Raises Refusal if there are no changes.
    """
    before, found, after = text.partition(_UNRELEASED)
    changes, *older = _HEADING.split(after)
    if older and re.match(rf"{re.escape(version.partition('rc')[0])}rc\d", older[0]):
        changes = f"\n{_merged(older[1], changes, _SECTION, _PART)}\n\n"
        del older[:2]
    if not found or not changes.strip():
        raise Refusal(f"{CHANGELOG} has no unreleased changes: there is nothing to release.")
    title = f"{version} ({date})"
    return f"{before}{_UNRELEASED}\n{title}\n{'-' * len(title)}\n{changes}{''.join(older)}"


def _merged(old: str, new: str, *headings: re.Pattern[str]) -> str:
    """Return the changes `old`, with the changes `new` at the ends of the sections and parts below their `headings`."""
    if not headings:
        return "\n".join(filter(None, (old, new)))
    heading, *deeper = headings
    before, after = _sections(old, heading), _sections(new, heading)
    texts = {
        title: _merged(before.get(title, ""), after.get(title, ""), *deeper)
        for title in before | after
    }
    return "\n".join(f"{title}{text}\n" for title, text in texts.items() if text).strip("\n")


def _sections(changes: str, heading: re.Pattern[str]) -> dict[str, str]:
    """Return the text below each `heading` by this heading. The text before the first one has an empty heading."""
    first, *rest = heading.split(changes)
    texts = {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}
    return {title: text.strip("\n") for title, text in texts.items()}


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: make release VERSION=1.2.3", file=sys.stderr)
        return 1
    (version,) = arguments
    try:
        release(version)
    except (Refusal, subprocess.CalledProcessError) as error:
        print(f"No release was made: {error}", file=sys.stderr)
        return 1
    try:
        _make("dist")
    except subprocess.CalledProcessError:
        print(
            f"Version {version} is committed and tagged, but the artefacts could not be built. Remove the cause, and "
            "run make dist.",
            file=sys.stderr,
        )
        return 1
    print(
        f"Version {version} is committed, tagged and built in dist. Now follow the checklist in CONTRIBUTING.rst."
    )
    return 0


def release(version: str) -> None:
    """Write the version into the files; check, commit and tag the result.

    Raises Refusal, or CalledProcessError if a command fails. In both cases, the files and the commits are as before.
    """
    old = _current_version()
    order(version)
    if _git("status", "--porcelain"):
        raise Refusal("There are changes that are not committed. Commit or remove them.")
    if _git("tag", "--list", f"v{version}"):
        raise Refusal(f"The tag v{version} already exists. Choose a later version.")
    last = _git("rev-parse", "HEAD").strip()
    try:
        _edit(old, version)
        _make("reference", "check", "docs")
        _git("commit", "--all", "--message", f"release: {version}")
        _git("tag", "--annotate", f"v{version}", "--message", f"syncsvc {version}")
    except BaseException:
        _git("reset", "--quiet", "--hard", last)
        raise


def _edit(old: str, new: str) -> None:
    _rewrite(ROOT / VERSION_FILE, lambda text: with_version(text, old, new))
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    _rewrite(ROOT / CHANGELOG, lambda text: with_release(text, new, date))
    for path in _git("ls-files", *_IMAGES).splitlines():
        _rewrite(ROOT / path, lambda text: with_image(text, old, new))


def _current_version() -> str:
    found = re.search(r'^VERSION = "(.+)"$', (ROOT / VERSION_FILE).read_text(), re.M)
    assert found is not None
    return found[1]


def _rewrite(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))


def _make(*targets: str) -> None:
    subprocess.run(["make", *targets], cwd=ROOT, check=True)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Finds the elements of a namespace filter that match no collection or view of the source, and words the warnings.

Such an element is accepted, because a matching collection may be created later. But it may also be a typing error. The
functions here have no side effects.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import Document

# The beginning of the warning about a filter that selects nothing, both before and during a sync.
SELECTS_NOTHING = (
    "The filters (includeNamespaces, excludeNamespaces) select no collection or view of the source"
)

# The maximum number of elements that get their own warning; and the maximum numbers of names in one warning: of the
# element's unmatched collections, and of collections or databases on the source.
_MOST_ELEMENTS = 10
_MOST_MISSING = 5
_MOST_SHOWN = 10
# The maximum number of names that are compared with a wanted name, because each comparison of long names takes half a
# millisecond. If there are more names, only names whose first _SHARED characters are those of the wanted name are
# compared.
_MOST_COMPARED = 200
_SHARED = 2


@dataclass(frozen=True)
class Unmatched:
    """An element of `includeNamespaces` or `excludeNamespaces` of which at least a part matches nothing on the source.

    `path` is the place of the element in a request, such as `includeNamespaces[0]`. `part` is the element without its
    collection names and its `collectionsRegex` if they match. `present` are the collections and views in the databases
    that the element selects.
    """

    path: str
    part: Document
    present: tuple[Namespace, ...]


@dataclass(frozen=True)
class FilterMatches:
    """The result of matching a namespace filter with the names of the source.

    `selects_nothing` is whether the filter selects no collection or view. `databases` are the databases of the source
    that hold a collection or view.
    """

    selects_nothing: bool = False
    unmatched: tuple[Unmatched, ...] = ()
    databases: tuple[str, ...] = ()


def unmatched_part(
    element: Document, present: Collection[Namespace], by_pattern: Collection[Namespace]
) -> Document | None:
    """Return the element without the parts of it that match something; None if every part matches.

    The parts are its collection names and its `collectionsRegex`. An element without such parts matches if `present` is
    not empty. The result always contains the element's `database` or `databaseRegex`. `present` are the collections and
    views in the databases that the element selects; `by_pattern` are those of them that its `collectionsRegex` matches.
    """
    names = {each.collection for each in present}
    part: Document = {}
    if missing := [each for each in element.get("collections", ()) if each not in names]:
        part["collections"] = missing
    if "collectionsRegex" in element and not by_pattern:
        part["collectionsRegex"] = element["collectionsRegex"]
    if present and not part:
        return None
    databases = ("database", "databaseRegex")
    return {**{name: element[name] for name in databases if name in element}, **part}


def filter_warnings(found: FilterMatches) -> Iterator[str]:
    """Yield a warning if the filter selects nothing, and one for each element of which a part matches nothing.

    After the first ten such elements, a last warning only gives the number of the others.
    """
    if found.selects_nothing:
        yield (
            f"{SELECTS_NOTHING}. A sync would copy nothing until a selected collection or view is created. "
            "Compare the filters with the names on the source."
        )
    for each in found.unmatched[:_MOST_ELEMENTS]:
        yield _warning(each, found.databases)
    if others := found.unmatched[_MOST_ELEMENTS:]:
        yield (
            "Further elements of the filters of which at least a part matches no collection or view of the source: "
            f"{len(others):,}, from {others[0].path} on."
        )


def _warning(unmatched: Unmatched, databases: Collection[str]) -> str:
    part = dict(unmatched.part)
    missing = part.get("collections", [])
    more = len(missing) - _MOST_MISSING
    if more > 0:
        part["collections"] = missing[:_MOST_MISSING]
    others = f" (and {more} more of its collections)" if more > 0 else ""
    effect = (
        "nothing is copied for it"
        if unmatched.path.startswith("include")
        else "nothing is excluded by it"
    )
    return (
        f"{unmatched.path}: {json.dumps(part, ensure_ascii=False)}{others} matches no collection or view of the "
        f"source, so {effect} until such a collection or view is created. Compare the spelling and the case of the "
        f"names. {_names_to_compare(unmatched, databases)}"
    )


def _names_to_compare(unmatched: Unmatched, databases: Collection[str]) -> str:
    """Return a sentence that lists names on the source, with which the operator can compare the element.

    These are the collections in the databases that the element selects; if there are none, the databases.
    """
    part = unmatched.part
    if unmatched.present:
        wanted = part.get("collections", [])
        names = {str(each): each.collection for each in unmatched.present}
        where = part.get("database", "the matching databases")
        return f"The collections and views of {where} are: {_listed(wanted, names)}."
    if not databases:
        return "The source holds no collections or views."
    wanted = [part["database"]] if "database" in part else []
    return (
        f"The databases of the source are: {_listed(wanted, {each: each for each in databases})}."
    )


def _listed(wanted: Iterable[str], names: dict[str, str]) -> str:
    """Return the first names of a list for a message: those similar to one of the `wanted` names, then the others.

    `names` maps each name, as shown, to the name that is compared with the wanted ones.
    """
    folded = {shown: name.casefold() for shown, name in names.items()}
    close: dict[str, int] = {}
    for each in [*wanted][:_MOST_MISSING]:
        wanted_name = each.casefold()
        for match in get_close_matches(wanted_name, _to_compare(wanted_name, {*folded.values()})):
            close.setdefault(match, len(close))
    ordered = sorted(folded, key=lambda shown: (close.get(folded[shown], len(close)), shown))
    more = len(ordered) - _MOST_SHOWN
    others = f" and {more} more" if more > 0 else ""
    return ", ".join(ordered[:_MOST_SHOWN]) + others


def _to_compare(wanted: str, names: Collection[str]) -> Collection[str]:
    """Return the names to compare with a wanted name: all, or if there are many, only some that begin like it."""
    if len(names) <= _MOST_COMPARED:
        return names
    return sorted(each for each in names if each[:_SHARED] == wanted[:_SHARED])[:_MOST_COMPARED]

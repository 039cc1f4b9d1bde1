"""The schemas of the users and roles of a sync in the answers of the API."""

from __future__ import annotations

from marshmallow import fields

from syncsvc.principals.comparison import Outcome
from verifier.runtime.openapi import SuccessAnswer, always
from verifier.runtime.schemas import Boolean, Strict


class CopiedPrincipals(Strict):
    copied = always(
        Boolean,
        "Whether the newest copy of users and roles, by a commit or on request, is complete. Each commit, and each "
        "copy on request that is not refused, first sets this field to false. While it is false, all other fields are "
        "0.",
    )
    users = always(fields.Integer, "The number of users copied.")
    roles = always(fields.Integer, "The number of custom roles copied.")
    equal = always(
        fields.Integer,
        "The number of users and roles that the destination already had with an equal definition.",
    )
    kept = always(
        fields.Integer,
        "The number of users and roles that differ, for which the definition of the destination was kept.",
    )


class PlannedPrincipals(Strict):
    users = always(fields.Integer, "The number of users to copy.")
    roles = always(fields.Integer, "The number of custom roles to copy.")
    equal = always(
        fields.Integer,
        "The number of users and roles that the destination already has with an equal definition.",
    )
    kept = always(
        fields.Integer,
        "The number of users and roles that differ, for which the definition of the destination would be kept.",
    )
    conflicts = always(fields.Integer, "The number of users and roles that prevent the copy.")


class _Principal(Strict):
    type = always(fields.String, "`user` or `role`.")
    database = always(fields.String, "The database in which the user or role is defined.")
    name = always(fields.String, "The name of the user or role.")
    result = always(
        fields.Enum,
        "The effect of a commit or of a copy on request: `copy` (it is copied), `equal` (the destination already has "
        "it), `kept` (the destination keeps another definition), `own` (not copied, because this daemon or the servers "
        "log in as this user). Three values prevent both: `conflict` (the destination has another definition), "
        "`missing` (the role is not copied, and not on the destination), `surplus` (users or roles of the source have "
        "this role, but only the destination defines it).",
        Outcome,
        by_value=True,
    )
    detail = always(fields.String, "The reason for `result`; empty if none is needed.")


class UsersAnswer(SuccessAnswer):
    usersAndRoles = always(
        fields.List,
        "The users and roles that the start options select, and the other roles to which they refer, each with the "
        "effect of a copy. Roles come first.",
        fields.Nested(_Principal),
    )


class CopyUsersAnswer(SuccessAnswer):
    usersAndRoles = always(
        fields.Nested, "The result of the copy, as in the progress.", CopiedPrincipals
    )

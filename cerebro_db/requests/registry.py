"""The registry of models."""

from __future__ import annotations

from cerebro_db.requests import declared as sql


@sql.function("cerebro_register_model", "integer", entry="registry.register")
class RegisterRequest(sql.Request):
    """Copies a model of a finished run into the registry, as the next version of the caller's model of that name,
    which is made if it is not there; returns the version. It is used as 'model:name', 'model:name@alias' or
    'model:name:version', and needs no other table.

    Attributes:
        run_id: the run, whose output tables are still there
        mst_key: the model; NULL where the run has one
        name: without owner: the model belongs to the caller
        description: of this version
        tags: of this version: a JSON object of up to 64 texts, numbers and truth values
    """

    run_id: sql.BigInt
    mst_key: sql.Integer
    name: sql.Text
    description: sql.Text = None
    tags: sql.Json = None


@sql.function("cerebro_set_alias", "void", entry="registry.set_alias")
class SetAliasRequest(sql.Request):
    """Lets an alias such as champion mean a version of a model; NULL removes the alias.

    Attributes:
        name: the model
        alias: such as `champion`
        version: what it means from now on; NULL removes the alias
    """

    name: sql.Text
    alias: sql.Text
    version: sql.Integer


@sql.function("cerebro_rollback_alias", "integer", entry="registry.rollback_alias")
class RollbackAliasRequest(sql.Request):
    """Lets an alias mean again what it meant before its last change; called again, what it meant before that.
    Returns that version.

    Attributes:
        name, alias: as in `cerebro_set_alias`
    """

    name: sql.Text
    alias: sql.Text


@sql.function("cerebro_describe_model", "void", entry="registry.describe")
class DescribeModelRequest(sql.Request):
    """Sets the description and the tags of a model (name) or of a version (name:version); what is NULL stays as it
    is.

    Attributes:
        name: the model, or `name:version`
        description, tags: the new ones; NULL leaves what is there, `''` and `'{}'` empty it
    """

    name: sql.Text
    description: sql.Text = None
    tags: sql.Json = None


@sql.function("cerebro_grant_model", "void", entry="registry.grant")
class GrantModelRequest(sql.Request):
    """Lets the members of a role use all versions of one's model, and see where they come from; not change them.

    Attributes:
        name: the model
        role: exactly as the role is called; `cerebro_user` for all users
    """

    name: sql.Text
    role: sql.Text


@sql.function("cerebro_revoke_model", "void", entry="registry.revoke")
class RevokeModelRequest(sql.Request):
    """Takes back what cerebro_grant_model gave.

    Attributes:
        name, role: as in `cerebro_grant_model`
    """

    name: sql.Text
    role: sql.Text


@sql.function("cerebro_drop_model", "void", entry="registry.drop")
class DropModelRequest(sql.Request):
    """Removes a version of a model, or the model with all versions, aliases and grants. Administrators may remove
    those of others.

    Attributes:
        name: the model. Administrators may name that of another role
        version: the version, which must have no alias; its number is not used again. NULL removes the model,
            its aliases and grants too
    """

    name: sql.Text
    version: sql.Integer = None

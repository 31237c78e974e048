"""Code of other roles that reading a table, or writing into it, would run with the caller's rights.

A function runs as who makes the statement, wherever it is called from: a view, a policy, the check of
a domain, a cast of somebody's type. All tables that a user names pass this gate, whatever kind they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cerebro_db.errors import NotPermitted

if TYPE_CHECKING:
    from cerebro_db.postgres.names import QualifiedName
    from cerebro_db.postgres.sessions.session import Session

# Roles whose code the caller runs anyway. A superuser has the rights of everybody, and should
# run the code of nobody: there membership does not count.
_TRUSTED = """
trusted(oid) AS (
    SELECT r.oid FROM pg_catalog.pg_roles r
     WHERE r.rolsuper OR r.rolname IN (current_user, 'cerebro_owner')
        OR (NOT (SELECT m.rolsuper FROM pg_catalog.pg_roles m WHERE m.rolname = current_user)
            AND pg_catalog.pg_has_role(r.oid, 'USAGE')))
"""
# Whether a relation may run anything: most are plain tables of the caller with types of the server.
# Parameter: its oid.
_NEEDS_LOOK = f"""
WITH {_TRUSTED}
SELECT (c.relkind IN ('v', 'f', 'p') OR c.relhassubclass
       OR c.relowner NOT IN (SELECT t.oid FROM trusted t)
       OR EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a
                    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
                    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
                   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                     AND n.nspname <> 'pg_catalog')) AS needed
  FROM pg_catalog.pg_class c WHERE c.oid = %s
"""
# Functions of the server that run a statement which they are given, or act on the session. In
# a view of somebody else they are that role's code.
_ACTING = (
    "^((query|table|cursor|schema|database)_to_xml.*|ts_stat|ts_rewrite|set_config|nextval|setval|"
    "pg_(terminate|cancel)_backend|pg_notify|lo_.*|pg_(read|write|ls|file|reload|rotate).*|"
    "pg_(try_)?advisory.*)$"
)
# The first piece of code of a role that is not trusted: what it is, whose, and in what it is called.
# Parameter: the oid.
_CODE = """
WITH RECURSIVE {trusted},
classes AS (
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass AS class,
           'pg_catalog.pg_type'::pg_catalog.regclass AS type,
           'pg_catalog.pg_proc'::pg_catalog.regclass AS proc,
           'pg_catalog.pg_operator'::pg_catalog.regclass AS operator,
           'pg_catalog.pg_rewrite'::pg_catalog.regclass AS rewrite,
           'pg_catalog.pg_constraint'::pg_catalog.regclass AS constr),
edges(parent, child) AS (
    SELECT i.inhparent, i.inhrelid FROM pg_catalog.pg_inherits i
     UNION ALL
    SELECT w.ev_class, d.refobjid
      FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_class v ON v.oid = w.ev_class AND v.relkind = 'v'
      JOIN pg_catalog.pg_depend d ON d.objid = w.oid, classes k
     WHERE d.classid = k.rewrite AND d.refclassid = k.class AND d.refobjid <> w.ev_class),
relations(oid) AS (
    SELECT %s::pg_catalog.oid
     UNION
    SELECT e.child FROM relations r JOIN edges e ON e.parent = r.oid),
holders(classid, objid) AS (
    -- The key of a partitioned table.
    SELECT k.class::pg_catalog.oid, r.oid FROM relations r, classes k
     UNION
    -- Expressions of indexes, statistics, checks, policies: the planner computes what is constant in them.
    SELECT d.classid, d.objid
      FROM relations r JOIN pg_catalog.pg_depend d ON d.refobjid = r.oid, classes k
     WHERE d.refclassid = k.class AND (
           d.deptype = 'a' AND (d.classid IN (
               k.constr, pg_catalog.to_regclass('pg_catalog.pg_policy'),
               pg_catalog.to_regclass('pg_catalog.pg_statistic_ext'){written})
           OR d.classid = k.class AND EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indexrelid = d.objid)))
     UNION
    SELECT k.rewrite::pg_catalog.oid, w.oid
      FROM relations r JOIN pg_catalog.pg_class c ON c.oid = r.oid
      JOIN pg_catalog.pg_rewrite w ON w.ev_class = c.oid, classes k
     WHERE c.relkind = 'v' {rules}),
named_types(oid) AS (
    SELECT a.atttypid FROM relations r JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid
     WHERE a.attnum > 0 AND NOT a.attisdropped
     UNION
    SELECT d.refobjid FROM holders h JOIN pg_catalog.pg_depend d USING (classid, objid), classes k
     WHERE d.refclassid = k.type),
types(oid) AS (
    SELECT n.oid FROM named_types n  -- not all servers take a union of several selects as the start of a recursion
     UNION
    SELECT p.part
      FROM types t JOIN (
           SELECT y.oid AS whole, y.typbasetype AS part FROM pg_catalog.pg_type y WHERE y.typbasetype <> 0
            UNION ALL
           SELECT y.oid, y.typelem FROM pg_catalog.pg_type y WHERE y.typelem <> 0
            UNION ALL
           SELECT g.rngtypid, g.rngsubtype FROM pg_catalog.pg_range g
            UNION ALL
           SELECT y.oid, a.atttypid FROM pg_catalog.pg_type y
             JOIN pg_catalog.pg_attribute a ON a.attrelid = y.typrelid AND a.attnum > 0
              AND NOT a.attisdropped
            WHERE y.typtype = 'c') p ON p.whole = t.oid),
calls(proc, classid, objid) AS (
    SELECT d.refobjid, h.classid, h.objid
      FROM holders h JOIN pg_catalog.pg_depend d USING (classid, objid), classes k
     WHERE d.refclassid = k.proc
     UNION ALL
    SELECT o.oprcode, h.classid, h.objid
      FROM holders h JOIN pg_catalog.pg_depend d USING (classid, objid), classes k,
           pg_catalog.pg_operator o
     WHERE d.refclassid = k.operator AND o.oid = d.refobjid
     UNION ALL
    SELECT CASE WHEN d.refclassid = k.proc THEN d.refobjid ELSE o.oprcode END, k.type::pg_catalog.oid, t.oid
      FROM types t JOIN pg_catalog.pg_constraint c ON c.contypid = t.oid
      JOIN pg_catalog.pg_depend d ON d.objid = c.oid JOIN classes k ON d.classid = k.constr
      LEFT JOIN pg_catalog.pg_operator o ON d.refclassid = k.operator AND o.oid = d.refobjid
     WHERE d.refclassid IN (k.proc, k.operator)
     UNION ALL
    SELECT s.castfunc, k.type::pg_catalog.oid, t.oid
      FROM types t JOIN pg_catalog.pg_cast s ON t.oid IN (s.castsource, s.casttarget), classes k
     WHERE s.castfunc <> 0
     UNION ALL
    SELECT g.rngcanonical, k.type::pg_catalog.oid, t.oid
      FROM types t JOIN pg_catalog.pg_range g ON g.rngtypid = t.oid, classes k
     WHERE g.rngcanonical <> 0)
SELECT pg_catalog.pg_describe_object(k.proc, p.oid, 0) AS code,
       pg_catalog.pg_get_userbyid(p.proowner)::pg_catalog.text AS owner,
       pg_catalog.pg_describe_object(f.classid, f.objid, 0) AS holder
  FROM calls f JOIN pg_catalog.pg_proc p ON p.oid = f.proc
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace, classes k
 WHERE n.nspname NOT IN ('pg_catalog', 'cerebro') AND NOT p.prosecdef
   AND p.proowner NOT IN (SELECT t.oid FROM trusted t)
 UNION ALL
SELECT 'function ' || p.proname, pg_catalog.pg_get_userbyid(c.relowner)::pg_catalog.text,
       pg_catalog.pg_describe_object(k.class, c.oid, 0)
  FROM relations r JOIN pg_catalog.pg_class c ON c.oid = r.oid AND c.relkind = 'v'
  JOIN pg_catalog.pg_rewrite w ON w.ev_class = c.oid
  JOIN pg_catalog.pg_proc p ON p.proname ~ '{acting}'
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'pg_catalog', classes k
 WHERE c.relowner NOT IN (SELECT t.oid FROM trusted t)
   AND w.ev_action::pg_catalog.text LIKE '%%:funcid ' || p.oid || ' %%'
 ORDER BY 1, 2, 3 LIMIT 1
"""
_WRITTEN = (
    ", 'pg_catalog.pg_trigger'::pg_catalog.regclass, 'pg_catalog.pg_attrdef'::pg_catalog.regclass"
)
_HINT = (
    "if you trust that role with your rights, copy the rows yourself, with columns of the server's own types "
    "(CREATE TABLE mine AS SELECT ...), and name the copy; or have a superuser own the code"
)


def check_code(
    session: Session, name: QualifiedName, oid: int, role: str, *, is_written: bool = False
) -> None:
    """Refuse a relation that would run code of others as the caller.

    Args:
        session: of the caller.
        name: of the relation, for messages.
        oid: of the relation.
        role: the name of the argument, for messages.
        is_written: whether rows are to be added, which runs triggers, rules and defaults, too.

    Raises:
        NotPermitted: there is such code.
    """
    needs_look = session.run(_NEEDS_LOOK, (oid,))
    if not (needs_look and needs_look[0][0]):
        return
    code = _CODE.format(
        trusted=_TRUSTED,
        acting=_ACTING,
        written=_WRITTEN if is_written else "",
        rules="OR true" if is_written else "",
    )
    if rows := session.run(code, (oid,)):
        what, owner, where = rows[0]
        does = "writing into" if is_written else "reading"
        raise NotPermitted(
            f"{role}: {does} {name} may run code of another role as the calling role: {what} "
            f"of {owner}, by {where}; allowed: code of the calling role, of roles whose rights it has, "
            "and of superusers",
            hint=_HINT,
        )

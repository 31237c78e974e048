"""Settings of administrators for a database: names, defaults, allowed values."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from cerebro_db.configs.arguments import unknown
from cerebro_db.configs.messages import shown
from cerebro_db.errors import InvalidArgument, hinted

# Pixels of an image as it is stored: the default, and the most that may be set. Pillow itself refuses twice as many.
DEFAULT_PIXELS, MAX_PIXELS = 2**26, 2**27


@dataclass(frozen=True)
class Settings:
    """The settings of a database, by the names that they have in ``cerebro.settings``.

    What each of them means is in ``DESCRIPTIONS``.
    """

    cache_mb: int = 1024
    files_root: str = ""
    idle_seconds: int = 300
    keep_runs: str = ""
    max_image_pixels: int = DEFAULT_PIXELS
    max_jobs: int = 4
    max_jobs_of_role: int = 2
    max_layers: int = 2_000
    max_parameters: int = 1_000_000_000
    max_waiting_jobs_of_role: int = 1_000
    max_worker_mb: int = 0
    max_workers: int = 64
    peer_network: str = ""
    peer_ports: str = ""
    state_chunk_kb: int = 262_144
    tensorboard_dir: str = "tensorboard"
    trainer_cpus: str = ""
    trainer_network: str = "off"
    trainer_nice: int = 0
    worker_dsn: str = ""
    worker_retries: int = 10

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Settings:
        """The settings from what is stored, defaults where nothing is.

        Raises:
            InvalidArgument: a name that is not known, or a value that is not allowed.
        """
        return cls(**{name: parse_setting(name, value) for name, value in values.items()})  # type: ignore[arg-type]


DESCRIPTIONS = {
    "cache_mb": "megabytes of decoded partitions that each worker of a run may keep in memory",
    "files_root": "directory of the server below which everything lies that is written outside of the database; empty for nothing",
    "idle_seconds": "a trainer that nobody uses ends after so many seconds",
    "keep_runs": "runs and jobs that ended so long ago are forgotten, such as 90 days, but for runs of registered models; empty to keep all",
    "max_image_pixels": "most pixels of a JPEG or PNG image that is read; it is refused by what its first bytes tell",
    "max_jobs": "most jobs, calls with wait := false and of schedules, that go on at once; further ones wait",
    "max_jobs_of_role": "most of these of one role",
    "max_layers": "most layers and operations of an architecture, nested ones counted",
    "max_parameters": "most parameters of an architecture, trainable or not",
    "max_waiting_jobs_of_role": "most jobs of one role that have not ended, those that wait among them; a further one is refused",
    "max_worker_mb": "most megabytes that a worker may use, by an estimate before it works and by the kernel; 0 for a share of the memory of the machine",
    "max_workers": "most workers that all fits and predictions of a role may use together",
    "peer_network": "network in which trainers of several hosts exchange gradients, such as 10.1.0.0/16; empty for none: only those of one host do",
    "peer_ports": "ports on which they do, such as 40000-40999; empty for any that the system gives",
    "state_chunk_kb": "a state is stored in rows of at most so many kilobytes",
    "tensorboard_dir": "folder below files_root in which the callback TensorBoard writes; empty for nowhere",
    "trainer_cpus": "processors that trainers may use, such as 0-3,8; empty for all that the server may use",
    "trainer_network": "on lets trainers open connections of a network; off refuses them all but Unix sockets",
    "trainer_nice": "how far trainers give way to the processes of the server: added to the nice value of these",
    "worker_dsn": "how the server reaches itself for worker sessions; empty for its Unix socket",
    "worker_retries": "how often in a row a run that lost its sessions goes on by itself, without a hop in between",
}

# Kilobytes of a chunk: PostgreSQL holds values of up to 1 GB, and copies them.
_RANGES = {
    "cache_mb": (0, 2**31),
    "idle_seconds": (1, 86_400),
    "max_image_pixels": (1, MAX_PIXELS),
    "max_jobs": (0, 1_000),
    "max_jobs_of_role": (0, 1_000),
    "max_layers": (1, 100_000),
    "max_parameters": (1, 10**12),
    "max_waiting_jobs_of_role": (0, 1_000_000),
    "max_worker_mb": (0, 2**31),
    "max_workers": (1, 10_000),
    "state_chunk_kb": (1, 1_000_000),
    "trainer_nice": (0, 19),
    "worker_retries": (0, 1_000),
}
_CPU = r"(\d{1,4})(?:-(\d{1,4}))?"
_CPUS = re.compile(f"{_CPU}(?:,{_CPU})*", re.ASCII)
_SWITCH = ("off", "on")


@hinted("cerebro.settings shows all settings, what they mean and what they are")
def parse_setting(name: str, text: str) -> int | str:
    """A setting's value from its text.

    Raises:
        InvalidArgument: a name that is not known, or a value that is not allowed.
    """
    if name in _FORMS:
        return _FORMS[name](name, text)
    if name not in _RANGES:
        known = [field.name for field in fields(Settings)]
        raise unknown("settings", "setting", name, known)
    low, high = _RANGES[name]
    digits = text.strip()
    if not (
        digits.isascii() and digits.isdigit() and len(digits) < 20 and low <= int(digits) <= high
    ):
        raise InvalidArgument(f"setting {name}: got {text!r}; allowed: {low} to {high}")
    return int(digits)


def _directory(name: str, text: str) -> str:
    """An absolute path in its shortest form, or nothing."""
    path = text.strip()
    if path and (not posixpath.isabs(path) or posixpath.normpath(path) != path or "\0" in path):
        raise InvalidArgument(
            f"setting {name}: got {shown(text)}; allowed: an absolute path without .. and //"
        )
    return path


def _folder(name: str, text: str) -> str:
    """A path below the root of files, or nothing."""
    path = text.strip()
    if path and not _FOLDER.fullmatch(path):
        raise InvalidArgument(
            f"setting {name}: got {shown(text)}; allowed: a path below the setting files_root, such as tensorboard, "
            "of letters, digits, _, - and .",
            hint="a superuser names that root: SELECT cerebro.cerebro_set('files_root', '/srv/cerebro')",
        )
    return path


# Folders whose names begin with no dot, so that none leads out of the root.
_FOLDER = re.compile(r"\w[\w.-]{0,99}(/\w[\w.-]{0,99}){0,9}", re.ASCII)


def _cpus(name: str, text: str) -> str:
    """A list of processors without spaces, or nothing."""
    listed = "".join(text.split())
    if listed and not (_CPUS.fullmatch(listed) and processors(listed)):
        raise InvalidArgument(
            f"setting {name}: got {shown(text)}; allowed: numbers and ranges such as 0-3,8"
        )
    return listed


def processors(listed: str) -> frozenset[int]:
    """The processors of a list such as ``0-3,8``; none of a range that ends before it begins."""
    ranges = [(int(low), int(high or low)) for low, high in re.findall(_CPU, listed)]
    if any(low > high for low, high in ranges):
        return frozenset()
    return frozenset(cpu for low, high in ranges for cpu in range(low, high + 1))


def _network(name: str, text: str) -> str:
    """A network in its shortest form, or nothing."""
    given = text.strip()
    try:
        return str(ipaddress.ip_network(given)) if given else ""
    except ValueError as error:
        raise InvalidArgument(
            f"setting {name}: got {shown(text)}: {error}; allowed: an address and the length of its "
            "prefix, such as 10.1.0.0/16 or fd00:1::/64"
        ) from None


def _ports(name: str, text: str) -> str:
    """A range of ports without spaces, or nothing."""
    given = "".join(text.split())
    if given and not ports(given):
        raise InvalidArgument(
            f"setting {name}: got {shown(text)}; allowed: a range of ports from 1024 to 65535, such as "
            "40000-40999"
        )
    return given


def ports(given: str) -> range:
    """The ports of a range such as ``40000-40999``; none of what is no such range."""
    found = _PORTS.fullmatch(given)
    if found is None:
        return range(0)
    low, high = (int(port) for port in found.groups())
    return range(low, high + 1) if 1024 <= low <= high <= 65535 else range(0)


_PORTS = re.compile(r"(\d{4,5})-(\d{4,5})", re.ASCII)


def _switch(name: str, text: str) -> str:
    value = text.strip().lower()
    if value not in _SWITCH:
        raise InvalidArgument(f"setting {name}: got {shown(text)}; allowed: {' or '.join(_SWITCH)}")
    return value


def _days(name: str, text: str) -> str:
    """A number of days, weeks, months or years as the server reads an interval, or nothing."""
    words = text.strip().lower()
    if words and not _AGE.fullmatch(words):
        raise InvalidArgument(
            f"setting {name}: got {shown(text)}; allowed: such as '90 days', '12 weeks', '6 months', '2 years'"
        )
    return words


_AGE = re.compile(r"[1-9][0-9]{0,4} (?:hour|day|week|month|year)s?", re.ASCII)


def _worker_dsn(name: str, text: str) -> str:
    hint = "keep passwords in a file of the server's user: passfile=..., or service=...; docs/install.md tells all keywords"
    if "\0" in text:
        raise InvalidArgument(f"setting {name}: got a text with a NUL character")
    if not _DSN.fullmatch(text):
        # It may hold a password: it is not shown.
        raise InvalidArgument(
            f"setting {name}: got something else than keyword=value pairs; "
            "allowed: these, as in host=localhost port=5433",
            hint=hint,
        )
    for keyword in _PAIR.findall(text):
        if keyword not in WORKER_DSN_KEYWORDS:
            raise InvalidArgument(
                f"setting {name}: got a connection string with the keyword {shown(keyword)}; "
                "allowed: host, port, dbname, service, passfile, require_auth, and those of TLS, GSSAPI and timeouts",
                hint=hint,
            )
    return text.strip()


PEER_NETWORK_HINT = (
    "a superuser may allow it: SELECT cerebro.cerebro_set('peer_network', '10.1.0.0/16'), the network that the hosts "
    "have in common"
)

# What only a superuser may set, and what each of them decides.
OF_SUPERUSERS = {
    "files_root": "where files outside of the database are written",
    "peer_network": "with whom trainers open connections",
    "peer_ports": "on which ports trainers wait for connections",
    "worker_dsn": "where the server sends passwords to",
}
_FORMS: Mapping[str, Callable[[str, str], str]] = {
    "files_root": _directory,
    "keep_runs": _days,
    "peer_network": _network,
    "peer_ports": _ports,
    "tensorboard_dir": _folder,
    "trainer_cpus": _cpus,
    "trainer_network": _switch,
    "worker_dsn": _worker_dsn,
}

# No password, which would be in a table; no user, which is always the role whose rights count; no options,
# which would be settings of the session; nothing by which another server passes for the one that is named.
WORKER_DSN_KEYWORDS = (
    "host", "port", "dbname", "service", "passfile", "require_auth", "requirepeer", "channel_binding",
    "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "sslsni", "sslnegotiation",
    "ssl_min_protocol_version", "ssl_max_protocol_version", "gssencmode", "krbsrvname",
    "connect_timeout", "tcp_user_timeout", "keepalives", "keepalives_idle", "keepalives_interval",
    "keepalives_count", "target_session_attrs",
)  # fmt: skip
_PAIR_TEXT = (
    r"\s*(\w+)\s*=\s*(?:'(?:[^'\\]|\\.)*'(?=\s|$)|(?:[^'\s\\]|\\.)(?:[^\s\\]|\\.)*|(?=\s|$))"
)
_PAIR = re.compile(_PAIR_TEXT, re.DOTALL)
_DSN = re.compile(f"(?:{_PAIR_TEXT})*\\s*", re.DOTALL)


def described() -> list[dict[str, str]]:
    """Name, default and description of every setting, as texts."""
    defaults = Settings()
    return [
        {"name": name, "default": str(getattr(defaults, name)), "description": text}
        for name, text in DESCRIPTIONS.items()
    ]

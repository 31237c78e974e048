"""docker-compose.yml and the images that it builds: read, as no container can be run in a test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
# service, image below it
SERVICES = {"db": "postgres:15-bookworm"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return read


def steps(service: dict[str, Any]) -> list[tuple[str, str]]:
    """The instructions of a service's Dockerfile, those of several lines as one."""
    text = (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).read_text()
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    found = [line.partition(" ") for line in lines if line.strip()]
    return [(word, " ".join(rest.split())) for word, _, rest in found]


def test_services(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == set(SERVICES)
    for service in services.values():
        assert [port.startswith("127.0.0.1:") for port in service["ports"]] == [True]


def test_an_image_downloads_nothing_but_packages(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        text = " ".join(rest for _, rest in steps(service))
        assert not re.search(r"\b(curl|wget|git clone|make|configure)\b|https?://", text)


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_is_declared(compose: dict[str, Any], name: str) -> None:
    mounted = [volume.partition(":")[0] for volume in compose["services"][name]["volumes"]]
    assert set(mounted) <= set(compose["volumes"])


def place(found: list[tuple[str, str]], word: str, text: str) -> int:
    """The place of the only instruction with a text."""
    (number,) = [
        number for number, (kind, rest) in enumerate(found) if kind == word and text in rest
    ]
    return number


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_installs_the_package_as_the_documentation_tells(
    compose: dict[str, Any], name: str
) -> None:
    found = steps(compose["services"][name])
    assert {word for word, _ in found} <= {"ARG", "FROM", "RUN", "WORKDIR", "COPY"}
    (base,) = [rest.removeprefix("BASE=") for word, rest in found if word == "ARG"]
    assert re.fullmatch(rf"{SERVICES[name]}@sha256:[0-9a-f]{{64}}", base)
    assert [rest for word, rest in found if word == "FROM"] == ["$BASE"]
    libraries = found[place(found, "RUN", "--require-hashes")][1]
    assert re.match(r"umask 022 && /usr/bin/python3[.\d]* -m venv /opt/cerebro-db && ", libraries)
    assert "-r /tmp/cerebro-db/scripts/requirements.txt" in libraries
    package = found[place(found, "RUN", "--no-deps")][1]
    assert "pip install --no-cache-dir --no-deps --no-build-isolation /tmp/cerebro-db" in package


@pytest.mark.parametrize("name", SERVICES)
def test_an_edit_of_the_package_does_not_install_its_libraries_again(
    compose: dict[str, Any], name: str
) -> None:
    """A layer is made again where what was copied before it has changed."""
    found = steps(compose["services"][name])
    libraries = place(found, "RUN", "--require-hashes")
    before = [rest.split()[:-1] for word, rest in found[:libraries] if word == "COPY"]
    assert before == [["scripts/requirements.txt"]]
    assert place(found, "COPY", "cerebro_db ") > libraries


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_has_all_that_the_package_is_built_from(
    compose: dict[str, Any], name: str
) -> None:
    copied = [
        part
        for word, rest in steps(compose["services"][name])
        if word == "COPY" and "--from" not in rest
        for part in rest.split()[:-1]
        if not part.startswith("--")
    ]
    assert [path for path in copied if not (ROOT / path).exists()] == []
    needed = {
        "LICENSE",
        "pyproject.toml",
        "README.md",
        "hatch_build.py",
        "cerebro_db",
        "sql",
        "udfs",
    }
    assert needed <= set(copied)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_well_when_its_database_answers_through_the_package(
    compose: dict[str, Any], name: str
) -> None:
    service = compose["services"][name]
    kind, command = service["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    # The server that makes the database at the first start has a socket and no port.
    assert "-h 127.0.0.1" in command
    assert "SELECT cerebro.cerebro_version()" in command
    assert set(re.findall(r"\$\$(\w+)", command)) <= set(service["environment"])
    # Docker's own 10 seconds are short for the checkpoint of a large server.
    assert service["stop_grace_period"] == "2m"
    assert service["init"] is True


@pytest.mark.parametrize("name", SERVICES)
def test_a_new_database_gets_the_same_installation(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    (rest,) = [rest for _, rest in steps(service) if "docker-entrypoint-initdb.d" in rest]
    script = ROOT / next(part for part in rest.split() if part.startswith("docker/"))
    subprocess.run(["sh", "-n", script], check=True)
    text = script.read_text()
    assert "set -eu\n" in text
    assert re.search(r'^/opt/cerebro-db/bin/cerebro install \\\n +--dsn "host=/', text, re.M)
    # The variables that it needs are those of the image, or given in docker-compose.yml.
    assert set(re.findall(r"\$(\w+)", text)) <= set(service["environment"])

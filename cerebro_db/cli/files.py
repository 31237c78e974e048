"""The commands that bring models out of a database and into it, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cerebro_db.cli.installation import Dsn
from cerebro_db.cli.output import AsJson, tell
from cerebro_db.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(export)
    app.command("import")(import_model)


def export(
    model: Annotated[
        str, typer.Argument(help="A table of models, or a registered one: model:name@alias.")
    ],
    output: Annotated[Path, typer.Option(help="The file to write.")],
    format: Annotated[str, typer.Option(help="keras, onnx or npz.")] = "keras",
    mst_key: Annotated[int | None, typer.Option(help="Which model of the table.")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Writes a trained model into a file."""
    from cerebro_db.models import export as driver
    from cerebro_db.postgres.calls.host import Client
    from cerebro_db.requests.models import ExportRequest

    client = Client.of(dsn)
    request = ExportRequest(model, mst_key, format)
    data = driver.export(client.pool, request, client.search_path)
    try:
        output.write_bytes(data)
    except OSError as error:
        raise InvalidArgument(f"--output: got {output}; {error.strerror}") from None
    tell(as_json, f"{output}: {len(data)} bytes", file=str(output), bytes=len(data))


def import_model(
    file: Annotated[Path, typer.Argument(help="A .keras file.")],
    model_arch_table: Annotated[str, typer.Argument(help="The table of architectures.")],
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    description: Annotated[str | None, typer.Option(help="For people.")] = None,
    dsn: Dsn = "",
    as_json: AsJson = False,
) -> None:
    """Puts the architecture and the weights of a .keras file into a table of architectures."""
    from cerebro_db.models import loading as model_loading
    from cerebro_db.postgres.calls.host import Client, control_session
    from cerebro_db.postgres.sessions.locks import transaction
    from cerebro_db.requests.models import FileRequest

    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"got the file {file}; {error.strerror}") from None
    client = Client.of(dsn)
    request = FileRequest(model_arch_table, data, name, description)
    with control_session(client.pool, client.search_path) as session, transaction(session):
        model_id = model_loading.load_model_file(session, client.pool, request)
    line = f"model_id {model_id} in {model_arch_table}"
    tell(as_json, line, model_id=model_id, model_arch_table=model_arch_table)

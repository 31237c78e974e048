"""A trained model in a database."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerebro_db.client.values import Frame
from cerebro_db.postgres.sessions.connections import Connections


@dataclass(frozen=True)
class Model:
    """A trained model of a run.

    Attributes:
        connections: to its database.
        run_id: of the run that trained it.
        mst_key: its configuration.
        table: where it is, as ``cerebro.runs`` names it.
        parameters: its hyperparameters, by name.
        results: loss and metrics; those of the validation table begin with ``val_``.
    """

    connections: Connections
    run_id: int
    mst_key: int
    table: str
    parameters: Mapping[str, Any]
    results: Mapping[str, float]

    def __repr__(self) -> str:
        """Without the connection."""
        results = ", ".join(f"{name}={value:.4g}" for name, value in self.results.items())
        return f"<Model {self.mst_key} of run {self.run_id}: {results}>"

    def export(self, format: str = "keras") -> bytes:
        """The model as the bytes of a file.

        Args:
            format: ``keras``, ``onnx`` or ``npz``; of a PyTorch model ``pt2``, ``safetensors`` or ``npz``.
        """
        return b"".join(self._exported(format))

    def _exported(self, format: str) -> list[bytes]:
        sql = "cerebro.cerebro_export(%s, %s, %s)"
        return self.connections.large_value(sql, (self.table, self.mst_key, format))

    def save(self, path: str | Path) -> Path:
        """Write the model into a file; its ending says how: .keras, .onnx, .pt2, .safetensors or .npz."""
        path = Path(path)
        parts = self._exported(path.suffix.lstrip(".") or "keras")
        with path.open("wb") as file:
            file.writelines(parts)
        return path

    def keras(self) -> Any:
        """The model as a ``keras.Model`` of this process, compiled as it was trained; imports Keras."""
        import keras

        with tempfile.TemporaryDirectory() as folder:
            return keras.saving.load_model(self.save(Path(folder) / "model.keras"))

    def torch(self, module: Any = None) -> Any:
        """The model as a module of PyTorch in evaluation; imports PyTorch.

        Args:
            module: the ``torch.nn.Module`` that was loaded, which gets the trained weights and is returned; by
                default a module of the exported program, which needs no code of the original one.
        """
        import torch

        if module is None:
            return torch.export.load(io.BytesIO(self.export("pt2"))).module()
        from safetensors.torch import load

        module.load_state_dict(load(self.export("safetensors")))
        return module.eval()

    def predict(
        self,
        test_table: str,
        output_table: str,
        id_col: str | None = None,
        independent_varname: str | None = None,
        **options: Any,
    ) -> Frame:
        """Predict in the database, as ``cerebro_predict`` does; returns the table that it makes.

        Args:
            test_table: rows, or a packed table.
            output_table: to be made.
            id_col, independent_varname: of the rows; None for a packed table.
            options: further arguments of ``cerebro_predict``, by name.
        """
        from cerebro_db.client.database import Database

        database = Database(self.connections)
        database.predict(
            self.table, test_table, id_col, independent_varname, output_table,
            mst_key=self.mst_key, **options,
        )  # fmt: skip
        return database.table(output_table)

    def register(self, name: str, description: str | None = None) -> int:
        """Put the model into the registry; returns the number of its version."""
        sql = "SELECT cerebro.cerebro_register_model(%s, %s, %s, %s)"
        given = (self.run_id, self.mst_key, name, description)
        return int(self.connections.run(sql, given)[0][0])

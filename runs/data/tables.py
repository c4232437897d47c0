"""Tables that a person brings as csv or parquet files: read as text and checked cell by cell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ...errors import InvalidValue
from ..data_config import DataConfig, as_text

Texts = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Table:
    """The used columns of a table.

    Attributes:
        columns: for each column its cells as texts ``[n]``, None where there is no value.
        rows: ``[n]``, the number of each record in its file, from 0.
        origin: the file, for messages.
    """

    columns: dict[str, Texts]
    rows: NDArray[np.int64]
    origin: str

    def take(self, kept: NDArray[Any]) -> Table:
        """The records that ``kept`` (a mask or positions) selects."""
        return Table({name: cells[kept] for name, cells in self.columns.items()}, self.rows[kept], self.origin)

    def numbers(self, column: str) -> NDArray[np.float64]:
        """A numeric column ``[n]``, NaN where there is no value.

        Raises:
            InvalidValue: a cell that is not a finite number.
        """
        cells = self.columns[column]
        out = np.full(len(cells), np.nan)
        for position, cell in enumerate(cells):
            if cell is None:
                continue
            try:
                value = float(cell)
            except ValueError:
                value = np.nan
            if not np.isfinite(value):
                where = f"record {self.rows[position]} of {self.origin} is not a finite number; repair it or drop it"
                raise InvalidValue(f"data column {column}", cell, where)
            out[position] = value
        return out


def read_table(path: Path, config: DataConfig, field: str = "data.path") -> Table:
    """The columns of a csv or parquet file that ``config`` names.

    The client column need not be there in a test set.

    Csv files have a header line and are UTF-8; those that end in ``.gz`` are unpacked.

    Raises:
        InvalidValue: naming ``field``: no such file, truncated, damaged, or a column missing or there twice.
    """
    if not path.is_file():
        raise InvalidValue(field, str(path), "is not a file that exists; give the path of the data")
    try:
        table = _csv(path, config) if config.name == "csv" else pa.parquet.read_table(path)
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        words = " ".join(str(error).split())
        cure = f"is truncated or not a {config.name} file ({words}); fetch it again"
        raise InvalidValue(field, str(path), cure) from None
    return from_arrow(table, config, path.name, field, str(path))


def from_arrow(table: Any, config: DataConfig, origin: str, field: str, given: str) -> Table:
    """The columns of an arrow table that ``config`` names, as texts.

    Raises:
        InvalidValue: naming ``field``: no records, or a column missing or there twice.
    """
    wanted = [*config.columns, str(config.label)]
    if config.client is not None and (field != "data.test_path" or config.client in table.column_names):
        wanted.append(config.client)
    for column in wanted:
        if (count := table.column_names.count(column)) != 1:
            fault = "has no column" if count == 0 else f"has {count} columns"
            listed = ", ".join(table.column_names[:30])
            raise InvalidValue(field, given, f"{fault} {column!r}; it has {listed}")
    if table.num_rows == 0:
        raise InvalidValue(field, given, "holds no records")
    columns = {column: _texts(table[column], config.missing_values) for column in wanted}
    return Table(columns, np.arange(table.num_rows), origin)


def _csv(path: Path, config: DataConfig) -> Any:
    with pa.input_stream(path) as stream:
        # Headers first: a column that is there twice would be dropped without a word.
        first = stream.read(1 << 16).split(b"\n", 1)[0]
    if not first.strip():
        raise ValueError("its first line is empty")
    options = pa.csv.ConvertOptions(
        strings_can_be_null=False, column_types=dict.fromkeys(_header(first, config.separator), pa.string())
    )
    return pa.csv.read_csv(
        path,
        parse_options=pa.csv.ParseOptions(delimiter=config.separator, newlines_in_values=True),
        convert_options=options,
    )


def _header(line: bytes, separator: str) -> list[str]:
    import csv

    return next(csv.reader([line.decode("utf-8-sig").rstrip("\r")], delimiter=separator))


def _texts(column: Any, missing: list[str]) -> Texts:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    absent = set(missing)
    known: dict[Any, str | None] = {}
    out = np.empty(len(column), dtype=object)
    for position, cell in enumerate(column.to_pylist()):
        if cell not in known:
            text = None if cell is None or cell != cell else as_text(cell)
            known[cell] = None if text in absent else text
        out[position] = known[cell]
    return out

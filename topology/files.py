"""Graphs from files: edge lists and GraphML."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import ParseError

import networkx as nx

from ..errors import InvalidValue


def read_edge_list(path: Path) -> nx.Graph:
    """One edge a line, two names parted by spaces, a tab or a comma; ``#`` begins a comment.

    A line with one name is a node, with its edges elsewhere or none. An edge that is given twice, or once each way, is
    one edge. Names are text. Raises InvalidValue (``topology.path``) with the number of the first line that is neither.
    """
    g = nx.Graph()
    for number, line in enumerate(_text(path).splitlines(), start=1):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        names = re.split(r"\s*,\s*|\s+", content)
        if len(names) > 2 or "" in names:
            cure = f"line {number} is {content!r}: give one edge a line, two names (weights are not used)"
            raise InvalidValue("topology.path", str(path), cure)
        if len(names) == 2:
            g.add_edge(*names)
        else:
            g.add_node(names[0])
    return g


def read_graphml(path: Path) -> nx.Graph:
    """The graph of a GraphML file, directed where the file says so. Raises InvalidValue (``topology.path``)."""
    _text(path)
    try:
        return nx.read_graphml(path)
    except (ParseError, nx.NetworkXError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InvalidValue("topology.path", str(path), f"this is no GraphML file that can be read ({error})") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidValue("topology.path", str(path), "give a text file in UTF-8") from None
    except OSError as error:
        raise InvalidValue("topology.path", str(path), f"it cannot be read ({error.strerror})") from None

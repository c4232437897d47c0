"""Who talks to whom: graphs, their spectra, the stability of a penalty on them, and clients placed on hosts.

Import from the modules: ``config`` (what a person writes), ``graphs`` (build), ``checks`` (refuse), ``spectrum``,
``stability``, ``exchange`` (the correction over the graph), ``placement``, ``describe`` and ``draw``. This file imports
none of them, so that a configuration costs neither networkx nor scipy.
"""

"""A run over HTTP: JSON with a description of its own, and a page that shows it live."""

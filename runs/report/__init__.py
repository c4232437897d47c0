"""``report.html``: one page that stands alone, for a run, a comparison, a sweep or a reproduction."""

from .run import report as report

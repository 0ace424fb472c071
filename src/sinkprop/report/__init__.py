"""Reports on a comparison or on saved models, as one HTML page that works offline.

`comparison_report` and `models_report` make the data of a report, which can be written as JSON. `report_html`
and `write_report` make the page from the data. No ranker is fitted here.
"""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop.report.page import report_html, write_report
    from sinkprop.report.record import comparison_report, models_report

__all__ = ["comparison_report", "models_report", "report_html", "write_report"]

# Names are imported at first use, since only `record` needs the modules of `experiment`.
_LAZY = {
    "comparison_report": "sinkprop.report.record",
    "models_report": "sinkprop.report.record",
    "report_html": "sinkprop.report.page",
    "write_report": "sinkprop.report.page",
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)

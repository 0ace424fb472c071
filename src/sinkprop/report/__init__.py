"""Reports about a comparison or saved models, as one HTML page without network; nothing is fitted.

`comparison_report` and `models_report` make the data of a report, plain enough for JSON; `report_html` and
`write_report` make the page of it.
"""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop.report.page import report_html, write_report
    from sinkprop.report.record import comparison_report, models_report

__all__ = ["comparison_report", "models_report", "report_html", "write_report"]

# The data need the experiment's modules and the page does not: each is imported when it is asked for.
_LAZY = {
    "comparison_report": "sinkprop.report.record",
    "models_report": "sinkprop.report.record",
    "report_html": "sinkprop.report.page",
    "write_report": "sinkprop.report.page",
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)

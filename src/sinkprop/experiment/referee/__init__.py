"""Comparison of many methods on many data sets, which resumes, continues after failures and writes a table.

`referee` runs the methods. Each fit is kept in a file, so an interrupted run resumes. The result is
`Standings`: the mean of each method on each set, its distance from the best one, and its average rank.

>>> from sinkprop.experiment.referee import BUILT_IN
>>> list(BUILT_IN)[:2]
['pydocs', 'simulated']
"""

from sinkprop.experiment.referee.fits import Fit, KeptFits
from sinkprop.experiment.referee.run import METRICS, referee
from sinkprop.experiment.referee.sets import BUILT_IN, five_folds, named_sets
from sinkprop.experiment.referee.standings import Standings

__all__ = ["BUILT_IN", "METRICS", "Fit", "KeptFits", "Standings", "five_folds", "named_sets", "referee"]

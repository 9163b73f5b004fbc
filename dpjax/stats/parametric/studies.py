"""The studies there are, by name of the model."""

from dpjax.stats.parametric.study import Study

STUDIES: dict[str, Study] = {
    study.name: study for study in ()}

"""The studies there are, by name of the model."""

from dpjax.stats.parametric import densities
from dpjax.stats.parametric import likelihood_study
from dpjax.stats.parametric import normal_bounds
from dpjax.stats.parametric import proportions
from dpjax.stats.parametric import supports
from dpjax.stats.parametric import truncated_means
from dpjax.stats.parametric.study import Study

STUDIES: dict[str, Study] = {study.name: study for study in (
    proportions.STUDY, supports.STUDY, supports.ABSOLUTE, truncated_means.STUDY,
    normal_bounds.STUDY, likelihood_study.STUDY, densities.STUDY)}

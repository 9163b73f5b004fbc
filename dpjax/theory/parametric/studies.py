"""All studies, by name of the model."""

from dpjax.theory.parametric import densities
from dpjax.theory.parametric import likelihood_study
from dpjax.theory.parametric import normal_bounds
from dpjax.theory.parametric import proportions
from dpjax.theory.parametric import supports
from dpjax.theory.parametric import truncated_means
from dpjax.theory.parametric.study import Study

STUDIES: dict[str, Study] = {study.name: study for study in (
    proportions.STUDY, supports.STUDY, supports.ABSOLUTE, truncated_means.STUDY,
    normal_bounds.STUDY, likelihood_study.STUDY, densities.STUDY)}

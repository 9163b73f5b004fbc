"""Features of images and tables that are computed without other data.

A private model on fixed features is small and needs little noise: without
public data, a linear model on scattering coefficients is better than a network
up to moderate budgets (Tramer and Boneh, 2021).

Guarantee of all features here: a row of the result is a function of the same
row of the records and of public numbers, so they cost no privacy budget and
neighbouring data sets have neighbouring features. `PrivateNormalisation` and
`PrivateWhitening` alone read several records; they are mechanisms with noise
and an event.

Modules, in import order: images, upright, scattering, hog, convolutions, sums,
normalisation, whitening, tables, combining, computing.
"""

from typing import TYPE_CHECKING

from dpjax import lazy

if TYPE_CHECKING:
  from dpjax.features.combining import Composed as Composed
  from dpjax.features.computing import computed as computed
  from dpjax.features.convolutions import (
    RandomConvolutions as RandomConvolutions,
  )
  from dpjax.features.hog import Hog as Hog
  from dpjax.features.normalisation import (
    GroupNormalisation as GroupNormalisation,
  )
  from dpjax.features.normalisation import (
    PrivateNormalisation as PrivateNormalisation,
  )
  from dpjax.features.scattering import Scattering as Scattering
  from dpjax.features.tables import crossed as crossed
  from dpjax.features.whitening import PrivateWhitening as PrivateWhitening

__all__ = [
    'Composed', 'GroupNormalisation', 'Hog', 'PrivateNormalisation',
    'PrivateWhitening', 'RandomConvolutions', 'Scattering', 'computed',
    'crossed'
]

if not TYPE_CHECKING:  # A checker would take every name for Any.
  __getattr__, __dir__ = lazy.attributes(__name__, __all__, {
      'Composed': 'combining', 'computed': 'computing',
      'RandomConvolutions': 'convolutions', 'Hog': 'hog',
      'GroupNormalisation': 'normalisation',
      'PrivateNormalisation': 'normalisation',
      'PrivateWhitening': 'whitening', 'Scattering': 'scattering',
      'crossed': 'tables'})

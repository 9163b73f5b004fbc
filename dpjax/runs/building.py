"""Builds the data set, model, method and optimiser that a configuration names.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import optax

from dpjax.data import arrays
from dpjax.data import images
from dpjax.data import registry
from dpjax.data import streamed
from dpjax.data import user_tables
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import Method
from dpjax.lipschitz import losses
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.models import model as models
from dpjax.models import resnet
from dpjax.models import wide_resnet
from dpjax.models.bounding import Bounding
from dpjax.models.model import Model
from dpjax.runs import run_features
from dpjax.runs import run_users
from dpjax.runs import training_methods
from dpjax.runs.configuration import TrainingConfig
from dpjax.runs.settings import known
from dpjax.train import augment
from dpjax.train import averaging
from dpjax.train import optimizers
from dpjax.typing import ApplyFn

Dataset = arrays.Dataset | images.ImageDataset | run_users.UserTable
AnyDataset = Dataset | streamed.StreamedDataset

_PADDING = 4
_LARGEST_NORM = 1e4
_BALLS = ('balls', 'adaptive_balls')


class Shapes(NamedTuple):
  """The shapes of a data set that a model depends on.

  Attributes:
    record: shape of one record, without the batch axis.
    num_classes: number of distinct labels.
  """
  record: tuple[int, ...]
  num_classes: int


def shapes(dataset: AnyDataset) -> Shapes:
  """Returns the record shape and the number of classes of a data set."""
  if isinstance(dataset, streamed.StreamedDataset):
    return Shapes(dataset.record_shape, dataset.num_classes)
  if isinstance(dataset, images.ImageDataset):
    return Shapes(dataset.image_shape, dataset.num_classes)
  return Shapes(dataset.x.shape[1:], dataset.num_classes)


def load(config: TrainingConfig, *, data_dir: str | None = None) -> Dataset:
  """Loads the data set of a configuration: a named one, or the user's table.

  Args:
    config: with a dataset name, or with a path and a schema.
    data_dir: folder of the data sets; None for the default folder.

  Raises:
    ValueError, FileNotFoundError: with a message of one line.
  """
  if config.user_column is not None:
    return run_users.load(config, data_dir=data_dir)
  if config.schema is not None:
    return user_tables.load(config.dataset, config.schema, data_dir=data_dir)
  return registry.load(config.dataset, data_dir=data_dir)


def open_streamed(config: TrainingConfig, *, data_dir: str | None = None
                  ) -> streamed.StreamedDataset:
  """Opens the files of a configuration with `stream`, whose records stay there.

  Args and raises as for `load`.
  """
  if config.schema is None:
    return streamed.open_images(
        config.dataset, data_dir=data_dir, downsample=config.downsample,
        low=_low(config))
  return streamed.open_table(config.dataset, config.schema, data_dir=data_dir)


def prepare(config: TrainingConfig, dataset: Dataset) -> Dataset:
  """Downsamples and scales images as configured, and computes features.

  Every record is processed separately, so none affects another.

  Raises:
    ValueError: if records are to be grouped by user and are not, or are and
      are not to be.
  """
  if isinstance(dataset, run_users.UserTable) != (
      config.user_column is not None):
    raise ValueError('a data set of users and user_column need each other: '
                     'load the data set with building.load')
  if isinstance(dataset, images.ImageDataset):
    dataset = images.downsample(dataset, config.downsample)
    return (dataset._replace(low=_low(config)) if config.features == 'none'
            else run_features.of_images(dataset))
  if isinstance(dataset, arrays.Dataset) and config.features != 'none':
    return run_features.of_table(config, dataset)
  return dataset


def _low(config: TrainingConfig) -> float:
  """Returns the value that pixel 0 is mapped to."""
  return -1.0 if config.pixels == 'signed' else 0.0


def make_model(config: TrainingConfig, dataset: AnyDataset) -> Model:
  """Builds the network, with the norm bounds that the method needs."""
  data = shapes(dataset)
  if config.loss == 'ordinal':
    data = data._replace(num_classes=1)
  model = (_perceptron if len(data.record) == 1 else _image_model)(config,
                                                                   data)
  if config.user_column is not None:
    model = run_users.prepared_by_record(model)
  if config.weights == 'free':
    return model
  bounded = training_methods.METHODS[config.method].bounds_weights
  return models.reparametrised(
      model, config.weights,
      weight_norm=known(config.weight_norm) if bounded else _LARGEST_NORM)


def _perceptron(config: TrainingConfig, data: Shapes) -> Model:
  """Builds a fully connected network, for tables."""
  if config.model == 'orthogonal':
    return mlp.orthogonal(
        num_features=data.record[0], num_classes=data.num_classes,
        depth=known(config.depth), width=known(config.width),
        share=config.branch_share, input_radius=known(config.input_radius))
  method = training_methods.METHODS[config.method]
  balls = method.activations in _BALLS
  return mlp.mlp(
      num_features=data.record[0], num_classes=data.num_classes,
      depth=known(config.depth), width=known(config.width),
      activation=known(config.activation),
      # Features have a constant part. A bias would double the square of the
      # sensitivity of a layer on records of norm 1.
      use_bias=config.features == 'none',
      bias_norm=config.bias_norm if method.bounds_biases else None,
      input_radius=config.input_radius if method.projects_records else None,
      hidden_radius=config.hidden_radius if balls else None,
      adaptive=method.activations == 'adaptive_balls')


def _image_model(config: TrainingConfig, data: Shapes) -> Model:
  """Builds a ConvNet, a ResNet or a wide ResNet."""
  method = training_methods.METHODS[config.method]
  # A standard normalisation has a Lipschitz constant near 300, and constants
  # of consecutive layers multiply. So these methods use the bounded kind.
  normalised = method.activations == 'normalised' or (
      method.activations == 'residual_normalised' and config.model != 'convnet')
  kind = ('ball' if method.activations in _BALLS else
          'normalised' if normalised else 'none')
  height, width, channels = data.record
  # The arguments that all networks for images share; their types differ.
  common: dict[str, Any] = dict(
      input_shape=(height, width, channels), num_classes=data.num_classes,
      input_radius=config.input_radius if method.projects_records else None,
      bounding=Bounding(
          kind=kind, radius=known(config.hidden_radius),
          alpha=config.alpha, num_groups=config.num_groups,
          adaptive=method.activations == 'adaptive_balls',
          affine=config.model == 'resnet'))
  depth = known(config.depth)
  if config.model == 'convnet':
    return convnet.convnet(
        channels=config.channels or (32,) + (64,) * (depth - 1),
        width=known(config.width), kernel_size=config.kernel_size,
        stride=config.stride, pool=config.pool, use_bias=config.use_bias,
        activation=known(config.activation),
        bias_norm=config.bias_norm if method.bounds_biases else None,
        **common)
  averaged = config.residual == 'averaged'
  if config.model == 'resnet':
    return resnet.resnet(depth=depth, averaged=averaged, **common)
  return wide_resnet.wide_resnet(depth=depth, widening=known(config.width),
                                 averaged=averaged, **common)


def make_predictor(config: TrainingConfig, model: Model,
                   dataset: AnyDataset) -> ApplyFn:
  """Returns (params, x [b, ...]) -> scores [b, number of classes].

  The largest score is the predicted class, whatever the loss.
  """
  class_scores = make_loss(config, dataset).class_scores
  return lambda params, x: class_scores(model.apply(params, x))


def make_loss(config: TrainingConfig,
              dataset: AnyDataset) -> losses.LipschitzLoss:
  """Returns the loss; Lipschitz methods clip its cotangents at the logits."""
  bounded = training_methods.METHODS[config.method].bounds_weights
  make = (losses.cross_entropy if config.loss == 'cross_entropy' else
          functools.partial(losses.ordinal,
                            num_classes=shapes(dataset).num_classes))
  return make(temperature=known(config.temperature),
              logit_clip=config.logit_clip if bounded else None)


def make_method(config: TrainingConfig, model: Model,
                dataset: AnyDataset) -> Method:
  """Returns the training method with its constants from the configuration.

  With `config.views` above 1, a record contributes the mean over that many
  augmented views; with `user_column`, a user that over their records.
  """
  maker, loss = _maker(config), make_loss(config, dataset)
  if config.user_column is not None:
    return maker(model, loss._replace(values=run_users.mean_loss(loss.values)))
  method = maker(model, loss)
  if config.views == 1:
    return method

  def of_views(apply: Callable[..., Any],
               values: Callable[..., Any]) -> GradientBounder:
    # Views are stacked like records, so the model needs no other `apply`.
    del apply
    return maker(model, loss._replace(values=values)).bounder

  return method._replace(bounder=augment.augmented(
      of_views, model.apply, loss.values, multiplicity=config.views,
      augmentation=augment.crop_and_flip(padding=_PADDING)))


def _maker(config: TrainingConfig
           ) -> Callable[[Model, losses.LipschitzLoss], Method]:
  """Returns the function (model, loss) -> Method of `config.method`."""
  declared = training_methods.METHODS[config.method]
  # Arguments of constructors that are not options of the same name.
  derived = dict(
      noise_stddev=config.count_noise * known(config.batch_size),
      order=float(config.noise_order), radius=config.weight_norm)
  # The constructors check the values.
  arguments: dict[str, Any] = {
      name: derived[name] if name in derived else getattr(config, name)
      for name in declared.arguments}
  return functools.partial(declared.make, **arguments)


def make_averaging(config: TrainingConfig) -> averaging.Averaging | None:
  """Returns the parameter average to evaluate; None for the last iterate."""
  return averaging.named(None if config.average == 'none' else config.average)


def make_optimizer(config: TrainingConfig) -> optax.GradientTransformation:
  """Returns the optimiser, which only post-processes noisy mean gradients."""
  return optimizers.named(
      known(config.optimizer), known(config.learning_rate),
      schedule=known(config.schedule), num_steps=known(config.num_steps))

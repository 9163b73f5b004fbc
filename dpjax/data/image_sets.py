"""Specifications of the image data sets: formats and expected contents.

Checksums of MNIST and Fashion-MNIST are those of the publishers' unpacked
files. No checksums of the original files of CIFAR-10 are known here. The hashes
of its contents come from a copy in another format, with 60,000 distinct images,
5,000 (training) and 1,000 (test) in each class. A test checks that its channel
means and deviations agree with the published ones to eight digits.
"""

import types

import numpy as np

from dpjax.data import containers
from dpjax.data import files
from dpjax.data import image_files
from dpjax.data import pickles

Container = image_files.Container
Contents = image_files.Contents
Images = containers.Images
Parts = containers.Parts

_IDX_NAMES = ('train-images-idx3-ubyte', 'train-labels-idx1-ubyte',
              't10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte')
_BATCHES = (*(f'data_batch_{number}' for number in range(1, 6)), 'test_batch')
_DIGITS = tuple(str(digit) for digit in range(10))
# The last fifth of the 1,797 embedded digits is our test part; the publisher
# defines none for them.
_NUM_DIGITS_TRAIN = 1_437


def _file(name: str, *, sha256: str = '', folder: str = '') -> files.FileSpec:
  """Returns a file that may also lie in `folder` or be packed with gzip."""
  # The publisher's archives of CIFAR unpack into a folder of their own.
  names = (name, f'{folder}/{name}') if folder else (name,)
  return files.FileSpec(
    name=name, sha256=sha256,
    alternatives=(*names[1:], *(f'{path}.gz' for path in names)))


def _npz(name: str) -> Container:
  return Container(title=f'{name}.npz', files=(_file(f'{name}.npz'),),
                   read=containers.npz_parts)


def _idx(*checksums: str) -> Container:
  file_specs = tuple(
    _file(name, sha256=sha256)
    for name, sha256 in zip(_IDX_NAMES, checksums, strict=True))
  return Container(title='the four IDX files', files=file_specs,
                   read=containers.idx_parts)


def _digits() -> Parts:
  """Returns the 8 x 8 digits that come with scikit-learn."""
  from sklearn import datasets  # Slow to import; only this needs it.
  bunch = datasets.load_digits()
  x = bunch.images[..., None].astype(np.uint8)
  y = bunch.target
  return Parts(Images(x[:_NUM_DIGITS_TRAIN], y[:_NUM_DIGITS_TRAIN]),
               Images(x[_NUM_DIGITS_TRAIN:], y[_NUM_DIGITS_TRAIN:]))


_MNIST = image_files.ImageSpec(
  name='mnist',
  image_shape=(28, 28, 1),
  class_names=_DIGITS,
  train=Contents(60_000, '3655811c0e1223700a4714a92a51f55b'
                         'd215ed7dc1fa2baa4326a2b58042d82d'),
  test=Contents(10_000, '634538fb34c5277fce98470b8b285d1e'
                        '8419eb87f328da42ef1faf690d2c3911'),
  source='http://yann.lecun.com/exdb/mnist or its mirror '
         'https://storage.googleapis.com/cvdf-datasets/mnist',
  licence='CC BY-SA 3.0',
  containers=(
    _idx('ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db',
         '65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5',
         '0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7',
         'ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2'),
    _npz('mnist')))

_FASHION_MNIST = image_files.ImageSpec(
  name='fashion_mnist',
  image_shape=(28, 28, 1),
  class_names=('T-shirt/top', 'Trouser', 'Pullover', 'Dress', 'Coat',
               'Sandal', 'Shirt', 'Sneaker', 'Bag', 'Ankle boot'),
  train=Contents(60_000, '0c69d5cdeb902b69084012f812f066de'
                         '080317bb3c64f43ca87f910d8ec86906'),
  test=Contents(10_000, '90c92c0507755a7d443edde8297ce4d0'
                        'f131e42884e2e87e7fc9b81ffe215258'),
  source='https://github.com/zalandoresearch/fashion-mnist',
  licence='MIT',
  containers=(
    _idx('c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888',
         'bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9',
         '5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b',
         '0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34'),
    _npz('fashion_mnist')))

_CIFAR10 = image_files.ImageSpec(
  name='cifar10',
  image_shape=(32, 32, 3),
  class_names=('airplane', 'automobile', 'bird', 'cat', 'deer', 'dog', 'frog',
               'horse', 'ship', 'truck'),
  train=Contents(50_000, 'd59acf989e068e709ce686cda292672c'
                         '7b212c08d29d3d3e6d8c3aa99eba6a85'),
  test=Contents(10_000, '899683d46c3a8c66fd56e1af12202e69'
                        'fe5a4517be10b0f68e04c78fe585c57c'),
  source='https://www.cs.toronto.edu/~kriz/cifar.html, unpacked',
  licence='not stated; research use, cite Krizhevsky 2009',
  containers=(
    Container(
      title='the binary batches',
      files=tuple(_file(f'{batch}.bin', folder='cifar-10-batches-bin')
                  for batch in _BATCHES),
      read=containers.cifar_binary_parts),
    Container(
      title='the Python batches',
      files=tuple(_file(batch, folder='cifar-10-batches-py')
                  for batch in _BATCHES),
      read=pickles.cifar_pickle_parts),
    _npz('cifar10'),
    Container(
      title='mosaics of 100 x 100 images',
      files=tuple(_file(name, sha256=sha256) for name, sha256 in (
        ('train_labels.npy', 'ba0e3af7deeccde81e8292da67e6f7f6'
                             'a199003686fc8d0660f7c37e0fcb61f0'),
        ('test_labels.npy', 'e110af2b69ae5e09d5e5d172ac37fe12'
                            'c825213b5dfb5a2d263af7e29f7b1d42'),
        ('data_batch_1.webp', '712c1686bf7ad4177e814507bd913111'
                              '7b48d80ef00c40093ae443efad3f1a2f'),
        ('data_batch_2.webp', 'f8359146644616fcf047b2d8473f66a5'
                              '7f4998da0debaf28d36d4c3b61e74092'),
        ('data_batch_3.webp', '3a5b40ab5edb066ca190648d30ce213f'
                              '8d4e0335079a1421ea0e07409b5c33de'),
        ('data_batch_4.webp', 'cb3fbf04fd1c8437adb0962618d20955'
                              'f004714a235b6e6b54389b9a0a69bb1e'),
        ('data_batch_5.webp', 'bde6154161a7a3a859ec4beef870f47e'
                              'da0220baedb2a9ab62c7e759b2177ab3'),
        ('test_batch.webp', '741efc0d16b6924140cb51f44056f9ee'
                            '5b40e2cfe7cc5e0c0e2b7c37ec5b5322'))),
      read=containers.mosaic_parts)))

_EMBEDDED_DIGITS = image_files.ImageSpec(
  name='digits',
  image_shape=(8, 8, 1),
  class_names=_DIGITS,
  train=Contents(_NUM_DIGITS_TRAIN, 'a4b0c2b459de60dfc5b6137ddba2986a'
                                    'c5bf464934660781e4e15b79191cc512'),
  test=Contents(360, '6a8044597a27310e29f958ecddc23b12'
                     '4a4478f9b449dc86057d72dbd464907c'),
  source='scikit-learn; the UCI Machine Learning Repository, data set 80 '
         '(Optical Recognition of Handwritten Digits, its test part), '
         'https://doi.org/10.24432/C50P49',
  licence='CC BY 4.0',
  # A pixel counts the dark points of a 4 x 4 block of the scan.
  max_value=16,
  embedded=_digits)

IMAGE_SETS = types.MappingProxyType({
  spec.name: spec
  for spec in (_CIFAR10, _EMBEDDED_DIGITS, _FASHION_MNIST, _MNIST)})
"""Specification of each image data set by its name; read-only."""

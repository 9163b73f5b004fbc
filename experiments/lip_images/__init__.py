"""Accuracy of private training on MNIST, Fashion-MNIST and CIFAR-10."""

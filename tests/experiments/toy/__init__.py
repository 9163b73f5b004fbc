"""This package is a small experiment to test the engine with."""

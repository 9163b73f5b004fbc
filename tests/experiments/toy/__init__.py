"""A small experiment to test the engine with."""

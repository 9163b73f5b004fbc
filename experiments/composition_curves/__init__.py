"""The privacy cost of many releases together, by all known bounds."""

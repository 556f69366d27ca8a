"""The parts of hutch's Python kernel. Nothing here is meant to be used by the code of a cell."""

"""hindcast: load, characterize, replay and compare GPU-cluster job logs."""

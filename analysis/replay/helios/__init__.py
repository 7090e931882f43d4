"""The rules of HeliosArtifact, the simulator behind the Helios paper, where they differ from ours."""

from analysis.replay.helios.artifact import helios_artifact

__all__ = ["helios_artifact"]

"""The rules of HeliosArtifact, the simulator behind the Helios paper, where they differ from ours."""

from analysis.replay.helios.artifact import HELIOS, helios_artifact

__all__ = ["HELIOS", "helios_artifact"]

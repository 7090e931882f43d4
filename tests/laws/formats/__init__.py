"""Formats of sources, each with a writer of its own: the package's loaders have no part in them."""

from tests.laws.formats import acme, alibaba, beside, delimited, documents, maps, pai, philly, slurm, supercloud
from tests.laws.formats.common import Expected, Format

__all__ = ["FORMATS", "Expected", "Format"]

FAMILIES = (acme, alibaba, beside, delimited, documents, maps, pai, philly, slurm, supercloud)
FORMATS: dict[str, Format] = {name: form for family in FAMILIES for name, form in family.FORMATS.items()}
assert len(FORMATS) == sum(len(family.FORMATS) for family in FAMILIES), "two formats of one name"

"""Events of OpenLineage, the standard by which tools tell each other what was made of what."""

"""What one piece of code refers to, gathered name by name."""

from dataclasses import dataclass, field

from runnel.declare.model.source_location import Place
from runnel.plan.fingerprint.code.code_unit import Part, Unit, digest, mark


@dataclass
class Gathering:
    """Texts, pieces and parts, in the order in which the names are followed."""

    texts: list[str] = field(default_factory=list)
    refs: list[Unit] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    makers: set[Place] = field(default_factory=set)  # statements followed already

    def say(self, text: str) -> None:
        """Note something that is known by name."""
        self.texts.append(text)

    def refer(self, text: str, unit: Unit) -> None:
        """Note another piece."""
        self.texts.append(text)
        self.refs.append(unit)

    def hold(self, name: str, unit: Unit, kind: str, full_name: str, place: Place) -> None:
        """Note a value under its name."""
        self.texts.append(f"{name} {kind}")
        self.refs.append(unit)
        if kind != "attribute":  # the code that it belongs to tells it
            self.parts.append(Part(kind, full_name, mark(unit.own), place))

    def warn(self, text: str) -> None:
        """Note what could not be followed, for people."""
        self.opaque.append(text)

    def finish(self, unit: Unit, text: str, part: Part) -> None:
        """Put everything into a piece."""
        unit.own = digest([text, *self.texts])
        unit.refs = self.refs
        unit.parts = (part, *self.parts)
        unit.opaque = tuple(dict.fromkeys(self.opaque))

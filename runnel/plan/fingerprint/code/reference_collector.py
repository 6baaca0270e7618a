"""What one piece of code refers to, gathered name by name."""

from dataclasses import dataclass, field

from runnel.declare.model.source_location import SourceLocation
from runnel.plan.fingerprint.code.code_unit import CodeUnit, FingerprintPart, hash_texts, short_hash


@dataclass
class ReferenceCollector:
    """Texts, pieces and parts, in the order in which the names are followed."""

    texts: list[str] = field(default_factory=list)
    refs: list[CodeUnit] = field(default_factory=list)
    parts: list[FingerprintPart] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    followed_statements: set[SourceLocation] = field(default_factory=set)  # statements followed already

    def add_text(self, text: str) -> None:
        """Note something that is known by name."""
        self.texts.append(text)

    def add_unit(self, text: str, unit: CodeUnit) -> None:
        """Note another piece."""
        self.texts.append(text)
        self.refs.append(unit)

    def add_value(self, name: str, unit: CodeUnit, kind: str, full_name: str, place: SourceLocation) -> None:
        """Note a value under its name."""
        self.texts.append(f"{name} {kind}")
        self.refs.append(unit)
        if kind != "attribute":  # the code that it belongs to tells it
            self.parts.append(FingerprintPart(kind, full_name, short_hash(unit.own_text), place))

    def add_warning(self, text: str) -> None:
        """Note what could not be followed, for people."""
        self.opaque.append(text)

    def fill_unit(self, unit: CodeUnit, text: str, part: FingerprintPart) -> None:
        """Put everything into a piece."""
        unit.own_text = hash_texts([text, *self.texts])
        unit.refs = self.refs
        unit.parts = (part, *self.parts)
        unit.opaque = tuple(dict.fromkeys(self.opaque))

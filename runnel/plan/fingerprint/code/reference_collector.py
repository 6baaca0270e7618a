"""Collect what one code unit refers to, name by name."""

from dataclasses import dataclass, field

from runnel.declare.model.source_location import SourceLocation
from runnel.plan.fingerprint.code.code_unit import CodeUnit, FingerprintPart, hash_texts, short_hash


@dataclass
class ReferenceCollector:
    """Collects texts, code units and parts, in the order in which names are followed."""

    texts: list[str] = field(default_factory=list)
    refs: list[CodeUnit] = field(default_factory=list)
    parts: list[FingerprintPart] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    followed_statements: set[SourceLocation] = field(default_factory=set)  # statements that were already followed

    def add_text(self, text: str) -> None:
        """Add something that is identified by its name alone."""
        self.texts.append(text)

    def add_unit(self, text: str, unit: CodeUnit) -> None:
        """Add a reference to another code unit."""
        self.texts.append(text)
        self.refs.append(unit)

    def add_value(self, name: str, unit: CodeUnit, kind: str, full_name: str, place: SourceLocation) -> None:
        """Add a value under its name."""
        self.texts.append(f"{name} {kind}")
        self.refs.append(unit)
        if kind != "attribute":  # the part of its class covers it
            self.parts.append(FingerprintPart(kind, full_name, short_hash(unit.own_text), place))

    def add_warning(self, text: str) -> None:
        """Add a message for people about something that could not be followed."""
        self.opaque.append(text)

    def fill_unit(self, unit: CodeUnit, text: str, part: FingerprintPart) -> None:
        """Fill a code unit with everything collected."""
        unit.own_text = hash_texts([text, *self.texts])
        unit.refs = self.refs
        unit.parts = (part, *self.parts)
        unit.opaque = tuple(dict.fromkeys(self.opaque))

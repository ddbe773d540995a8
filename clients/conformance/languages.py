"""The languages with a client, the programs that run the cases with it, and the table of ../README.md."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "target/client-tools"


@dataclass(frozen=True)
class Language:
    """A client: its title, the command of its program, and the integrations that it has."""

    title: str
    command: tuple[str, ...]
    integrations: frozenset[str]

    def runs(self, case: dict) -> bool:
        """Returns whether the client has what the case needs."""
        needed = case.get("integration", case["of"])
        return needed == "all" or needed in self.integrations


_PYTHON = (str(ROOT / ".venv/bin/python"), str(ROOT / "clients/python/conformance/program.py"))

LANGUAGES = {
    "python": Language("Python", _PYTHON, frozenset({"function"})),
    "asyncio": Language("asyncio", (*_PYTHON, "--asyncio"), frozenset({"http", "function"})),
}


def command(language: str) -> list[str]:
    """Returns the command that starts the program of a language."""
    return list(LANGUAGES[language].command)


def table(cases: list[dict]) -> str:
    """Returns the table of cases and languages."""
    languages = LANGUAGES.values()
    lines = ["| case | " + " | ".join(language.title for language in languages) + " |"]
    lines.append("|---" * (len(languages) + 1) + "|")
    for case in cases:
        cells = ("yes" if language.runs(case) else "–" for language in languages)
        lines.append(f"| {case['case']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"

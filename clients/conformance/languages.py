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
    # True if it only adds an integration to another language's client.
    is_addition: bool = False

    def runs(self, case: dict) -> bool:
        """Returns whether the client has the features that the case requires."""
        needed = case["of"]
        return needed in self.integrations or needed == "all" and not self.is_addition


_PYTHON = (str(ROOT / ".venv/bin/python"), str(ROOT / "clients/python/conformance/program.py"))
_NODE = ("node", str(TOOLS / "typescript/dist/conformance/program.js"))
_JAVA = TOOLS / "java-package"
_RUST = str(ROOT / "target/debug/examples/client_conformance")
_CLASSPATH = f"{_JAVA}/classes:{_JAVA}/test-classes:{_JAVA}/lib/*"

LANGUAGES = {
    "python": Language("Python", _PYTHON, frozenset({"function"})),
    "asyncio": Language("asyncio", (*_PYTHON, "--asyncio"), frozenset({"http", "function"})),
    "go": Language("Go", (str(ROOT / "target/go-tools/conformance"),), frozenset({"http", "grpc", "leases"})),
    "typescript": Language("TypeScript", _NODE, frozenset({"http"})),
    "fastify": Language("Fastify", (*_NODE, "--fastify"), frozenset({"http"}), is_addition=True),
    "java": Language(
        "Java", ("java", "-cp", _CLASSPATH, "tollgate.client.conformance.Program"), frozenset({"http", "grpc"})
    ),
    "rust": Language("Rust", (_RUST,), frozenset({"http", "grpc", "leases"})),
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

"""The result as SARIF 2.1.0, which code scanners and editors read.

The format is OASIS's "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

from urllib.parse import quote

from zluda_stack import __version__
from zluda_stack.check.gaps import RULES, Gap, Rule, Severity
from zluda_stack.check.report import FileReport, Report
from zluda_stack.program import NAME

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    Severity.CANNOT: "error",
    Severity.UNJUDGED: "error",
    Severity.GAP: "warning",
    Severity.NOTE: "note",
}
_MOST_USERS = 50


def sarif(found: Report) -> dict[str, object]:
    """The report as a SARIF log with one run; each gap is a result, the file its place."""
    driver = {
        "name": NAME,
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in RULES],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": True, "exitCode": found.exit_code}],
        "results": [_result(file, gap) for file in found.files for gap in file.gaps],
        "properties": {
            "verdict": found.verdict.value,
            "zludaCommit": found.zluda_commit,
            "computeCapability": found.compute_capability,
        },
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.meaning},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(file: FileReport, gap: Gap) -> dict[str, object]:
    return {
        "ruleId": gap.id,
        "ruleIndex": [rule.id for rule in RULES].index(gap.id),
        "level": _LEVELS[gap.severity],
        "message": {"text": f"{gap.text}. What to do: {gap.fix}"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": quote(file.file)}}}],
        "partialFingerprints": {"subject/v1": f"{gap.id}:{gap.subject}"},
        "properties": {
            "subject": gap.subject,
            "usedBy": list(gap.used_by[:_MOST_USERS]),
            "verdict": file.verdict.value,
        },
    }

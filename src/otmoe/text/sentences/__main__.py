"""Print every sentence with its code, for review."""

from otmoe.text.sentences import Error, Finding, Status, Warn

for kind in (Error, Warn, Status, Finding):
    print(f"\n# {kind.__name__}")
    for member in kind:
        print(f"{member.code}: {member.value}")

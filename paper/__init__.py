"""The paper's study, re-run: a step writes a CSV that is tracked, tables come from the CSV."""
